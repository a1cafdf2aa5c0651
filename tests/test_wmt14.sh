#!/bin/bash
# test_wmt14.sh - recipes/wmt14 from archives to BLEU with two ranks, a tiny model and a stand-in for
# the task's archives; and archives that are not the ones that were there before.
#
# usage: test_wmt14.sh PROGRAM
#
# Skipped where there is no text for the stand-in.
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
# shellcheck source=tests/mpi.sh
. "$(dirname "$0")/mpi.sh"

HEED=$(realpath "$heed")
cd "$(dirname "$0")/.." || exit 1
text=../shared/data
if [ ! -f $text/ende/news.tsv.xz ]; then
    echo "skipped: no text in $text"
    exit 77
fi
export HEED PRESET=tiny STEPS=4 SAVE_EVERY=1 VALID_EVERY=0 BATCH_TOKENS=1024 VOCAB=1000 BEAM=1 THREADS=1 DEVICE=cpu
export SUMS=/dev/null LAUNCH="mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2"

recipe() { timeout -k 5 200 recipes/wmt14/run.sh "$dir/archives" "$dir/$1" >"$dir/out" 2>"$dir/err"; }

TEST_LINES=10 recipes/wmt14/stand_in.sh "$dir/archives" 1000 || fail "stand_in.sh: failed"
recipe first || fail "run.sh: failed"
# 1,000 pairs of each archive and one that ends with a carriage return; the one with an empty side is left out
[ "$(wc -l <"$dir/first/train.tsv")" = 3003 ] || fail "train.tsv has $(wc -l <"$dir/first/train.tsv") pairs, expected 3003"
grep -q $'\r' "$dir/first/train.tsv" && fail "train.tsv has carriage returns"
for language in en de; do
    head -n 10 "$text/wmt/newstest2014.ende.$language" | cmp -s - "$dir/first/newstest2014.$language" ||
        fail "newstest2014.$language differs from the text it was made of"
done
[ "$(grep -c '^BLEU ' "$dir/out")" = 2 ] || fail "expected BLEU of two tests"
grep -q 'the mean of 4 models of steps 1 to 4' "$dir/out" "$dir/err" || fail "expected the mean of 4 models"

echo changed >>"$dir/archives/dev.tgz"
recipe second && fail "an archive that changed is taken"
grep -q "dev.tgz has the sha256 sum .*, expected .* as in $dir/archives/SHA256SUMS" "$dir/err" ||
    fail "expected both checksums of dev.tgz"
SUMS=recipes/wmt14/checksums recipe third && fail "other archives than the task's are taken"

exit $((failures > 0))
