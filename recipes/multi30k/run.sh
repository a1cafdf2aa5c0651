#!/usr/bin/env bash
# Multi30k English to German on a CPU, from raw text to BLEU.
#
#   recipes/multi30k/run.sh [DATA] [OUT]
#
# DATA holds train.en, train.de, val.en, val.de, test_2016_flickr.en and .de (by default
# ../shared/data/multi30k). HEED names the program (by default build/heed).
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data/multi30k}
out=${2:-build/multi30k}
heed=${HEED:-build/heed}
if [ ! -f "$data/train.en" ]; then
    echo "multi30k: no data in $data; give its directory as the first argument" >&2
    exit 1
fi
# bf16 where the processor has it: half the time for the same BLEU
precision=${PRECISION:-$(grep -qw avx512_bf16 /proc/cpuinfo && echo bf16 || echo f32)}
start=$(date +%s)
mkdir -p "$out"
[ -f "$out/vocab.model" ] ||
    "$heed" vocab --size 4000 --out "$out/vocab.model" "$data/train.en" "$data/train.de"
# A tiny model with strong dropout suits 29,000 sentences.
"$heed" train --src "$data/train.en" --tgt "$data/train.de" \
    --valid-src "$data/val.en" --valid-tgt "$data/val.de" \
    --vocab "$out/vocab.model" --out "$out/model" --preset tiny --precision "$precision" \
    --dropout 0.2 --attention-dropout 0.1 --ff-dropout 0.1 --max-length 128 \
    --batch-tokens 2048 --lr 0.003 --warmup 2000 --steps "${STEPS:-16000}" \
    --valid-every 1000 --save-every 500 --keep 10 --seed 1 --resume
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*
for test in test_2016_flickr test_2017_flickr; do
    "$heed" translate --model "$out/average" --quiet < "$data/$test.en" > "$out/$test.hyp"
    echo "$test:"
    "$heed" score --ref "$data/$test.de" < "$out/$test.hyp"
done
echo "from raw text to BLEU: $((($(date +%s) - start) / 60)) minutes"
