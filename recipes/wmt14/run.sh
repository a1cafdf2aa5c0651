#!/usr/bin/env bash
# The paper's models on WMT14 English to German, from the archives of the task to BLEU.
#
#   recipes/wmt14/run.sh [DATA] [OUT]
#
# DATA holds the five archives that README.md names (by default data/wmt14), OUT gets everything else
# (build/wmt14-base or -big). What is finished is not done again, and a training that was stopped goes
# on. Environment:
#
#   PRESET      base or big (base); small and tiny are for trials
#   LAUNCH      what starts the ranks, such as "mpirun -n 8" or "srun --mpi=pmix" (nothing: one process)
#   DEVICE      cpu or cuda:N; cuda: each rank takes the GPU of its number on its host (the default with
#               LAUNCH; cuda:0 without)
#   PRECISION   f32 or bf16 (bf16 on a GPU)
#   STEPS SAVE_EVERY VALID_EVERY BATCH_TOKENS WARMUP VOCAB THREADS BEAM    see below
#   SUMS        checksums of the archives (recipes/wmt14/checksums)
#   HEED        the program (build/heed)
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${PRESET:-base}
data=${1:-data/wmt14}
out=${2:-build/wmt14-$preset}
heed=${HEED:-build/heed}
device=${DEVICE:-${LAUNCH:+cuda}}
device=${device:-cuda:0}
read -ra launch <<<"${LAUNCH:-}"

# Paper, sections 5.2 to 5.4 and 6.1. Its base model took 0.4 s a step and big 1 s, so that the
# checkpoints of every 10 minutes are 1,500 and 600 steps apart; the last 5 or 20 are averaged.
case $preset in
big) steps=300000 save_every=600 average=20 dropout=0.3 ;;
*) steps=100000 save_every=1500 average=5 dropout=0.1 ;;
esac
steps=${STEPS:-$steps}
save_every=${SAVE_EVERY:-$save_every}

# ---- the archives ----

archives=(training-parallel-europarl-v7.tgz training-parallel-commoncrawl.tgz
    training-parallel-nc-v9.tgz dev.tgz test-full.tgz)
for archive in "${archives[@]}"; do
    if [ ! -f "$data/$archive" ]; then
        echo "wmt14: no $archive in $data; README.md says where the archives are" >&2
        exit 1
    fi
done
mkdir -p "$out"
if [ ! -f "$out/archives.checked" ]; then
    recipes/wmt14/check.sh "$data" "${SUMS:-recipes/wmt14/checksums}" "${archives[@]}"
    touch "$out/archives.checked"
fi

# ---- text ----

# side ARCHIVE MEMBER: a file of an archive, without carriage returns, which some lines end with
side() { tar -xzOf "$data/$1" "$2" | tr -d '\r'; }
# segments MEMBER: the sentences of a file of the test, as text
segments() {
    side test-full.tgz "test-full/$1" | sed -n 's/^ *<seg[^>]*> *\(.*[^ ]\) *<\/seg>.*$/\1/p' |
        sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g'
}
# pairs ARCHIVE STEM: English and German with a tab between them, but for pairs with an empty side
pairs() {
    paste <(side "$1" "$2.en" | tr '\t' ' ') <(side "$1" "$2.de" | tr '\t' ' ') |
        awk -F '\t' 'NF == 2 && $1 ~ /[^ ]/ && $2 ~ /[^ ]/'
}
if [ ! -f "$out/train.tsv" ]; then
    # In a random order that is the same everywhere: sorted by numbers of Park and Miller's generator.
    {
        pairs training-parallel-europarl-v7.tgz training/europarl-v7.de-en
        pairs training-parallel-commoncrawl.tgz commoncrawl.de-en
        pairs training-parallel-nc-v9.tgz training/news-commentary-v9.de-en
    } | awk 'BEGIN { x = 1 } { x = x * 16807 % 2147483647; printf "%010d\t%s\n", x, $0 }' |
        LC_ALL=C sort -T "$out" | cut -f 2- >"$out/train.tsv.part"
    mv "$out/train.tsv.part" "$out/train.tsv"
fi
for language in en de; do
    side dev.tgz "dev/newstest2013.$language" >"$out/newstest2013.$language"
done
segments newstest2014-deen-src.en.sgm >"$out/newstest2014.en"
segments newstest2014-deen-ref.de.sgm >"$out/newstest2014.de"
wc -l "$out/train.tsv" "$out"/newstest201[34].en "$out"/newstest201[34].de

# One vocabulary for both languages, of 37,000 pieces; a million of the pairs, which are in random
# order, are enough to find them.
if [ ! -f "$out/vocab.model" ]; then
    head -n 1000000 "$out/train.tsv" >"$out/vocab.tsv"
    "$heed" vocab --size "${VOCAB:-37000}" --out "$out/vocab.model" "$out/vocab.tsv"
    rm "$out/vocab.tsv"
fi

# ---- model ----

# run COMMAND OPTION...: heed's command on every rank
run() {
    local command=$1 precision=f32
    shift
    [ "${device%%:*}" = cpu ] || precision=bf16
    [ "$command" != train ] || set -- "$@" --precision "${PRECISION:-$precision}"
    "${launch[@]}" "$heed" "$command" "$@" --device "$device" --threads "${THREADS:-0}"
}
run train --pairs "$out/train.tsv" --valid-src "$out/newstest2013.en" --valid-tgt "$out/newstest2013.de" \
    --vocab "$out/vocab.model" --out "$out/model" --preset "$preset" --dropout "$dropout" --shards 8 \
    --batch-tokens "${BATCH_TOKENS:-25000}" --warmup "${WARMUP:-4000}" --steps "$steps" --seed 1 \
    --save-every "$save_every" --keep "$average" --valid-every "${VALID_EVERY:-5000}" --resume
mapfile -t last < <(printf '%s\n' "$out"/model/checkpoints/step-* | tail -n "$average")
"$heed" average --out "$out/average" "${last[@]}"
for test in newstest2013 newstest2014; do
    echo "$test:"
    run evaluate --model "$out/average" --src "$out/$test.en" --ref "$out/$test.de" --out "$out/$test.hyp" \
        --beam "${BEAM:-4}" --length-penalty 0.6
done
