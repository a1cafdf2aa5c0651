#!/bin/bash
# test_mix.sh - training text that is read through its index: files mixed by weight or temperature,
# runs that are resumed, an index that is damaged, stale or cannot be written; `heed vocab --sample`.
#
# usage: test_mix.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
export OMP_NUM_THREADS=1

for i in $(seq 1 300); do echo "the line number $i of many"; done >"$dir/a"
sed 's/the line/die Zeile/; s/of many/von vielen/' "$dir/a" >"$dir/b"
paste "$dir/a" "$dir/b" >"$dir/news.tsv"
tac "$dir/news.tsv" | head -n 100 >"$dir/web.tsv"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/a" "$dir/b" || exit 1
train="train --vocab $dir/vocab --preset tiny --d-model 16 --d-ff 16 --heads 2 --encoder-layers 1
    --decoder-layers 1 --batch-tokens 256"
mix="--pairs $dir/news.tsv:2 --pairs $dir/web.tsv:0.5"

same() {
    cmp -s "$1/model.safetensors" "$2/model.safetensors" || fail "the models $1 and $2 differ"
}
differ() {
    ! cmp -s "$1/model.safetensors" "$2/model.safetensors" || fail "the models $1 and $2 are equal"
}
# prints LINE: the last command printed it
prints() {
    grep -q -- "$1" "$dir/err" || fail "no line with '$1'"
}

# ---- weights, and what is said of them ----

accepts $train $mix --steps 40 --out "$dir/mixed"
prints "news.tsv: 300 pairs, weight 2"
prints "web.tsv: 100 pairs, weight 0.5"
prints "news.tsv: 300 pairs, weight 2, .*read"
grep -q '"event":"done".*"read":\[{"file":"[^"]*news.tsv","pairs":300,"weight":2.0,"times":[0-9.]*}' \
    "$dir/mixed/log.jsonl" || fail "log.jsonl does not say what was read"
accepts $train --pairs "$dir/news.tsv" --pairs "$dir/web.tsv" --steps 40 --out "$dir/unmixed" --quiet
differ "$dir/mixed" "$dir/unmixed"
[ ! -e "$dir/unmixed/index" ] || fail "a small corpus without weights has an index"
accepts $train --pairs "$dir/news.tsv:1" --pairs "$dir/web.tsv:1.0" --steps 40 --out "$dir/ones" --quiet
same "$dir/ones" "$dir/unmixed"
accepts $train --src "$dir/a:2" --tgt "$dir/b" --steps 2 --out "$dir/sides"
prints "a: 300 pairs, weight 2"
accepts $train --pairs "$dir/news.tsv" --pairs "$dir/web.tsv" --temperature 2 --steps 2 --out "$dir/warm"
prints "news.tsv: 300 pairs, weight 0.847"
prints "web.tsv: 100 pairs, weight 1.46"

# a name may have colons, and may end in a number if there is such a file
cp "$dir/news.tsv" "$dir/2024:10:news"
cp "$dir/news.tsv" "$dir/news:7"
accepts $train --pairs "$dir/2024:10:news:2" --pairs "$dir/news:7" --steps 1 --out "$dir/colons"
prints "2024:10:news: 300 pairs, weight 2"
prints "news:7: 300 pairs$"
refuses 1 "cannot open .*2024:10:missing" $train --pairs "$dir/2024:10:missing" --out "$dir/none"
refuses 1 "the weight of .*news.tsv is 0, expected" $train --pairs "$dir/news.tsv:0" --out "$dir/none"
refuses 1 "the weight of .*news.tsv is -1, expected" $train --pairs "$dir/news.tsv:-1" --out "$dir/none"
refuses 2 "exclude each other" $train $mix --temperature 2 --out "$dir/none"
refuses 2 "no effect on 1 file" $train --pairs "$dir/news.tsv" --temperature 2 --out "$dir/none"

# ---- resuming, with any index ----

accepts $train $mix --steps 20 --out "$dir/run" --quiet
go_on="$train $mix --out $dir/run --resume --quiet"
refuses 1 "begun with weights of the training text 2 0.5, found 2 0.6" \
    ${go_on/0.5/0.6} --steps 40
refuses 1 "begun with weights of the training text 2 0.5, found temperature 3" \
    ${train} --pairs "$dir/news.tsv" --pairs "$dir/web.tsv" --temperature 3 --out "$dir/run" \
    --resume --quiet --steps 40
accepts $go_on --steps 25
rm -r "$dir/run/index"
accepts $go_on --steps 30
printf 'damage' | dd of="$dir/run/index/lines" bs=1 seek=200 conv=notrunc status=none
accepts $go_on --steps 35
touch -d 2001-01-01 "$dir/news.tsv"
accepts $go_on --steps 40 --threads 2
same "$dir/run" "$dir/mixed"

# ---- compressed text, in one piece and cut up ----

gzip -k "$dir/news.tsv"
xz -kc --block-size=4KiB "$dir/web.tsv" >"$dir/web.tsv.xz"
accepts $train --pairs "$dir/news.tsv.gz:2" --pairs "$dir/web.tsv.xz:0.5" --steps 40 \
    --out "$dir/packed" --quiet
same "$dir/packed" "$dir/mixed"
[ -e "$dir/packed/index/1.text" ] || fail "what is in one piece is not unpacked"
[ ! -e "$dir/packed/index/2.text" ] || fail "what is cut up is unpacked"

# ---- faults ----

head -c -40 "$dir/web.tsv.xz" >"$dir/cut.xz"
refuses 1 "cut.xz is truncated" $train --pairs "$dir/cut.xz:2" --out "$dir/none"
head -n 299 "$dir/b" >"$dir/b299"
refuses 1 "a has 300 lines, .*b299 (ends after|has) 299" $train --src "$dir/a:2" --tgt "$dir/b299" \
    --out "$dir/none"
mkdir "$dir/blocked"
touch "$dir/blocked/index"
refuses 1 "cannot create directory .*blocked/index" $train $mix --out "$dir/blocked"

# ---- a vocabulary of a sample ----

sum() {
    accepts vocab --size 300 --quiet --out "$dir/v" "$@" "$dir/news.tsv" "$dir/web.tsv"
    cksum <"$dir/v"
}
[ "$(sum)" = "$(sum --sample 400)" ] || fail "a sample of all lines is not all lines"
[ "$(sum --sample 50)" = "$(sum --sample 50)" ] || fail "a sample is not the same each time"
[ "$(sum --sample 50)" != "$(sum --sample 50 --seed 2)" ] || fail "the seed of a sample has no effect"
[ "$(sum --sample 50)" != "$(sum)" ] || fail "a sample has no effect"
refuses 2 "sample" vocab --size 300 --sample -1 --out "$dir/v" "$dir/news.tsv"

exit "$((failures > 0))"
