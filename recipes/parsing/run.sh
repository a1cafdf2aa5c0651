#!/usr/bin/env bash
# Constituency parsing (paper 6.3): from bracketed trees to labelled F1.
#
#   recipes/parsing/run.sh [DATA] [OUT]
#
# DATA holds train.mrg, dev.mrg and test.mrg (by default ../shared/data/treebank). A run that was
# interrupted goes on where it was. Environment: HEED, the program (build/heed); DEVICE, such as
# cuda:0 (cpu); PRESET (small), DROPOUT (0.3), STEPS (6000), BEAM (10), PRECISION.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data/treebank}
out=${2:-build/parsing}
heed=${HEED:-build/heed}
device=${DEVICE:-cpu}
if [ ! -f "$data/train.mrg" ]; then
    echo "parsing: no trees in $data; give their directory as the first argument" >&2
    exit 1
fi
case $device in
    cuda*) precision=bf16 ;;
    *) precision=$(grep -qw avx512_bf16 /proc/cpuinfo && echo bf16 || echo f32) ;;
esac
mkdir -p "$out"

for part in train dev test; do
    "$heed" tree --print words "$data/$part.mrg" >"$out/$part.words"
    "$heed" tree --print linear "$data/$part.mrg" >"$out/$part.linear"
done
[ -f "$out/vocab.model" ] ||
    "$heed" vocab --size 4000 --out "$out/vocab.model" "$out/train.words" "$out/train.linear"

# Few trees need strong dropout. Trees are about three times as long as their sentences.
"$heed" train --src "$out/train.words" --tgt "$out/train.linear" \
    --valid-src "$out/dev.words" --valid-tgt "$out/dev.linear" --no-bleu \
    --vocab "$out/vocab.model" --out "$out/model" --preset "${PRESET:-small}" \
    --device "$device" --precision "${PRECISION:-$precision}" \
    --dropout "${DROPOUT:-0.3}" --attention-dropout 0.1 --ff-dropout 0.1 --max-length 800 \
    --batch-tokens 4096 --lr 0.001 --warmup 1000 --steps "${STEPS:-6000}" \
    --valid-every 250 --save-every 250 --keep 10 --seed 1 --resume
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*

# parse MODEL PART: trees over the words of a part. Brackets repeat, which is no fault of a tree:
# a very long --no-repeat-ngram keeps heed from searching again for what looks like a loop.
parse() {
    "$heed" translate --model "$1" --device "$device" --beam "${BEAM:-10}" --length-penalty 0.3 \
        --max-length 790 --no-repeat-ngram 1000 --quiet <"$out/$2.words" >"$out/$2.written"
    "$heed" tree --restore "$out/$2.words" "$out/$2.written"
}
score() { "$heed" score --metric parseval --ref "$data/$1.mrg" "$2"; }

# The baseline: every tree branches to the right.
awk -f recipes/parsing/baseline.awk "$out/train.linear" "$out/test.words" |
    "$heed" tree --restore "$out/test.words" >"$out/baseline.trees"

# The development set chooses between the weights with the lowest validation loss and the mean of
# the last checkpoints.
chosen=
for model in model/best average; do
    parse "$out/$model" dev >"$out/dev.${model##*/}.trees"
    f1=$(score dev "$out/dev.${model##*/}.trees" | cut -d ' ' -f 2)
    echo "dev, $model: F1 $f1"
    if [ -z "$chosen" ] || awk "BEGIN { exit !($f1 > $best) }"; then chosen=$model best=$f1; fi
done
parse "$out/$chosen" test >"$out/test.trees"
echo "test, right-branching baseline:"
score test "$out/baseline.trees"
echo "test, $chosen:"
score test "$out/test.trees"
