#!/usr/bin/env bash
# Multi30k English to German on one GPU, from raw text to BLEU in two minutes.
#
#   recipes/multi30k/gpu.sh [DATA] [OUT]
#
# DATA holds train.en, train.de, val.en, val.de, test_2016_flickr.en and .de (by default
# ../shared/data/multi30k). HEED names the program (by default build/heed), DEVICE the GPU (cuda:0).
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data/multi30k}
out=${2:-build/multi30k-gpu}
heed=${HEED:-build/heed}
device=${DEVICE:-cuda:0}
if [ ! -f "$data/train.en" ]; then
    echo "multi30k: no data in $data; give its directory as the first argument" >&2
    exit 1
fi
start=$(date +%s)
mkdir -p "$out"
"$heed" vocab --size 6000 --quiet --out "$out/vocab.model" "$data/train.en" "$data/train.de"
# Twice the width of the CPU's recipe, and dropout to match: there is time for it.
"$heed" train --device "$device" --src "$data/train.en" --tgt "$data/train.de" \
    --valid-src "$data/val.en" --valid-tgt "$data/val.de" \
    --vocab "$out/vocab.model" --out "$out/model" --preset tiny --d-model 256 --d-ff 512 \
    --precision bf16 --dropout 0.35 --attention-dropout 0.1 --ff-dropout 0.1 --max-length 128 \
    --batch-tokens 4096 --lr 0.002 --warmup 2000 --steps "${STEPS:-20000}" \
    --valid-every 5000 --save-every 500 --keep 10 --seed 1
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*
for test in test_2016_flickr test_2017_flickr; do
    [ -f "$data/$test.de" ] || continue
    echo "$test:"
    "$heed" evaluate --device "$device" --model "$out/average" --weights bf16 \
        --src "$data/$test.en" --ref "$data/$test.de"
done
echo "from raw text to BLEU: $(($(date +%s) - start)) seconds"
