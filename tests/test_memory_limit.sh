#!/bin/bash
# test_memory_limit.sh - runs the program with more and more address space, from just enough to
# start to enough to finish. Each run succeeds or fails with one sentence, without a signal, an
# abort or a message of a library.
#
# usage: test_memory_limit.sh PROGRAM
set -eu
heed=${1:?usage: test_memory_limit.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: an emulator reserves more address space than there is memory"
    exit 0
fi
if nm "$heed" | grep -qE '__(asan|tsan)_init'; then
    echo "skipped: sanitizers reserve more address space than there is memory"
    exit 0
fi
awk -v seed=5 -v lines=60 -v longest=12 -f "$(dirname "$0")/reversals.awk" >"$dir/train.tsv"
head -n 3 "$dir/train.tsv" >"$dir/valid.tsv"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"

# limited KIB COMMAND...: runs the command with this limit; sets status and said
limited() {
    local kib=$1
    shift
    status=0
    (
        ulimit -c 0
        ulimit -v "$kib"
        exec "$heed" "$@" --quiet >"$dir/out"
    ) 2>"$dir/said" || status=$?
}

# With less address space the program cannot even be loaded.
first=40000
until (ulimit -v "$first" && "$heed" --version) >/dev/null 2>&1; do first=$((first + 4000)); done

sweep() {
    local kib=$first good=0 failed=0
    while [ $good -lt 3 ]; do
        rm -rf "$dir/model"
        limited "$kib" "$@"
        if [ $status = 0 ]; then
            good=$((good + 1))
        elif [ $status = 1 ] && [ "$(wc -l <"$dir/said")" = 1 ] && grep -q '^heed: ' "$dir/said"; then
            failed=$((failed + 1))
            good=0
        else
            echo "heed $1 with $kib KiB of address space: status $status, says:"
            cat "$dir/said"
            exit 1
        fi
        if [ "$kib" -gt 4000000 ]; then
            echo "heed $1 does not succeed with $kib KiB of address space: $(cat "$dir/said")"
            exit 1
        fi
        kib=$((kib + step))
    done
    echo "heed $1: $failed limits are too low, $kib KiB are enough"
}

train=(train --pairs "$dir/train.tsv" --valid-pairs "$dir/valid.tsv" --vocab "$dir/vocab"
    --preset tiny --steps 1 --batch-tokens 256)
step=${STEP:-8000} # KiB
sweep "${train[@]}" --threads 2 --out "$dir/model"
sweep "${train[@]}" --threads 4 --precision bf16 --out "$dir/model"
"$heed" "${train[@]}" --quiet --out "$dir/trained"
for weights in f32 int8; do
    sweep translate --model "$dir/trained" --weights "$weights" --threads 2 "1 2 3"
done
