#!/usr/bin/env bash
# The paper's tables and claims on one GPU, within small budgets: heed reproduce, study by study.
#
#   recipes/reproduce/run.sh [STUDY...]
#
# Studies: scaling table1 table1-cpu table3 schedule length table2; all of them by default. Reports and
# pictures go to build/reproduce (OUT names another directory) and are copied to docs/reproduce.
# DATA is a directory with ende/*.tsv.xz and wmt/newstest201[34].ende.* (../shared/data), HEED the
# program (build/heed), DEVICE the device (cuda:0), JOBS how many trainings share it (4; with NVIDIA's
# Multi-Process Service they do not wait for each other), MINUTES what each study may take, ROWS some
# rows of the studies that train, such as A1,B2.
#
# What is finished is not done again, and a training that was stopped goes on, so that the same command
# can be given again.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${DATA:-../shared/data}
out=${OUT:-build/reproduce}
heed=${HEED:-build/heed}
device=${DEVICE:-cuda:0}
jobs=${JOBS:-4}
case $device in
cpu*) precision=${PRECISION:-f32} ;;
*) precision=${PRECISION:-bf16} ;;
esac

# English to German: everyday sentences, software, games and news, 400,000 pairs. Perplexity is that
# of newstest2013; BLEU that of newstest2013 in table 3, as in the paper, else of newstest2014.
text=()
for part in tatoeba news software games; do text+=(--pairs "$data/ende/$part.tsv.xz"); done
text+=(--valid-src "$data/wmt/newstest2013.ende.en" --valid-tgt "$data/wmt/newstest2013.ende.de")
test=(--test-src "$data/wmt/newstest2014.ende.en" --test-tgt "$data/wmt/newstest2014.ende.de")

# The base model of the studies that train many: small, with the paper's 8 heads.
small=(--preset small --heads 8 --batch-tokens 16384 --warmup 1000 --vocab-size 8000)

# reproduce STUDY NAME OPTION...: the report goes to docs/reproduce/NAME
reproduce() {
    local study=$1 name=$2
    shift 2
    "$heed" reproduce "$study" --out "$out/$name" "$@"
    mkdir -p "docs/reproduce/$name"
    cp "$out/$name"/report.md "$out/$name"/*.svg "docs/reproduce/$name/"
}

train() {
    local study=$1
    shift
    if [ ! -f "$data/ende/news.tsv.xz" ]; then
        echo "reproduce: no ende/news.tsv.xz in $data; DATA=DIRECTORY names where the text is" >&2
        exit 1
    fi
    reproduce "$study" "$study" "${text[@]}" --device "$device" --precision "$precision" --jobs "$jobs" --minutes "${MINUTES:-25}" ${ROWS:+--rows "$ROWS"} "$@"
}

for study in "${@:-scaling table1 table1-cpu table3 schedule length table2}"; do
    for one in $study; do
        case $one in
        scaling) reproduce scaling scaling --device "$device" ;;
        table1)
            reproduce table1 "table1-${device%%:*}" --device "$device" --precision "$precision" --longest 4096 --widest 1024
            ;;
        table1-cpu) reproduce table1 table1-cpu --device cpu --longest 2048 --widest 256 ;;
        table3) train table3 "${small[@]}" --steps 4000 ;;
        schedule) train schedule "${small[@]}" --steps 3000 ;;
        length) train length "${small[@]}" --steps 2000 --train-length 25 "${test[@]}" ;;
        table2) train table2 --preset base --batch-tokens 8192 --warmup 4000 --vocab-size 16000 --steps 14000 "${test[@]}" ;;
        *)
            echo "reproduce: there is no study $one" >&2
            exit 2
            ;;
        esac
    done
done
