#!/usr/bin/env bash
# The default model: English to and from German and Chinese, trained on one GPU, from the text that
# prepare.sh makes to a directory to ship.
#
#   recipes/default/run.sh [TEXT] [OUT]
#
# TEXT is what prepare.sh wrote (by default build/default), OUT gets everything else (by default TEXT
# itself). A first model translates English that lacks a translation; the model to ship learns from
# those pairs too, in both directions. What is there already is not made again, so that a stopped run
# goes on. HEED names the program, DEVICE the GPU, STEPS how long the model to ship learns.
# Paths are seen from the top of the checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
text=${1:-build/default}
out=${2:-$text}
heed=${HEED:-build/heed}
device=${DEVICE:-cuda:0}
if [ ! -f "$text/train.tsv" ]; then
    echo "default: no text in $text; run recipes/default/prepare.sh first" >&2
    exit 1
fi
mkdir -p "$out"

# ---- vocabulary: every pair once, and without its tag ----

if [ ! -f "$out/vocab.model" ]; then
    sed -n '/^>>en<</!s/^>>..<< //p' "$text/train.tsv" | LC_ALL=C sort -u >"$out/vocab.tsv"
    "$heed" vocab --size 24000 --tag '>>en<<' --tag '>>de<<' --tag '>>zh<<' --out "$out/vocab.model" \
        "$out/vocab.tsv"
    rm "$out/vocab.tsv"
fi

# train NAME PAIRS STEPS EVERY: 6 layers each side, 384 wide; 34 million parameters are as many bytes in
# int8. The mean of the last ten checkpoints, one every so many steps.
train() {
    "$heed" train --device "$device" --pairs "$2" --vocab "$out/vocab.model" --out "$out/$1" \
        --preset base --d-model 384 --d-ff 1536 --heads 6 --max-length 256 --precision bf16 \
        --dropout 0.2 --attention-dropout 0.1 --ff-dropout 0.1 --subword-dropout 0.1 \
        --batch-tokens 25000 --lr 0.0008 --warmup 4000 --clip 1 --steps "$3" \
        --save-every "$4" --keep 10 --seed 1 --resume
    "$heed" average --out "$out/$1.average" "$out/$1"/checkpoints/step-*
    "$heed" quantize --weights int8 --out "$out/$1.int8" "$out/$1.average"
}

# ---- a first model, and what it makes of English that lacks a translation ----

for language in de zh; do
    [ -f "$out/lack.$language.out" ] && continue
    [ -f "$out/first.int8/model.safetensors" ] || train first "$text/train.tsv" 24000 500
    "$heed" translate --device "$device" --model "$out/first.int8" <"$text/lack.$language.src" \
        >"$out/lack.$language.tmp"
    mv "$out/lack.$language.tmp" "$out/lack.$language.out"
done
shown() { # NAME: the lines without hidden sentences
    LC_ALL=C awk -v hidden="$text/hidden.txt" -v name="$1" -f recipes/default/hidden.awk
}
# both directions, without what is empty, or not translated, or far from as long
for language in de zh; do
    paste "$text/lack.$language.src" "$out/lack.$language.out" | LC_ALL=C awk -F '\t' '
        { english = substr($1, 8); n = length(english) + 20; m = length($2) + 20 }
        $2 == "" || $2 == english || n > 3 * m || m > 3 * n { next }
        { print; print ">>en<< " $2 "\t" english }' | shown "made.$language"
done >"$out/made.tsv"
cat "$text/train.tsv" "$out/made.tsv" | shuf --random-source=<(xz -c "$out/made.tsv") >"$out/all.tsv"

# ---- the check, and the model ----

if [ "$(shown check <"$out/all.tsv" | wc -l)" != "$(wc -l <"$out/all.tsv")" ]; then
    echo "default: a sentence of a test set is in $out/all.tsv" >&2
    exit 1
fi
train model "$out/all.tsv" "${STEPS:-70000}" 1000
for src in "$text"/dev.*.src; do
    name=$(basename "$src" .src)
    case $name in *zh) tokenize=zh ;; *) tokenize=13a ;; esac
    echo "$name: $("$heed" evaluate --quiet --device "$device" --model "$out/model.int8" \
        --src "$src" --ref "$text/$name.ref" --tokenize "$tokenize" | head -n 1 | cut -c 1-40)"
done
