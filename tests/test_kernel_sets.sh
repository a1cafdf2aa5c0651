#!/bin/bash
# test_kernel_sets.sh - what heed promises holds for each set of kernels that this CPU has, as
# `heed --version` lists them: training gives the same bytes with one thread and with two, a
# translation does not depend on its batch, and the default model, in int8, translates the same.
#
# usage: test_kernel_sets.sh PROGRAM
set -eu
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
unset HEED_DEVICE HEED_ISA

awk -v seed=5 -v lines=60 -v longest=12 -f "$(dirname "$0")/reversals.awk" >"$dir/train.tsv"
cut -f 1 "$dir/train.tsv" | head -n 7 >"$dir/text"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"

sets=$("$heed" --version | sed -n 's/^CPU kernels: .*(of \(.*\))$/\1/p' | tr -d ,)
[ -n "$sets" ] || fail "heed --version lists no kernels"
for set in $sets; do
    export HEED_ISA=$set
    for precision in f32 bf16; do
        for threads in 1 2; do
            "$heed" train --pairs "$dir/train.tsv" --vocab "$dir/vocab" --preset tiny --d-model 32 \
                --d-ff 64 --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 \
                --steps 2 --quiet --precision "$precision" --threads "$threads" \
                --out "$dir/$set-$precision-$threads"
        done
        cmp "$dir/$set-$precision-1/model.safetensors" "$dir/$set-$precision-2/model.safetensors" ||
            fail "$set: training in $precision depends on the number of threads"
    done
    "$(dirname "$0")/batch_invariance.sh" "$heed" "$dir/$set-f32-1" "$dir/text" 4 ||
        fail "$set: a translation depends on its batch"
    "$heed" translate --quiet --to de 'A dog runs through the park.' 'Where is the train station?' \
        'She bought two books and a pen yesterday.' >"$dir/$set"
    cmp "$dir/$set" - <<'END' || fail "$set: the default model translates differently"
Ein Hund rennt durch den Park.
Wo ist der Bahnhof?
Sie hat gestern zwei Bücher und einen Stift gekauft.
END
done
[ "$failures" = 0 ]
