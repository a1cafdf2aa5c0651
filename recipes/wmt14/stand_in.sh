#!/usr/bin/env bash
# stand_in.sh - archives with the names and members of WMT14's, made of other text, to try the recipe.
#
#   recipes/wmt14/stand_in.sh OUT [LINES]
#
# OUT gets the five archives. DATA (../shared/data) holds ende/*.tsv.xz and wmt/newstest201[34].ende.*;
# LINES is how many pairs each training archive has (5000), and of the tests as many as TEST_LINES (100).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: stand_in.sh OUT [LINES]}
lines=${2:-5000}
tests=${TEST_LINES:-100}
data=${DATA:-../shared/data}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$out" "$made/training" "$made/dev" "$made/test-full"

# training PART STEM: the first pairs of a file, and what a corpus from the web has as well: an empty
# side, and the line ends of other systems
training() {
    xz -dc "$data/ende/$1.tsv.xz" | awk -v last="$lines" 'NR <= last' >"$made/pairs"
    { cut -f 1 "$made/pairs" && printf '\nA line.\r\n'; } >"$made/$2.de-en.en"
    { cut -f 2 "$made/pairs" && printf 'Ohne Englisch.\nEine Zeile.\r\n'; } >"$made/$2.de-en.de"
}
training software training/europarl-v7
training tatoeba commoncrawl
training news training/news-commentary-v9

# test_side LANGUAGE KIND: a side of newstest2014 in the form of the task
test_side() {
    echo "<refset setid=\"newstest2014\" trglang=\"$1\">"
    head -n "$tests" "$data/wmt/newstest2014.ende.$1" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g' |
        awk '{ print "<seg id=\"" NR "\">" $0 "</seg>" }'
    echo "</refset>"
} >"$made/test-full/newstest2014-deen-$2.$1.sgm"
test_side en src
test_side de ref
for language in en de; do
    head -n "$tests" "$data/wmt/newstest2013.ende.$language" >"$made/dev/newstest2013.$language"
done

pack() { tar -czf "$out/$1.tgz" -C "$made" "${@:2}"; }
pack training-parallel-europarl-v7 training/europarl-v7.de-en.en training/europarl-v7.de-en.de
pack training-parallel-commoncrawl commoncrawl.de-en.en commoncrawl.de-en.de
pack training-parallel-nc-v9 training/news-commentary-v9.de-en.en training/news-commentary-v9.de-en.de
pack dev dev
pack test-full test-full
