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
# shellcheck source=recipes/multi30k/gpu_settings.sh
. recipes/multi30k/gpu_settings.sh
start=$(date +%s)
mkdir -p "$out"
learn_vocab "$out/vocab.model"
train_model "$out/vocab.model" "$out/model" --valid-src "$data/val.en" --valid-tgt "$data/val.de" \
    --valid-every 5000 --seed 1
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*
for test in test_2016_flickr test_2017_flickr; do
    [ -f "$data/$test.de" ] || continue
    echo "$test:"
    evaluate_model "$out/average" $test
done
echo "from raw text to BLEU: $(($(date +%s) - start)) seconds"
