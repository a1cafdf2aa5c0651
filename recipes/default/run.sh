#!/usr/bin/env bash
# The default model: English to and from German and Chinese, trained on one GPU, from the text that
# prepare.sh makes to a directory to ship.
#
#   recipes/default/run.sh [TEXT] [OUT]
#
# TEXT is what prepare.sh wrote (by default build/default); OUT gets vocab.model, model/, average/ and
# int8/ (by default TEXT itself). HEED names the program, DEVICE the GPU, STEPS the optimizer steps.
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
if [ ! -f "$out/vocab.model" ]; then
    # every pair once, and without its tag
    sed 's/^>>..<< //' "$text/train.tsv" | awk 'NR % 2 == 1' | LC_ALL=C sort -u >"$out/vocab.tsv"
    "$heed" vocab --size 24000 --tag '>>en<<' --tag '>>de<<' --tag '>>zh<<' --out "$out/vocab.model" \
        "$out/vocab.tsv"
    rm "$out/vocab.tsv"
fi
# 6 layers each side, 384 wide: 34 million parameters are as many bytes in int8.
"$heed" train --device "$device" --pairs "$text/train.tsv" --vocab "$out/vocab.model" \
    --out "$out/model" --preset base --d-model 384 --d-ff 1536 --heads 6 --precision bf16 \
    --dropout 0.1 --attention-dropout 0.1 --ff-dropout 0.1 --max-length 256 \
    --batch-tokens 25000 --lr 0.0008 --warmup 4000 --clip 1 --steps "${STEPS:-20000}" \
    --save-every 500 --keep 8 --seed 1 --resume
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*
"$heed" quantize --weights int8 --out "$out/int8" "$out/average"
for src in "$text"/dev.*.src; do
    name=$(basename "$src" .src)
    case $name in *zh) tokenize=zh ;; *) tokenize=13a ;; esac
    echo "$name: $("$heed" evaluate --quiet --device "$device" --weights bf16 --model "$out/average" \
        --src "$src" --ref "$text/$name.ref" --tokenize "$tokenize" | head -n 1 | cut -c 1-40)"
done
