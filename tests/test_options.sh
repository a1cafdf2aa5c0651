#!/bin/bash
# test_options.sh - what translate, evaluate and attention print and take: n best in Moses' form, links
# between words in Pharaoh's, translations kept by evaluate; options that would have no effect and
# arguments that name the wrong thing get a sentence.
#
# usage: test_options.sh PROGRAM
set -eu
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

# refused CODE SENTENCE ARGUMENTS...: exits with CODE, prints nothing but one sentence that has SENTENCE
refused() {
    local want=$1 sentence=$2 code=0
    shift 2
    "$heed" "$@" </dev/null >"$dir/out" 2>"$dir/err" || code=$?
    [ "$code" = "$want" ] || fail "$*: exit $code, expected $want: $(cat "$dir/err")"
    grep -qF -- "$sentence" "$dir/err" || fail "$*: says \"$(cat "$dir/err")\", expected \"$sentence\""
    [ "$(wc -l <"$dir/err")" = 1 ] && [ ! -s "$dir/out" ] || fail "$*: more than a sentence: $(cat "$dir/out" "$dir/err")"
}

awk -v seed=5 -v lines=400 -v longest=8 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs"
cut -f 1 "$dir/pairs" | head -n 20 >"$dir/src"
cut -f 2 "$dir/pairs" | head -n 20 >"$dir/ref"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/pairs"
"$heed" train --pairs "$dir/pairs" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 64 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 60 --warmup 20 --lr 0.005 --seed 1 \
    --quiet --out "$dir/run"
model=$dir/run
translate() {
    "$heed" translate --model "$model" --quiet "$@"
}

# ---- n best: Moses' form, numbers from 0 ----

{ head -n 2 "$dir/src"; echo; tail -n 2 "$dir/src"; } >"$dir/few"
translate --nbest 3 <"$dir/few" >"$dir/out"
grep -Evq '^[0-4] \|\|\| [^|]* \|\|\| logp= -?[0-9.e-]+ tokens= [0-9]+ \|\|\| -?[0-9.e-]+$' "$dir/out" &&
    fail "n best: $(cat "$dir/out")"
translate --nbest 3 --json <"$dir/few" | awk '{
    line = $0
    n = gsub(/\{"text": /, "\n", line)
    split(line, part, "\n")
    for (k = 2; k <= n + 1; k++) {
        match(part[k], /^"[^"]*"/); text = substr(part[k], 2, RLENGTH - 2)
        match(part[k], /"score": [^,]*/); score = substr(part[k], RSTART + 9, RLENGTH - 9)
        match(part[k], /"logp": [^,]*/); logp = substr(part[k], RSTART + 8, RLENGTH - 8)
        match(part[k], /"tokens": [0-9]*/); tokens = substr(part[k], RSTART + 10, RLENGTH - 10)
        print NR - 1 " ||| " text " ||| logp= " logp " tokens= " tokens " ||| " score
    }
}' | cmp - "$dir/out" || fail "n best differs from the JSON: $(cat "$dir/out")"
[ "$(grep -c '^2 ' "$dir/out")" = 1 ] || fail "an empty line has one translation: $(cat "$dir/out")"
translate <"$dir/few" >"$dir/best"
awk -F ' \\|\\|\\| ' '!seen[$1]++ { print $2 }' "$dir/out" | cmp - "$dir/best" || fail "not best first"

# ---- links between words: Pharaoh's form ----

translate --align <"$dir/few" >"$dir/out"
sed 's/ ||| .*//' "$dir/out" | cmp - "$dir/best" || fail "--align changes translations: $(cat "$dir/out")"
sed 's/.* ||| //; s/ |||$//' "$dir/out" >"$dir/links"
translate --align --json <"$dir/few" | sed 's/.*"alignment": \[\(.*\)\], "flags".*/\1/; s/\], \[/ /g; s/[][]//g; s/, /-/g' |
    cmp - "$dir/links" || fail "links differ from the JSON: $(cat "$dir/out")"
grep -q '^[0-9]*-[0-9]*\( [0-9]*-[0-9]*\)*$' "$dir/links" || fail "links: $(cat "$dir/links")"
translate --align --nbest 2 <"$dir/few" >"$dir/out"
grep -Eq '^0 \|\|\| .* \|\|\| -[0-9.]+ \|\|\| [0-9]+-[0-9]+' "$dir/out" || fail "--align with --nbest: $(cat "$dir/out")"

# ---- evaluate keeps its translations ----

translate <"$dir/src" >"$dir/want"
"$heed" evaluate --quiet --model "$model" --src "$dir/src" --ref "$dir/ref" --out "$dir/kept" >"$dir/out"
cmp "$dir/kept" "$dir/want" || fail "evaluate --out differs from translate"
head -n 2 "$dir/out" | cmp - <("$heed" score --ref "$dir/ref" <"$dir/kept") || fail "evaluate --out: other scores"
"$heed" evaluate --quiet --model "$model" --src "$dir/src" --ref "$dir/ref" --out /dev/null >/dev/null ||
    fail "evaluate --out /dev/null"
ln "$dir/src" "$dir/link"
for out in "$dir/src" "$dir/link" "$dir/../${dir##*/}/ref"; do
    refused 2 "is read" evaluate --model "$model" --src "$dir/src" --ref "$dir/ref" --out "$out"
done
cmp "$dir/src" "$dir/link" || fail "evaluate wrote over its source"
refused 1 "$dir/none/kept" evaluate --model "$model" --src "$dir/src" --ref "$dir/ref" --out "$dir/none/kept"
refused 1 "/dev/full" evaluate --quiet --model "$model" --src "$dir/src" --ref "$dir/ref" --out /dev/full
[ -z "$(find "$dir" -name '*.tmp')" ] || fail "evaluate left $(find "$dir" -name '*.tmp')"

# ---- options without effect ----

for option in '--top-k 4' '--top-p 0.5' '--seed 7' '--seed 0'; do
    for command in "translate --model $model a" "evaluate --model $model --src $dir/src --ref $dir/ref" \
        "attention --model $model a"; do
        # shellcheck disable=SC2086 # several words
        refused 2 "${option% *} needs --temperature" $command $option
    done
done
for option in '--beam 4' '--nbest 1' '--min-length 1' '--max-length 9' '--no-repeat-ngram 2' '--prefix a' \
    '--require a' '--ban a' '--temperature 1'; do
    # shellcheck disable=SC2086
    refused 2 "with --score-only nothing is searched for: ${option% *} has no effect" translate --model "$model" \
        --score-only "$dir/ref" $option
done
for option in '--beam 4' '--min-length 1' '--max-length 9' '--no-repeat-ngram 2' '--temperature 1'; do
    # shellcheck disable=SC2086
    refused 2 "with --translation nothing is searched for: ${option% *} has no effect" attention --model "$model" \
        --translation a $option a
done
refused 2 '--interactive' translate --model "$model" --interactive a
refused 2 'min length is 100, expected at least 0 and less than the max length of 100' translate --model "$model" \
    --min-length 100 --max-length 100
refused 2 '--align' translate --model "$model" --score-only "$dir/ref" --align
refused 2 '--nbest is 5, expected at most --beam, which is 4' translate --model "$model" --nbest 5 a
for option in '--prefix a' '--require a' '--ban a' '--batch-tokens 100' '--nbest 2'; do
    # shellcheck disable=SC2086
    refused 2 "attention has no option ${option% *}" attention --model "$model" $option a
    "$heed" attention --help | grep -q -- "^  ${option% *} " && fail "attention --help lists ${option% *}"
done

# ---- the wrong thing ----

mkdir "$dir/empty"
echo text >"$dir/file"
for command in "translate a" "attention a" "evaluate --src $dir/src --ref $dir/ref"; do
    # shellcheck disable=SC2086
    {
        refused 1 "$dir/none is no model: there is no such directory" $command --model "$dir/none"
        refused 1 "$dir/file is no model: it is a file, expected the directory" $command --model "$dir/file"
        refused 1 "$dir/run/model.safetensors is no model: it is a file, expected the directory $dir/run" \
            $command --model "$dir/run/model.safetensors"
        refused 1 "$dir/empty is no model: it has no config.json" $command --model "$dir/empty"
        refused 1 "device is 'gpu', expected 'cpu', 'ref' or 'cuda:N'" $command --model "$model" --device gpu
        HEED_DEVICE=gpu refused 1 "HEED_DEVICE: device is 'gpu'" $command --model "$model"
        HEED_DEVICE=gpu refused 1 "heed: device is 'abacus'" $command --model "$model" --device abacus
        refused 1 "--to is 'de'" $command --model "$model" --to de
        refused 2 "--model is ''" $command --model ''
    }
done
HEED_DEVICE='' HEED_ISA=mmx refused 1 "HEED_ISA: device is 'cpu:mmx', expected" --version
HEED_DEVICE='' HEED_ISA=mmx refused 1 "HEED_ISA: device is 'cpu:mmx', expected" translate --model "$model" a
HEED_DEVICE=gpu HEED_ISA=mmx refused 1 "HEED_DEVICE: device is 'gpu'" translate --model "$model" a
HEED_DEVICE=gpu refused 1 "HEED_DEVICE: device is 'gpu'" train --pairs "$dir/pairs" --vocab "$dir/vocab" --out "$dir/new"
for file in config.json vocab.model model.safetensors; do
    cp -r "$model" "$dir/part"
    rm "$dir/part/$file"
    refused 1 "$dir/part is no model: it has no $file" translate --model "$dir/part" a
    mkdir "$dir/part/$file"
    refused 1 "$dir/part/$file" translate --model "$dir/part" a
    rm -r "$dir/part"
done
mkdir "$dir/fresh"
cp -r "$model/checkpoints" "$dir/fresh/" 2>/dev/null || mkdir -p "$dir/fresh/checkpoints/step-1"
refused 1 "$dir/fresh is no model: it has no config.json" translate --model "$dir/fresh" a
: | translate >"$dir/out" 2>"$dir/err" || fail "empty input: $(cat "$dir/err")"
[ ! -s "$dir/out" ] || fail "empty input: $(cat "$dir/out")"
: >"$dir/void"
refused 1 "nothing to translate: $dir/void has no lines" evaluate --model "$model" --src "$dir/void" --ref "$dir/void"
# a file in the place of a text
translate "$dir/src" >"$dir/out" 2>"$dir/err" || fail "a path as TEXT failed"
"$heed" translate --model "$model" "$dir/src" 2>&1 >/dev/null | grep -qF "$dir/src is a file, and its name was translated; what is in it is translated from standard input: < $dir/src" ||
    fail "a path as TEXT is taken without a word"

# ---- standard output that cannot be written ----

for command in "translate" "translate --json" "translate --nbest 2"; do
    code=0
    # shellcheck disable=SC2086
    "$heed" $command --model "$model" <"$dir/src" >/dev/full 2>"$dir/err" || code=$?
    [ "$code" = 1 ] && grep -q 'cannot write to standard output: No space' "$dir/err" ||
        fail "$command >/dev/full: exit $code, $(cat "$dir/err")"
done
for _ in {1..160}; do cat "$dir/src"; done >"$dir/much"
{ "$heed" translate --model "$model" --beam 1 <"$dir/much" 2>"$dir/err" || echo $? >"$dir/code"; } | head -n 1 >/dev/null
[ "$(cat "$dir/code" 2>/dev/null)" = 1 ] && [ "$(wc -l <"$dir/err")" = 1 ] || fail "a closed pipe: $(cat "$dir/code" "$dir/err")"
mkdir "$dir/folder.svg"
ln -s /dev/full "$dir/full.svg"
for file in folder full; do
    refused 1 "cannot write $dir/$file.svg" attention --model "$model" --out "$dir/$file.svg" a
done

exit "$((failures > 0))"
