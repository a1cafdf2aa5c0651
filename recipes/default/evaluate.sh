#!/usr/bin/env bash
# The scores of the default model on the test sets, BLEU and chrF of int8 with beam 4, on a CPU.
#
#   recipes/default/evaluate.sh [DATA] [MODEL]
#
# DATA is by default ../shared/data, MODEL models/default. HEED names the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data}
model=${2:-models/default}
heed=${HEED:-build/heed}

score() { # LANGUAGE TOKENIZE SOURCE REFERENCE
    echo "$3 to $1"
    "$heed" evaluate --quiet --model "$model" --to "$1" --src "$data/$3" --ref "$data/$4" --tokenize "$2" |
        sed 's/^/    /'
}
score de 13a tatoeba/test.ende.en tatoeba/test.ende.de
score de 13a multi30k/test_2016_flickr.en multi30k/test_2016_flickr.de
score de 13a wmt/newstest2014.ende.en wmt/newstest2014.ende.de
score en 13a tatoeba/test.ende.de tatoeba/test.ende.en
score en 13a wmt/newstest2014.ende.de wmt/newstest2014.ende.en
score zh zh tatoeba/test.enzh.en tatoeba/test.enzh.zh
score en 13a tatoeba/test.enzh.zh tatoeba/test.enzh.en
score en 13a wmt/newstest2018.zhen.zh wmt/newstest2018.zhen.en
