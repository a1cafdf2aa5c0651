#!/usr/bin/env bash
# The text of the default model: English to and from German and Chinese, as one task of four
# directions. What a sentence is translated to is said by a tag before it.
#
#   recipes/default/prepare.sh [DATA] [OUT]
#
# DATA is by default ../shared/data. Writes OUT/train.tsv (tagged source, tab, target, all directions)
# and, for choosing among models, OUT/dev.DIRECTION.src and .ref: newstest2013 (ende, deen),
# newstest2017 (enzh, zhen) and slices of Tatoeba held out here. No sentence of a test or development
# set, in any language, is left in the training text; how many were dropped is printed.
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

# a sentence as it is compared: without case, spaces and ASCII punctuation
compare='
function bare(s) { s = tolower(s); gsub(/[ -\/:-@[-`{-~]/, "", s); return s }
BEGIN { while ((getline line < hidden) > 0) if (bare(line) != "") seen[bare(line)] = 1 }'

# pairs LANGUAGE TIMES FILE...: each pair in both directions, so many times
pairs() {
    local language=$1 times=$2
    shift 2
    local name
    for name in "$@"; do
        case $name in
        multi30k) paste "$data/multi30k/train.en" "$data/multi30k/train.$language" ;;
        *) xz -dc "$data/en$language/$name.tsv.xz" ;;
        esac | LC_ALL=C awk -F '\t' -v hidden="$out/hidden.txt" -v language="$language" -v times="$times" \
            -v name="$name.$language" -v log_file="$out/dropped.txt" "$compare"'
            NF != 2 || $1 == "" || $2 == "" { next }
            bare($1) in seen || bare($2) in seen { dropped++; next }
            {
                for (i = 0; i < times; i++) {
                    print ">>" language "<< " $1 "\t" $2
                    print ">>en<< " $2 "\t" $1
                }
            }
            END { print name ": " NR " pairs, " dropped + 0 " dropped" >>log_file }'
    done
}
: >"$out/dropped.txt"
{
    pairs de 1 software games
    pairs de 2 tatoeba news multi30k
    pairs zh 1 software games
    pairs zh 3 tatoeba
} >"$out/ordered.tsv"
# in an order of its own, the same each time: training shuffles only stretches of the text
shuf --random-source=<(cat "$data"/en??/*.xz) "$out/ordered.tsv" >"$out/train.tsv"
rm "$out/ordered.tsv"
cat "$out/dropped.txt"

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

# ---- the check ----

sed 's/^>>..<< //' "$out/train.tsv" | LC_ALL=C awk -F '\t' -v hidden="$out/hidden.txt" "$compare"'
    bare($1) in seen || bare($2) in seen { print "default: in the training text: " $0; found = 1 }
    END { exit found }' >&2
rm "$out/hidden.txt"
echo "$(wc -l <"$out/train.tsv") lines of training text, $(wc -c <"$out/train.tsv") bytes"
wc -l "$out"/dev.*.src
