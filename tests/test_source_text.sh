#!/bin/bash
# test_source_text.sh - what a line may contain besides words: a tab is white space, a tag is text
# where --to gives the language, and control characters are never sent to a terminal.
#
# usage: test_source_text.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

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

# a tag at the front of a line chooses the language, unless --to does
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

# control characters: ESC, DEL and CSI, which is one character beyond ASCII
odd=$'\033[31m\177\302\23331m'
for i in $(seq 1 100); do echo "a$odd dog runs $i"; done >"$dir/text"
"$heed" vocab --size 290 --quiet --out "$dir/vocab" "$dir/text" &&
    "$heed" train --vocab "$dir/vocab" --preset tiny --d-model 16 --d-ff 16 --heads 2 --quiet \
        --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --steps 2 --src "$dir/text" \
        --tgt "$dir/text" --out "$dir/model" || fail "no model"
controls() { tr -d '\n\r\t' | LC_ALL=C grep -qP '[\x00-\x1f\x7f]|\xc2[\x80-\x9f]'; }
"$heed" attention --model "$dir/model" --quiet "a$odd dog" >"$dir/out" || fail "attention failed"
controls <"$dir/out" && fail "heed attention: control characters in a picture"
for command in "score --ref $dir/no$odd" "translate --model $dir/no$odd" "vocab --s$odd" "$odd" \
    "vocab --size $odd" "translate --to $odd x" "vocab --size 300 --tag a$odd --out $dir/v $dir/text"; do
    "$heed" $command </dev/null >"$dir/out" 2>"$dir/err"
    controls <"$dir/err" && fail "control characters in $(cat -v "$dir/err")"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "no sentence for $command" | cat -v
done
"$heed" translate --model "$dir/model" --quiet --prefix "a$odd" "a dog" >"$dir/out"
LC_ALL=C grep -qaF "$odd" "$dir/out" || fail "a translation for a file is changed"
if command -v script >/dev/null; then
    script -qec "'$heed' translate --model '$dir/model' --quiet --prefix 'a$odd' 'a dog'" /dev/null \
        </dev/null >"$dir/out"
    controls <"$dir/out" && fail "control characters on a terminal: $(cat -v "$dir/out")"
else
    echo "skipped: what a terminal gets (needs script)"
fi

[ "$failures" = 0 ] && echo "a line means what it says"
exit "$((failures > 0))"
