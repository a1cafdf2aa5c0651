#!/usr/bin/env bash
# beside_pytorch.sh - training speed and memory of heed and PyTorch on the same batches, in one run.
#
#   bench/beside_pytorch.sh YARDSTICK BATCHES CONFIG PRECISION [MODES]
#
# YARDSTICK is a Python program that takes --config, --dtype fp32|bf16, --device cpu|cuda, --tokens
# and --modes and prints a line with "N tgt tok/s" for each mode; it finds the same batches by their
# token count. BATCHES is a file batches-TOKENS.txt with a batch a line. Each mode runs in a process
# of its own, so that its peak memory can be told. Prints one line for heed, one for each mode, and
# the ratio to the best of them. DEVICE=cuda:0 compares on that GPU.
set -euo pipefail
yardstick=$1 batches=$2 config=$3 precision=$4 modes=${5:-nn,sdpa,sdpa-compiled}
device=${DEVICE:-cpu}
bench=${BENCH:-$(dirname "$0")/../build/benchmarks/bench_train}
tokens=$(basename "$batches" .txt | sed 's/.*-//')
dtype=$([ "$precision" = f32 ] && echo fp32 || echo bf16)

# peak memory of the process in MiB after its own output
with_memory='import resource, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB")'

ours=$("$bench" --device "$device" --config "$config" --precision "$precision" "$batches" | tail -n 1)
echo "$ours"
speed=$(sed 's/.* \([0-9]*\) tgt tok.*/\1/' <<<"$ours")
best=0
for mode in ${modes//,/ }; do
    out=$(python3 -c "$with_memory" "$yardstick" --config "$config" --device "${device%%:*}" --dtype "$dtype" \
        --tokens "$tokens" --modes "$mode" 2>/dev/null)
    line=$(grep "tgt tok/s" <<<"$out") || { echo "PyTorch $mode: failed"; continue; }
    theirs=$(sed 's/.* \([0-9]*\) tgt tok.*/\1/' <<<"$line")
    step=$(sed 's/.*step *\([0-9.]*\) ms.*/\1/' <<<"$line")
    echo "PyTorch $config $precision $mode: step $step ms  $theirs tgt tok/s  $(tail -n 1 <<<"$out")"
    [ "$theirs" -gt "$best" ] && best=$theirs
done
awk -v a="$speed" -v b="$best" 'BEGIN { printf "heed is %.2f times the best\n", a / b }'
