#!/bin/bash
# test_neighbours_cli.sh - `heed neighbours` with the default model, as a user types it.
#
# usage: test_neighbours_cli.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

# expect WORD ARGUMENTS...: a line of the output ends in the word
expect() {
    local word=$1
    shift
    accepts neighbours "$@"
    grep -q " $word\$" "$dir/out" || fail "heed neighbours $*: $word is not among the neighbours"
}
expect Hunde Hund
expect Hund 狗
expect cats dogs - dog + cat
expect came went - go + come
if grep -Eq ' (went|go|come)$' <(tail -n +2 "$dir/out"); then
    fail "a word of the sum is among its neighbours"
fi
accepts neighbours --count 3 Hund dog
[ "$(wc -l <"$dir/out")" = 8 ] || fail "--count 3 of two words are not 8 lines"
accepts neighbours Weihnachtsbaumschmuck
grep -q 'is the mean of [2-9] pieces' "$dir/err" || fail "it is not said that a word has pieces"
accepts neighbours --json Hund
grep -q '"cosine": ' "$dir/out" || fail "--json has no cosine"
accepts neighbours --map --out "$dir/words.svg" dog cat Hund Katze 狗 猫
grep -q '>Katze<' "$dir/words.svg" || fail "the map lacks a word"
accepts neighbours --map --side target dog cat Hund
grep -q 'of the variance' "$dir/out" || fail "the map in the terminal does not say the variance"

refuses 2 'needs at least 1 WORD' neighbours
refuses 2 'do not take turns' neighbours king - + man
refuses 2 'do not take turns' neighbours king man + woman
refuses 2 'needs --map' neighbours --out words.svg king
refuses 2 'found a sign' neighbours --map king - man + woman
refuses 2 'expected a name that ends in' neighbours --map --out words.txt a b c
refuses 1 'expected 3 to 1000' neighbours --map dog cat
refuses 1 "cannot spell '🦉'" neighbours 🦉
refuses 1 "a word is ' '" neighbours ' '
refuses 1 'nowhere' neighbours --model nowhere dog
exit $((failures > 0))
