#!/bin/bash
# test_cluster_translate.sh - translation and evaluation by several processes under mpirun: the
# same bytes as by one, on standard output and on standard error.
#
# usage: test_cluster_translate.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
# shellcheck source=tests/mpi.sh
. "$(dirname "$0")/mpi.sh"

awk -v seed=1 -v lines=2500 -v longest=9 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv" || exit 1
"$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 16 --heads 2 --d-ff 16 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 20 --out "$dir/model" --quiet || exit 1
cut -f 1 "$dir/pairs.tsv" >"$dir/src"
cut -f 2 "$dir/pairs.tsv" >"$dir/ref"
# lines that are empty, not UTF-8, beyond the vocabulary, or long
{
    head -n 1000 "$dir/src"
    printf '\n\377\376 x\n\360\237\230\200 a b\n'
    head -n 60 "$dir/src" | tr '\n' ' '
    echo
    tail -n 1500 "$dir/src"
} >"$dir/odd"

# alike N INPUT ARGUMENTS...: N ranks print what one process prints
alike() {
    local n=$1 input=$2
    shift 2
    "$heed" "$@" --threads 1 <"$input" >"$dir/one.out" 2>"$dir/one.err" || fail "heed $*: failed"
    timeout -k 5 100 mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$n" "$heed" "$@" --threads 1 \
        <"$input" >"$dir/out" 2>"$dir/err" || fail "$n ranks: heed $*: failed"
    cmp -s "$dir/one.out" "$dir/out" || fail "$n ranks: heed $*: other output"
    cmp -s "$dir/one.err" "$dir/err" || fail "$n ranks: heed $*: other messages"
}

short="--model $dir/model --max-length 12"
# shellcheck disable=SC2086 # one word an option
{
    for n in 2 3 8; do alike $n "$dir/odd" translate $short --beam 2; done
    head -n 700 "$dir/odd" >"$dir/few"
    alike 2 "$dir/few" translate $short --beam 3 --nbest 2 --json --align
    alike 2 "$dir/few" translate $short --beam 2 --temperature 1 --seed 3
    alike 4 /dev/null translate $short
    alike 2 "$dir/src" translate --model "$dir/model" --score-only "$dir/ref"
    alike 2 /dev/null translate $short "a b c" "d e"
    head -n 600 "$dir/src" >"$dir/few.src"
    head -n 600 "$dir/ref" >"$dir/few.ref"
    ranks 2 "$heed" evaluate $short --threads 1 --src "$dir/few.src" --ref "$dir/few.ref" --out "$dir/two.hyp" |
        head -n 2 >"$dir/two.score" || fail "evaluate with 2 ranks"
    "$heed" evaluate $short --src "$dir/few.src" --ref "$dir/few.ref" --out "$dir/one.hyp" | head -n 2 >"$dir/one.score"
    cmp -s "$dir/one.hyp" "$dir/two.hyp" || fail "evaluate: other translations"
    cmp -s "$dir/one.score" "$dir/two.score" || fail "evaluate: other scores"
}

# refused PATTERN ARGUMENTS...: fails within ten seconds, with one sentence of ours
refused() {
    local pattern=$1
    shift
    if timeout -k 5 10 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 "$heed" "$@" <"$dir/src" \
        >"$dir/out" 2>"$dir/err" || ! grep -Eq -- "$pattern" "$dir/err" ||
        [ "$(grep -c '^heed: ' "$dir/err")" != 1 ]; then
        fail "3 ranks: heed $*: expected one sentence with '$pattern'"
    fi
}
refused "no-such-model" translate --model "$dir/no-such-model"
refused "few.ref ends after 600 lines" translate --model "$dir/model" --score-only "$dir/few.ref"
refused "no-such-file" evaluate --model "$dir/model" --src "$dir/no-such-file" --ref "$dir/ref"

exit $((failures > 0))
