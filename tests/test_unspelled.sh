#!/bin/sh
# test_unspelled.sh - what the vocabulary of the default model cannot spell is copied or left out,
# and said: emoji, markup, other scripts, rare characters, full-width ones.
#
# usage: test_unspelled.sh PROGRAM
set -eu
heed=${1:?usage: test_unspelled.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "$1"
    exit 1
}

# LANGUAGE TEXT PATTERN: the translation is one line, which the pattern matches as a whole
expect() {
    "$heed" translate --quiet --to "$1" -- "$2" >"$dir/out"
    grep -qEx -e "$3" "$dir/out" || fail "$2 in $1 is: $(cat "$dir/out"), expected $3"
}

# at the edges and between words
expect de 'Good morning 😀!' 'Guten Morgen 😀!'
expect de '😀 Hello' '😀 Hallo'
expect zh 'Good morning 😀!' '早上好 ?😀！'
expect en '早上好😀！' 'Good morning ?😀!'
expect de 'The word مرحبا means hello.' 'Das Wort مرحبا .*Hallo\.'
expect de 'I like <b>bold</b> text.' 'Ich .*<b>.*</b>.*\.'
expect de 'She went home 👨‍👩‍👧‍👦 🇩🇪.' 'Sie ging nach Hause 👨‍👩‍👧‍👦 🇩🇪\.'
expect de 'Click <a href="x.html">here</a>.' '.*<a href="x.html">.*hier</a>\.'
expect de 'My name is Lidia Zarębowa.' 'Mein Name ist Lidia Zarębowa\.'
expect de 'The file is in C:\Users\Tom.' '.*C:\\Users\\Tom\.'
# characters in another width, with their marks apart or traditional are read
expect en '我愛你。' 'I love you\.'
expect en '這個問題很難。' '.*(problem|question).*(difficult|hard).*'
expect en '我有２０本书。' '.*20 books.*'
expect de "I am in a cafe$(printf '\314\201')." 'Ich .* Café\.|Ich .* Kaffee\.'
# nothing that the vocabulary spells
for text in 'مرحبا بالعالم' '안녕하세요 세계' 'Привет' '😀' '<br/>' '龘' '👍🏽 🇩🇪'; do
    "$heed" translate --quiet --to de -- "$text" >"$dir/out"
    [ "$(cat "$dir/out")" = "$text" ] || fail "$text is translated: $(cat "$dir/out")"
done

# standard error reports it, unless --quiet is given
printf 'Hello.\nGood morning 😀!\n<b>Hi</b>\n' >"$dir/lines"
"$heed" translate --to de <"$dir/lines" >"$dir/out" 2>"$dir/said"
grep -q '^line 2: .*cannot spell 😀: copied$' "$dir/said" || fail "said: $(cat "$dir/said")"
grep -q '^line 3: .*cannot spell <b>, </b>: copied$' "$dir/said" || fail "said: $(cat "$dir/said")"
! grep -q 'line 1' "$dir/said" || fail "said: $(cat "$dir/said")"
"$heed" translate --quiet --to de <"$dir/lines" 2>&1 >"$dir/out" | grep . && fail 'not quiet'
"$heed" translate --to de --json --quiet <"$dir/lines" >"$dir/json"
grep -c '"flags": \["unspelled"\]' "$dir/json" | grep -qx 2 || fail "$(cat "$dir/json")"
grep -q '"line": 2,.*"copied": \["😀"\]' "$dir/json" || fail "$(cat "$dir/json")"
# many lines: the first few and how many more
i=0
while [ $i -lt 30 ]; do echo "😀 $i"; i=$((i + 1)); done >"$dir/many"
"$heed" translate --to de <"$dir/many" 2>"$dir/said" >"$dir/out"
[ "$(wc -l <"$dir/said")" -le 12 ] || fail "$(wc -l <"$dir/said") lines are said"
grep -q '^20 more lines' "$dir/said" || fail "said: $(tail -1 "$dir/said")"

# a line comes out the same whatever is around it
cat "$dir/lines" "$dir/many" | "$heed" translate --quiet --to de >"$dir/together"
while IFS= read -r line; do
    "$heed" translate --quiet --to de -- "$line"
done <"$dir/lines" >"$dir/alone"
head -3 "$dir/together" | cmp - "$dir/alone"

# words that are copied are linked to themselves
"$heed" translate --quiet --to de --json --align 'Good morning 😀!' >"$dir/json"
grep -q '"source_words": \["Good", "morning", "😀", "!"\], "target_words": \["Guten", "Morgen", "😀", "!"\], "alignment": \[\[0, 0\], \[1, 1\], \[2, 2\], \[3, 3\]\]' \
    "$dir/json" || fail "$(cat "$dir/json")"

# a translation that is given back has the same score, and pictures show what the model read
"$heed" translate --quiet --to de --json 'Good morning 😀!' >"$dir/json"
echo 'Good morning 😀!' >"$dir/src"
echo 'Guten Morgen 😀!' >"$dir/tgt"
score=$("$heed" translate --quiet --to de --score-only "$dir/tgt" <"$dir/src" | cut -d ' ' -f 1)
grep -q "\"score\": $score," "$dir/json" || fail "score $score, but $(cat "$dir/json")"
"$heed" attention --quiet --to de 'Good morning 😀!' >"$dir/picture"
! grep -q '0x' "$dir/picture" || fail "$(cat "$dir/picture")"
! "$heed" attention --quiet --to de '😀' 2>"$dir/said" || fail 'a picture of nothing'
grep -q 'cannot spell' "$dir/said" || fail "said: $(cat "$dir/said")"
# what is given is there, and what is banned is not
"$heed" translate --quiet --to de --prefix '😀 ' 'Good morning.' | grep -q '^😀' || fail 'no prefix'
"$heed" translate --quiet --to de --require '😀' 'Good morning.' | grep -q '😀' || fail 'not there'
! "$heed" translate --quiet --to de --ban '😀' 'Good morning 😀!' | grep -q '😀' || fail 'banned'
echo "what cannot be spelled is copied or left out, and said"
