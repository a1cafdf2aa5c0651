#!/bin/sh
# test_learning.sh - the whole program learns: lines of letters reversed, to 95% of held-out lines.
# A line alone is translated as among others.
#
# usage: test_learning.sh PROGRAM
set -eu
heed=${1:?usage: test_learning.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

awk -v seed=3 -v lines=10200 -v longest=8 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs"
head -n 10000 "$dir/pairs" >"$dir/train.tsv"
tail -n 200 "$dir/pairs" >"$dir/test.tsv"
"$heed" vocab --size 280 --quiet --out "$dir/vocab.model" "$dir/train.tsv"
"$heed" train --pairs "$dir/train.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 64 \
    --d-ff 128 --encoder-layers 2 --decoder-layers 2 --dropout 0 --attention-dropout 0 \
    --ff-dropout 0 --batch-tokens 1024 --steps 2400 --warmup 200 --lr 0.001 --clip 1 --seed 1 \
    --quiet --out "$dir/model"
cut -f 1 "$dir/test.tsv" >"$dir/in"
"$heed" translate --quiet --model "$dir/model" --threads 2 <"$dir/in" >"$dir/out"

# a translation does not depend on its neighbours or on the threads
head -n 20 "$dir/in" | while read -r line; do
    "$heed" translate --quiet --model "$dir/model" --threads 1 "$line"
done >"$dir/alone"
head -n 20 "$dir/out" | cmp "$dir/alone" -
cut -f 2 "$dir/test.tsv" | paste - "$dir/out" | awk -F '\t' '
    $1 == $2 { right++ }
    END { printf "%d of %d held-out lines are reversed\n", right, NR; exit right < 0.95 * NR }'
