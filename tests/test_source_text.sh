#!/bin/bash
# test_source_text.sh - what a line may hold besides words: a tab is white space, a tag that --to
# makes needless is text, and control characters never reach a terminal as orders.
#
# usage: test_source_text.sh PROGRAM
set -u
heed=${1:?usage: test_source_text.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "$1"
    failures=$((failures + 1))
}

# same TEXT OTHER OPTIONS...: both have one translation
same() {
    local a b text=$1 other=$2
    shift 2
    a=$(printf '%s\n' "$text" | "$heed" translate --quiet "$@")
    b=$(printf '%s\n' "$other" | "$heed" translate --quiet "$@")
    [ -n "$a" ] && [ "$a" = "$b" ] || fail "'$text': '$a', expected '$b' ($*)"
}

# white space inside a line
same $'Hello\tworld.' 'Hello world.' --to de
same $'The dog\vruns in\fthe park.' 'The dog runs in the park.' --to de
same $'>>de<<\tThe dog runs.' '>>de<< The dog runs.'
mapfile -t words < <(printf 'The dog\truns.\n' | "$heed" translate --quiet --to de --json --align |
    grep -o '"source_words": \[[^]]*\]')
[ "${words[0]}" = '"source_words": ["The", "dog", "runs", "."]' ] || fail "words: ${words[*]}"

# a tag is obeyed at the front of a line, where no option says the language
chinese() { grep -qP '[\x{4e00}-\x{9fff}]'; }
export LC_ALL=C.UTF-8
"$heed" translate --quiet '>>zh<< The dog runs in the park.' | chinese ||
    fail "a tag at the front is not obeyed"
"$heed" translate --quiet --to de '>>zh<< The dog runs in the park.' | chinese &&
    fail "a tag is obeyed in spite of --to"
"$heed" translate --quiet --to de 'The dog >>zh<< runs in the park.' | chinese &&
    fail "a tag inside a line is obeyed in spite of --to"
"$heed" translate --quiet --to de 'I love >>zh<<' | chinese &&
    fail "a tag at the end of a line is obeyed in spite of --to"
"$heed" translate --quiet '>>de<< I love >>zh<<' | chinese && fail "a tag inside a line is obeyed"
"$heed" translate --quiet --json --align --to de '>>zh<< The dog runs.' >"$dir/out" ||
    fail "a tag as text cannot be aligned"
grep -q '"source_words": \[">", ">", "zh", "<", "<", "The"' "$dir/out" ||
    fail "words of a tag: $(cat "$dir/out")"

[ "$failures" = 0 ] && echo "a line means what it says"
exit "$((failures > 0))"
