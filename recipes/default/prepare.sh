#!/usr/bin/env bash
# The text of the default model: English to and from German and Chinese, as one task of four
# directions. What a sentence is translated to is said by a tag before it.
#
#   recipes/default/prepare.sh [DATA] [OUT]
#
# DATA is by default ../shared/data. Writes OUT/train.tsv (tagged source, tab, target, all directions);
# OUT/lack.de.src and lack.zh.src, English to be translated by a first model; and, for choosing among
# models, OUT/dev.DIRECTION.src and .ref: newstest2013 (ende, deen), newstest2017 (enzh, zhen) and
# slices of Tatoeba held out here. No sentence of a test or development set, in any language, is left
# in the training text; they are in OUT/hidden.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data}
out=${2:-build/default}
if [ ! -f "$data/ende/tatoeba.tsv.xz" ]; then
    echo "default: no data in $data; give its directory as the first argument" >&2
    exit 1
fi
mkdir -p "$out"

# ---- held out: every so many-th pair of Tatoeba ----

hold_out() { # LANGUAGE EVERY
    xz -dc "$data/en$1/tatoeba.tsv.xz" | awk -v every="$2" 'NR % every == 0' >"$out/held.$1.tsv"
}
hold_out de 175
hold_out zh 51

# ---- what must not be in the training text: one sentence a line ----

cat "$data"/tatoeba/test.* "$data"/wmt/newstest20* "$data"/multi30k/test_* "$data"/multi30k/val.* \
    >"$out/hidden.txt"
tr '\t' '\n' <"$out"/held.de.tsv >>"$out/hidden.txt"
tr '\t' '\n' <"$out"/held.zh.tsv >>"$out/hidden.txt"

# ---- training text ----

shown() { # NAME: the lines without hidden sentences
    LC_ALL=C awk -v hidden="$out/hidden.txt" -v name="$1" -f recipes/default/hidden.awk
}

# clean LANGUAGE NAME: English, tab, the other
clean() {
    case $2 in
    multi30k) paste "$data/multi30k/train.en" "$data/multi30k/train.$1" ;;
    *) xz -dc "$data/en$1/$2.tsv.xz" ;;
    esac | awk -F '\t' 'NF == 2 && $1 != "" && $2 != ""' | shown "$2.$1" >"$out/clean.$1.$2.tsv"
}
for name in tatoeba news multi30k games software; do clean de $name; done
for name in tatoeba games software; do clean zh $name; done

# both LANGUAGE TIMES NAME...: each pair in both directions, so many times
both() {
    local language=$1 times=$2 name
    shift 2
    for name in "$@"; do
        LC_ALL=C awk -F '\t' -v language="$language" -v times="$times" '{
            for (i = 0; i < times; i++) {
                print ">>" language "<< " $1 "\t" $2
                print ">>en<< " $2 "\t" $1
            }
        }' "$out/clean.$language.$name.tsv"
    done
}
# in an order of its own, the same each time: the published model was trained on text in this order
{
    both de 1 software games
    both de 2 tatoeba news multi30k
    both zh 1 software games
    both zh 3 tatoeba
} | shuf --random-source=<(cat "$data"/en??/*.xz) >"$out/train.tsv"

# ---- English that has no translation into one of the languages: a first model gives it one ----

# lack LANGUAGE OTHER NAME...: what the other language's text has
lack() {
    local language=$1 other=$2 name
    shift 2
    for name in "$@"; do cut -f 1 "$out/clean.$other.$name.tsv"; done | LC_ALL=C awk -v language="$language" '
        NR == FNR { seen[$0] = 1; next }
        !($0 in seen) { seen[$0] = 1; print ">>" language "<< " $0 }' \
        <(cat "$out/clean.$language".*.tsv | cut -f 1) - >"$out/lack.$language.src"
}
lack zh de tatoeba news multi30k
lack de zh tatoeba games

# ---- development sets by direction: tagged sources and references ----

dev() { # DIRECTION TAG SOURCE REFERENCE
    sed "s/^/>>$2<< /" "$3" >"$out/dev.$1.src"
    cp "$4" "$out/dev.$1.ref"
}
dev news.ende de "$data/wmt/newstest2013.ende.en" "$data/wmt/newstest2013.ende.de"
dev news.deen en "$data/wmt/newstest2013.ende.de" "$data/wmt/newstest2013.ende.en"
dev news.enzh zh "$data/wmt/newstest2017.zhen.en" "$data/wmt/newstest2017.zhen.zh"
dev news.zhen en "$data/wmt/newstest2017.zhen.zh" "$data/wmt/newstest2017.zhen.en"
for language in de zh; do
    cut -f 1 "$out/held.$language.tsv" >"$out/held.en"
    cut -f 2 "$out/held.$language.tsv" >"$out/held.$language"
    dev "tatoeba.en$language" "$language" "$out/held.en" "$out/held.$language"
    dev "tatoeba.${language}en" en "$out/held.$language" "$out/held.en"
done
rm "$out"/held.*

rm "$out"/clean.*
echo "$(wc -l <"$out/train.tsv") lines of training text, $(wc -c <"$out/train.tsv") bytes"
wc -l "$out"/lack.*.src "$out"/dev.*.src
