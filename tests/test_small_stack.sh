#!/bin/bash
# test_small_stack.sh - the program runs where threads have little stack, because kernels keep their
# buffers on the heap. `ulimit -s` limits the stacks of OpenMP's threads, too.
#
# usage: test_small_stack.sh PROGRAM
set -eu
heed=${1:?usage: test_small_stack.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
limit=128 # KiB

# A sanitizer needs more stack than the program does.
if nm "$heed" 2>/dev/null | grep -qE '__(asan|tsan)_init'; then limit=1024; fi

awk -v seed=5 -v lines=200 -v longest=30 -f "$(dirname "$0")/reversals.awk" >"$dir/train.tsv"
head -n 10 "$dir/train.tsv" >"$dir/valid.tsv"
cut -f 1 "$dir/valid.tsv" >"$dir/test"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"

small() {
    (
        ulimit -s "$limit"
        "$heed" "$@"
    ) || {
        echo "heed $1 with $limit KiB of stack: status $?"
        exit 1
    }
}
small train --pairs "$dir/train.tsv" --valid-pairs "$dir/valid.tsv" --vocab "$dir/vocab" \
    --preset tiny --steps 4 --valid-every 2 --save-every 2 --batch-tokens 512 --threads 2 --quiet \
    --out "$dir/model"
small train --pairs "$dir/train.tsv" --vocab "$dir/vocab" --precision bf16 --preset tiny --steps 3 \
    --batch-tokens 512 --threads 2 --quiet --out "$dir/bf16"
for weights in bf16 int8; do
    small quantize --weights "$weights" --out "$dir/small-$weights" "$dir/model"
    small translate --model "$dir/small-$weights" --threads 2 --quiet <"$dir/test" >"$dir/small"
    "$heed" translate --model "$dir/small-$weights" --threads 2 --quiet <"$dir/test" | cmp - "$dir/small"
done
small translate --model "$dir/model" --device ref --weights int8 --quiet "1 2 3" >/dev/null
small evaluate --model "$dir/model" --src "$dir/test" --ref "$dir/test" --quiet >/dev/null
small attention --model "$dir/model" --out "$dir/a.svg" "1 2 3" >/dev/null
small average --out "$dir/average" "$dir"/model/checkpoints/* >/dev/null
