#!/bin/bash
# large_corpus.sh - training streams a corpus larger than the memory it may use.
#
# usage: large_corpus.sh PROGRAM [MEGABYTES] [LIMIT_MEGABYTES] [STEPS]
#
# Writes a synthetic corpus of 2 GB, trains for some steps on it with at most 1 GB of address space,
# and prints the peak of what was really used. It takes minutes and disk space, so `make large` runs it
# and `make test` does not.
set -eu
heed=${1:?usage: large_corpus.sh PROGRAM [MEGABYTES] [LIMIT_MEGABYTES] [STEPS]}
size=${2:-2048} limit=${3:-1024} steps=${4:-200}
dir=$(mktemp -d "${TMPDIR:-/tmp}/heed-large-XXXXXX")
trap 'rm -rf "$dir"' EXIT

awk 'BEGIN { srand(1); for (bytes = 0; bytes < 16 * 1048576;) { a = b = ""; n = 4 + int(rand() * 20);
    for (i = 0; i < n; i++) { w = sprintf("%c%c%c", 97 + rand() * 26, 97 + rand() * 26,
        97 + rand() * 6); a = a w " "; b = w " " b }
    print a "\t" b; bytes += length(a) + length(b) + 2 } }' >"$dir/part.tsv"
for _ in $(seq 1 $((size / 16))); do cat "$dir/part.tsv"; done >"$dir/pairs.tsv"
echo "$(($(wc -c <"$dir/pairs.tsv") >> 20)) MB of pairs, $limit MB of address space"
"$heed" vocab --size 2000 --quiet --out "$dir/vocab.model" "$dir/part.tsv"

(
    ulimit -v "$((limit * 1024))"
    # each thread's malloc arena would reserve 64 MB of address space that it does not use
    export MALLOC_ARENA_MAX=2
    exec "$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny \
        --batch-tokens 2048 --steps "$steps" --save-every 0 --out "$dir/model"
) &
pid=$!
peak=0
while kill -0 "$pid" 2>/dev/null; do
    now=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null || true)
    [ -n "$now" ] && peak=$now
    sleep 0.2
done
wait "$pid"
echo "peak memory $((peak / 1024)) MB"
