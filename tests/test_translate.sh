#!/bin/bash
# test_translate.sh - translation as a user types it: it does not depend on the lines around,
# constraints are met, and any bytes give as many lines as came in.
#
# usage: test_translate.sh PROGRAM
set -eu
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

awk -v seed=5 -v lines=3200 -v longest=10 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs"
head -n 3000 "$dir/pairs" >"$dir/train.tsv"
tail -n 200 "$dir/pairs" | cut -f 1 >"$dir/test"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"
"$heed" train --pairs "$dir/train.tsv" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 64 \
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 200 --warmup 50 \
    --lr 0.003 --seed 1 --quiet --out "$dir/model"
translate() {
    "$heed" translate --model "$dir/model" --quiet "$@"
}

# ---- a translation does not depend on the lines around it ----

"$(dirname "$0")/batch_invariance.sh" "$heed" "$dir/model" "$dir/test" || fail "lines meet"
translate <"$dir/test" >"$dir/plain"
translate --json <"$dir/test" | sed 's/.*"text": "\([^"]*\)".*/\1/' | cmp - "$dir/plain" ||
    fail "plain and JSON differ"
translate "$(head -n 1 "$dir/test")" | cmp - <(head -n 1 "$dir/plain") || fail "TEXT differs"

# ---- a smaller model translates as the large one does with such weights ----

for weights in bf16 int8; do
    "$heed" quantize --weights "$weights" --out "$dir/$weights" "$dir/model"
    translate --json --weights "$weights" <"$dir/test" >"$dir/want"
    "$heed" translate --quiet --model "$dir/$weights" --json <"$dir/test" | cmp - "$dir/want" ||
        fail "quantize: $weights differs"
done
large=$(wc -c <"$dir/model/model.safetensors") small=$(wc -c <"$dir/int8/model.safetensors")
# (the header with the tensors' names weighs something in so small a model)
[ $((small * 5)) -lt $((large * 2)) ] || fail "quantize: $small bytes of $large are not small"
"$heed" quantize --out "$dir/again" "$dir/int8" 2>"$dir/err" && fail "quantize: int8 twice"
grep -q "embed.weight is I8, expected F32" "$dir/err" ||
    fail "quantize: $(cat "$dir/err")"

# ---- scoring what was found gives the score it had ----

line=$(head -n 1 "$dir/test")
head -n 20 "$dir/test" >"$dir/few"
translate --json <"$dir/few" | sed -n 's/.*"score": \([^,]*\), "logp": \([^,]*\),.*/\1 \2/p' >"$dir/want"
translate <"$dir/few" >"$dir/out"
translate --score-only "$dir/out" <"$dir/few" | cut -d ' ' -f 1,2 | cmp - "$dir/want" ||
    fail "--score-only differs"

# a mark at the start, an empty source, lines left over
{ printf '\357\273\277'; cat "$dir/plain"; } | head -n 20 >"$dir/marked"
translate --score-only "$dir/marked" <"$dir/few" | cut -d ' ' -f 1,2 | cmp - "$dir/want" ||
    fail "--score-only: a byte order mark matters"
[ "$(echo | translate --score-only <(echo a) | cut -c 1)" = - ] || fail "--score-only: no source"
translate --score-only "$dir/plain" <"$dir/few" >/dev/null 2>"$dir/err" && fail "--score-only: more"
grep -q 'ends after 20 lines' "$dir/err" || fail "--score-only: $(cat "$dir/err")"
translate --score-only "$dir/few" "$line" 2>/dev/null && fail "--score-only with TEXT"

# ---- what is asked for is there ----

translate --prefix 'c b a' "$line" | grep -q '^c b a' || fail "--prefix is not at the start"
translate --require 'g h g' "$line" | grep -q 'g h g' || fail "--require is not there"
translate --ban a --ban b <"$dir/few" >"$dir/out"
{ [ "$(grep -c . "$dir/out")" -gt 10 ] && ! grep -q '[ab]' "$dir/out"; } || fail "--ban: $(cat "$dir/out")"
translate --max-length 3 --json <"$dir/few" >"$dir/out"
[ "$(grep -c '"tokens": [123],' "$dir/out")" = 20 ] || fail "--max-length: $(cat "$dir/out")"
translate --max-length 1 --json "$line" | grep -q '"flags": \["cut", "retried"\]' || fail "no flags"
translate --min-length 100 --max-length 100 a 2>"$dir/err" && fail "--min-length of the maximum"
grep -q 'min length is 100' "$dir/err" || fail "--min-length: $(cat "$dir/err")"
translate --json --align "a b c" | grep -q '"source_words": \["a", "b", "c"\]' || fail "--align"
translate --ban g --require 'g h' a 2>"$dir/err" && fail "what is banned is required"
grep -q '"g" is banned, but required "g h" has it' "$dir/err" || fail "--ban: $(cat "$dir/err")"
translate --max-length 3 --require 'a b c d' a 2>"$dir/err" && fail "--require does not fit"
grep -q 'needs [0-9]* tokens, expected at most 3' "$dir/err" || fail "--require: $(cat "$dir/err")"
# constraints that no line could meet are refused before any line is read
for wrong in '--ban b|--prefix|a b c' '--require|' '--require|a|--temperature|1' '--ban|a|--require|a'; do
    IFS='|' read -ra options <<<"${wrong/--ban b/--ban|b}"
    code=0
    translate "${options[@]}" <"$dir/few" >"$dir/out" 2>"$dir/err" || code=$?
    [ "$code" = 2 ] && [ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" = 1 ] ||
        fail "$wrong: exit $code, $(cat "$dir/err")"
done
translate --ban b --prefix 'a b c' a 2>"$dir/err" || true
grep -q '"b" is banned, but the prefix "a b c" has it' "$dir/err" || fail "--prefix: $(cat "$dir/err")"
translate --temperature 0.001 --beam 1 --ban a "$line" >"$dir/out"
translate --temperature 0.001 --beam 1 --ban a --top-p 0.5 "$line" | cmp - "$dir/out" ||
    fail "a low temperature does not draw the likeliest"
translate --to de "$line" 2>"$dir/err" && fail "--to takes a language that is not there"
grep -q -- "--to is 'de', expected none: this model translates to one language" "$dir/err" || fail "--to: $(cat "$dir/err")"

# ---- several languages ----

"$heed" vocab --size 284 --tag '>>de<<' --tag '>>zh<<' --quiet --out "$dir/tags" "$dir/train.tsv"
"$heed" train --pairs "$dir/train.tsv" --vocab "$dir/tags" --preset tiny --d-model 32 --d-ff 64 \
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 1 --quiet --out "$dir/several"
"$heed" translate --model "$dir/several" --to fr a 2>"$dir/err" && fail "--to takes any language"
grep -q -- "--to is 'fr', expected a language that this model translates to: de, zh" "$dir/err" ||
    fail "--to fr: $(cat "$dir/err")"
for command in translate attention; do
    "$heed" $command --model "$dir/several" a 2>"$dir/err" && fail "$command knows the language by itself"
    grep -q -- '--to is missing: this model translates to de, zh, and line 1' "$dir/err" ||
        fail "$command without --to: $(cat "$dir/err")"
done
for line in '>>fr<< a' '>> a << b' '>>'; do
    "$heed" translate --model "$dir/several" "$line" 2>"$dir/err" && fail "$line has a tag"
    grep -q 'de, zh, and line 1' "$dir/err" || fail "$line: $(cat "$dir/err")"
    code=0
    "$heed" translate --model "$dir/several" ">>zh<< a" "" "$line" ">>zh<< a" >"$dir/out" 2>"$dir/err" || code=$?
    grep -q 'line 3: it does not begin with the tag' "$dir/err" || fail "$line: $(cat "$dir/err")"
    [ "$code" = 1 ] || fail "$line behind a tag: exit $code"
    [ "$(sed -n 1p "$dir/out")" = "$(sed -n 4p "$dir/out")" ] && [ -z "$(sed -n 2,3p "$dir/out")" ] &&
        [ "$(wc -l <"$dir/out")" = 4 ] || fail "$line stops other lines: $(cat "$dir/out")"
done
printf '>>de<< a\n\n' | "$heed" translate --model "$dir/several" --quiet >"$dir/out"
"$heed" translate --model "$dir/several" --quiet --to de a "" | cmp - "$dir/out" || fail "a tag and --to differ"

# lines to different languages share a batch, and each is what it is by itself
awk '{ print (NR % 2 ? ">>de<< " : ">>zh<< ") $0 }' "$dir/test" | "$heed" translate --model "$dir/several" --quiet --json --align |
    sed 's/"source": ">>..<< /"source": "/' >"$dir/out"
for to in de zh; do "$heed" translate --model "$dir/several" --quiet --json --align --to $to <"$dir/test" >"$dir/$to"; done
cmp -s "$dir/de" "$dir/zh" && fail "the language makes no difference"
paste -d '\n' "$dir/de" "$dir/zh" | awk 'NR % 4 == 1 || NR % 4 == 0' | cut -d '}' -f 1 >"$dir/want"
cut -d '}' -f 1 "$dir/out" | cmp - "$dir/want" || fail "two languages in one call differ from one each"

# ---- a line that cannot be translated does not stop the others ----

# a text that is translated in pieces cannot have required phrases; the other lines are translated
# as before
long=$(awk 'BEGIN { for (i = 0; i < 120; i++) printf "a b c d e " }')
{ head -n 3 "$dir/test"; echo "$long"; sed -n 4,1100p "$dir/test"; echo "$long"; } >"$dir/odd"
code=0
translate --require 'a b' <"$dir/odd" >"$dir/out" 2>"$dir/err" || code=$?
[ "$code" = 1 ] || fail "two bad lines: exit $code"
grep -v "^$long" "$dir/odd" | translate --require 'a b' >"$dir/want"
sed -i '3a\
' "$dir/want"
echo >>"$dir/want"
cmp "$dir/out" "$dir/want" || fail "bad lines change others"
[ "$(sed 's/in [0-9]* pieces/in N pieces/' "$dir/err")" = "heed: line 4: it is translated in N pieces, expected one where something is required
heed: line 202: it is translated in N pieces, expected one where something is required
heed: 2 of 202 lines could not be translated" ] || fail "bad lines: $(cat "$dir/err")"
code=0
translate --require 'a b' --json "$long" a >"$dir/out" 2>/dev/null || code=$?
[ "$code" = 1 ] && head -n 1 "$dir/out" | grep -q '"translations": \[\], "flags": \[\], "error": "it is' ||
    fail "bad lines in JSON: exit $code, $(cat "$dir/out")"
sed -n 2p "$dir/out" | grep -q '"translations": \[{"text"' || fail "JSON behind a bad line: $(cat "$dir/out")"
code=0
translate --score-only <(printf '%s\na\n' "$(yes a | head -n 600 | tr '\n' ' ')") <<<$'a\na' >"$dir/out" 2>"$dir/err" || code=$?
[ "$code" = 1 ] && [ -z "$(head -n 1 "$dir/out")" ] && tail -n 1 "$dir/out" | grep -q '^-[0-9.]* -[0-9.]* 2$' ||
    fail "--score-only of a line that is too long: exit $code, $(cat "$dir/out" "$dir/err")"
code=0
"$heed" evaluate --quiet --model "$dir/model" --require 'a b' --src "$dir/odd" --ref "$dir/odd" >"$dir/out" 2>"$dir/err" || code=$?
[ "$code" = 1 ] && grep -q '^BLEU' "$dir/out" && grep -q '2 of 202 lines could not' "$dir/err" ||
    fail "evaluate with bad lines: exit $code, $(cat "$dir/out" "$dir/err")"

# ---- weights so large that scores are not numbers ----

cp -r "$dir/model" "$dir/huge"
header=$(head -c 8 "$dir/model/model.safetensors" | od -An -t u8 | tr -d ' ')
all=$(wc -c <"$dir/model/model.safetensors")
{ head -c $((8 + header)) "$dir/model/model.safetensors" | sed 's/"crc32"/"crc__"/'
    head -c $((all - 8 - header)) /dev/zero | tr '\0' '\176'; } >"$dir/huge/model.safetensors"
for options in '' --json '--nbest 2' '--temperature 1' '--json --align'; do
    code=0
    # shellcheck disable=SC2086 # the options are several words
    "$heed" translate --model "$dir/huge" $options "a b" "" >"$dir/out" 2>"$dir/err" || code=$?
    [ "$code" = 1 ] && grep -q 'line 1: .*finite' "$dir/err" && ! grep -qi 'nan\|inf[^o]' "$dir/out" ||
        fail "huge weights, $options: exit $code, $(cat "$dir/out" "$dir/err")"
done
"$heed" translate --model "$dir/huge" --score-only <(echo a) <<<a >"$dir/out" 2>"$dir/err" && fail "huge scores"
[ -z "$(cat "$dir/out")" ] || fail "huge weights, --score-only: $(cat "$dir/out")"
"$heed" attention --model "$dir/huge" a >"$dir/out" 2>"$dir/err" && fail "attention of huge weights"
grep -q finite "$dir/err" || fail "attention of huge weights: $(cat "$dir/err")"

# ---- what was looked at ----

"$heed" attention --model "$dir/model" --quiet "a b c" >"$dir/out"
grep -q 'b$' "$dir/out" || fail "attention: $(cat "$dir/out")"
"$heed" attention --model "$dir/model" --beam 1 --temperature 1 --seed 3 "a b c" >"$dir/out" || fail "attention: drawn"
"$heed" attention --model "$dir/model" --out "$dir/picture.svg" --layer 1 --head 2 "a <b> & c"
head -c 4 "$dir/picture.svg" | grep -q '<svg' || fail "attention: no SVG"
tail -n 1 "$dir/picture.svg" | grep -q '</svg>' || fail "attention: the SVG has no end"
grep -q 'layer 1 of 1, head 2 of 2' "$dir/picture.svg" || fail "attention: not what was asked for"
"$heed" attention --model "$dir/model" --head 3 a 2>"$dir/err" && fail "attention: head 3 of 2"
grep -q -- '--head is 3, expected 1 to 2' "$dir/err" || fail "attention: $(cat "$dir/err")"
"$heed" attention --model "$dir/model" " " 2>"$dir/err" && fail "attention: of nothing"
grep -q 'the text is empty' "$dir/err" || fail "attention: $(cat "$dir/err")"

# ---- white space around a text is not translated ----

head -n 20 "$dir/test" | sed "s/.*/ \t&  $(printf '\343\200\200')/" | translate | cmp - <(head -n 20 "$dir/plain") ||
    fail "white space around a text changes its translation"

# ---- blank lines stay empty ----

{ head -n 3 "$dir/test"; printf '\n \t\343\200\200 \n'; } | translate >"$dir/out"
{ head -n 3 "$dir/plain"; printf '\n\n'; } | cmp - "$dir/out" || fail "blank lines do not stay empty"

# ---- evaluate is translate and score ----

"$heed" score --ref "$dir/test" <"$dir/plain" >"$dir/want"
"$heed" evaluate --quiet --model "$dir/model" --src "$dir/test" --ref "$dir/test" >"$dir/out"
head -n 2 "$dir/out" | cmp - "$dir/want" || fail "evaluate differs from translate and score"
grep -Eq '^200 sentences  [0-9.]+ seconds  [0-9,]+ output tokens/s$' "$dir/out" ||
    fail "evaluate: no line with its speed"

# ---- whatever comes in ----

LC_ALL=C awk 'BEGIN {
    srand(9)
    for (i = 0; i < 5000; i++) {
        n = int(rand() * 12)
        for (k = 0; k < n; k++) {
            c = int(rand() * 256)
            printf "%c", c == 10 ? 32 : c
        }
        printf "\n"
    }
}' >"$dir/bytes"
"$heed" translate --model "$dir/model" --beam 1 <"$dir/bytes" >"$dir/out" 2>"$dir/err" ||
    fail "random bytes: failed: $(cat "$dir/err")"
[ "$(wc -l <"$dir/out")" = 5000 ] || fail "random bytes: $(wc -l <"$dir/out") lines for 5000"
grep -Eq '^[0-9,]+ lines with invalid UTF-8 were mended' "$dir/err" || fail "nothing was mended"
printf 'a \377\nb\n\001c\n' | "$heed" translate --model "$dir/model" >"$dir/out" 2>"$dir/err"
[ "$(cat "$dir/err")" = '1 line with invalid UTF-8 was mended; 1 line with control characters' ] ||
    fail "odd text is reported as: $(cat "$dir/err")"
translate --json $'"\\\t\x01\xff' >"$dir/out"
grep -qF '"source": "\"\\\t\u0001'$'\xef\xbf\xbd''"' "$dir/out" || fail "JSON: $(cat "$dir/out")"

# 200,000 characters: with sentences, and with none
for unit in 'a b c d e f g h i. ' 'a b c d e f g h i '; do
    awk -v unit="$unit" 'BEGIN { while (n < 200000) { printf "%s", unit; n += length(unit) }
        print "" }' >"$dir/long"
    # a sanitizer reserves more addresses than the limit
    (nm "$heed" | grep -q __asan_init || nm "$heed" | grep -q __tsan_init || ulimit -v 2000000
        translate --beam 1 --threads 2 <"$dir/long") >"$dir/out" || fail "a long line failed"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "a long line: $(wc -l <"$dir/out") lines for 1"
done

exit "$((failures > 0))"
