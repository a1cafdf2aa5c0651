#!/usr/bin/env bash
# test_pictures.sh - heed attention draws: every kind and drawing in every format, in short and long,
# English, German and Chinese sentences; and it refuses what it cannot draw in one sentence.
set -u
heed=${1:?usage: test_pictures.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# refused CODE SENTENCE ARGUMENT...: heed attention exits with CODE and says SENTENCE, and nothing else
refused() {
    local want=$1 sentence=$2 code=0
    shift 2
    "$heed" attention --quiet "$@" >"$dir/out" 2>"$dir/err" || code=$?
    [ "$code" = "$want" ] || fail "attention $*: exit $code, expected $want"
    grep -qF -- "$sentence" "$dir/err" || fail "attention $*: $(cat "$dir/err"), expected $sentence"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "attention $*: not one sentence"
    [ ! -s "$dir/out" ] || fail "attention $*: printed something"
}

short='A dog runs.'
long="Although the committee had repeatedly promised that the report on the old railway bridges would \
be published before the end of the summer, the members of the parliament learned only last week from \
a short article in a local newspaper that nobody had even begun to inspect the most important of them."
german='Das Tier hat die Straße nicht überquert, weil es zu müde war.'
chinese='那只动物没有过马路，因为它太累了。'

# ---- formats ----

draw() {
    "$heed" attention --quiet "$@" || fail "attention $*"
}

n=0
for text in "de:$short" "zh:$long" "en:$german" "en:$chinese"; do
    for drawing in "--kind encoder" "--kind decoder --head 1" "--kind cross --lines" "--lines --head 2" \
        "--all" "--all --kind encoder"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        draw --to "${text%%:*}" $drawing --out "$dir/$n.svg" "${text#*:}"
        tail -n 1 "$dir/$n.svg" | grep -q '</svg>' || fail "$drawing: the SVG of $text has no end"
    done
done
if command -v xmllint >/dev/null; then
    xmllint --noout "$dir"/*.svg || fail "an SVG is no XML"
fi
grep -q '<text[^>]*>Straße</text>' "$dir"/*.svg || fail "a word is missing"
grep -q 'self-attention of the decoder, layer 5 of 6, head 1 of 6' "$dir"/*.svg || fail "a title is missing"

draw --to de --out "$dir/page.html" "$short"
grep -q '"show":{"kind":"cross","layer":5,"head":0,"drawing":"lines"}' "$dir/page.html" || fail "the page's first view"
draw --to de --json "$short" >"$dir/a.json"
draw --to de --out "$dir/b.json" "$short"
cmp "$dir/a.json" "$dir/b.json" || fail "--json and --out x.json differ"
grep -q '^"decoder":{"layers":6,"heads":6,"queries":\["<s>"' "$dir/a.json" || fail "no begin mark in the JSON"

if "$heed" attention --quiet --to de --out "$dir/a.png" "$short" 2>"$dir/err"; then
    draw --to de --theme dark --out "$dir/b.png" "$short"
    [ "$(head -c 4 "$dir/a.png" | tail -c 3)" = PNG ] || fail "a.png is no PNG"
    cmp -s "$dir/a.png" "$dir/b.png" && fail "--theme dark has no effect"
elif grep -q 'a PNG needs librsvg' "$dir/err"; then
    echo "skipped: $(cat "$dir/err")"
else
    fail "PNG: $(cat "$dir/err")"
fi

# ---- colours of the terminal ----

escapes() {
    grep -c "$(printf '\033')\[48;$1" "$dir/out"
}
export TERM=xterm-256color
unset NO_COLOR COLORTERM
for how in "--terminal" "--terminal --all"; do
    # shellcheck disable=SC2086
    draw --to de $how "$short" >"$dir/out"
    [ "$(escapes 5)" -gt 0 ] || fail "$how: no 256 colours"
    # shellcheck disable=SC2086
    COLORTERM=truecolor draw --to de $how "$short" >"$dir/out"
    [ "$(escapes 2)" -gt 0 ] || fail "$how: no true colours"
    # shellcheck disable=SC2086
    NO_COLOR=1 COLORTERM=truecolor draw --to de $how "$short" >"$dir/out"
    grep -q "$(printf '\033')" "$dir/out" && fail "$how: colours with NO_COLOR"
    grep -q '[░▒▓█]' "$dir/out" || fail "$how: no shades"
done
COLORTERM=truecolor draw --to de "$short" >"$dir/out"
grep -q "$(printf '\033')" "$dir/out" && fail "colours in a pipe"
draw --to de --terminal --out "$dir/both.svg" "$short" >"$dir/out"
if [ ! -s "$dir/both.svg" ] || [ ! -s "$dir/out" ]; then fail "--terminal with --out: not both"; fi

# ---- what cannot be drawn ----

refused 2 "--kind is 'encodr', expected one of encoder|decoder|cross; did you mean encoder?" --to de --kind encodr "$short"
refused 2 '--layer is 7, expected 1 to 6' --to de --layer 7 "$short"
refused 2 '--head is 9, expected 1 to 6' --to de --head 9 --kind encoder "$short"
refused 2 "--layer is 'two', expected a whole number" --to de --layer two "$short"
refused 2 "--out is $dir/a.jpg, expected a name that ends in .svg, .png, .html or .json" --to de --out "$dir/a.jpg" "$short"
refused 2 "--out is .svg, expected" --to de --out .svg "$short"
refused 2 '--lines needs --out FILE' --to de --lines "$short"
refused 2 '--all shows every layer and head: --head has no effect' --to de --all --head 2 "$short"
refused 2 '--all and --lines are two pictures' --to de --all --lines --out "$dir/a.svg" "$short"
refused 2 '--json and --terminal both print' --to de --json --terminal "$short"
refused 2 'JSON has the numbers of every kind, layer and head: --layer has no effect' --to de --layer 2 --json "$short"
refused 2 'JSON has the numbers of every kind, layer and head: --kind has no effect' --to de --kind cross --out "$dir/c.json" "$short"
refused 2 '--theme is for a .png' --to de --theme dark --out "$dir/a.svg" "$short"
refused 2 'attention takes one TEXT, found 2' --to de A dog
refused 2 'attention needs at least 1 TEXT' --to de
refused 1 'the text is empty' --to de ''
refused 1 'the text is empty' --to de '   '
refused 1 'tokens and is translated in 2 pieces, expected one piece: give one sentence' --to de "$long $long"
refused 1 "$dir/no-model" --model "$dir/no-model" a
[ -e "$dir/a.jpg" ] && fail "a file that was refused was written"

[ "$failures" = 0 ] || exit 1
echo "$n SVG pictures, JSON, PNG and terminal colours as expected"
