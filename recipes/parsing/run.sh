#!/usr/bin/env bash
# Constituency parsing (paper 6.3): from bracketed trees to labelled F1.
#
#   recipes/parsing/run.sh [DATA] [OUT]
#
# DATA holds train.mrg, dev.mrg and test.mrg (by default ../shared/data/treebank). A run that was
# interrupted goes on where it was. Environment: HEED, the program (build/heed); DEVICE, such as
# cuda:0 (cpu); PRESET (small), DROPOUT (0.3), STEPS (5120), BEAM (4), PRECISION.
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

# Numbers tell the decoder which word is next; see README.md. Trees to learn from come eight times,
# numbered in different ways.
for part in train dev test; do
    copies=$([ $part = train ] && echo 8 || echo 1)
    for side in words linear; do
        "$heed" tree --print $side "$data/$part.mrg" >"$out/$part.$side"
        awk -v copies="$copies" -v side=$side -f recipes/parsing/number.awk "$out/$part.$side" >"$out/$part.$side.numbered"
    done
done

# Numbers and labels are a piece each.
pieces=()
for number in {0..99}; do pieces+=(--tag "–$number"); done
while read -r label; do pieces+=(--tag "$label"); done < <(tr ' ' '\n' <"$out/train.linear" | grep '^(' | LC_ALL=C sort -u)
sed 's/ (/(/g' "$out/train.linear" >"$out/train.symbols"
[ -f "$out/vocab.model" ] ||
    "$heed" vocab --size 2000 "${pieces[@]}" --out "$out/vocab.model" "$out/train.words" "$out/train.symbols"

# Few trees need strong dropout. Trees are several times as long as their sentences.
"$heed" train --src "$out/train.words.numbered" --tgt "$out/train.linear.numbered" \
    --valid-src "$out/dev.words.numbered" --valid-tgt "$out/dev.linear.numbered" --no-bleu \
    --vocab "$out/vocab.model" --out "$out/model" --preset "${PRESET:-small}" \
    --norm pre --position rope --device "$device" --precision "${PRECISION:-$precision}" \
    --dropout "${DROPOUT:-0.3}" --attention-dropout 0.1 --ff-dropout 0.1 --max-length 800 \
    --batch-tokens 4096 --lr 0.001 --warmup 1000 --steps "${STEPS:-5120}" \
    --valid-every 320 --save-every 160 --keep 8 --seed 1 --resume
"$heed" average --out "$out/average" "$out"/model/checkpoints/step-*

# parse PART: trees over its words. Brackets repeat, which is no fault of a tree: a very long
# --no-repeat-ngram keeps heed from searching again for what looks like a loop.
parse() {
    "$heed" translate --model "$out/average" --device "$device" --beam "${BEAM:-4}" --length-penalty 0.3 \
        --max-length 790 --no-repeat-ngram 1000 --quiet <"$out/$1.words.numbered" >"$out/$1.written"
    sed 's/–[0-9]*//g' "$out/$1.written" | "$heed" tree --restore "$out/$1.words" >"$out/$1.trees"
}
score() { "$heed" score --metric parseval --ref "$data/$1.mrg" "$2"; }

# The baseline: every tree branches to the right.
awk -f recipes/parsing/baseline.awk "$out/train.linear" "$out/test.words" |
    "$heed" tree --restore "$out/test.words" >"$out/baseline.trees"
for part in dev test; do
    parse $part
    echo "$part:"
    score $part "$out/$part.trees"
done
echo "test, right-branching baseline:"
score test "$out/baseline.trees"
