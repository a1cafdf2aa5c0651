#!/bin/bash
# test_old_cpu.sh - one binary runs on every x86-64: under an emulator of older processors, where an
# instruction that they lack ends the program, it translates and trains with the same results as on
# this machine limited to the same instruction set.
#
# usage: test_old_cpu.sh PROGRAM
set -eu
heed=${1:?usage: test_old_cpu.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: the program is not built for x86-64"
    exit 0
fi
if ! command -v qemu-x86_64 >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: there is no qemu-x86_64 (package qemu-user)"
    exit 0
fi
if nm "$heed" | grep -qE '__(asan|tsan)_init'; then
    echo "skipped: sanitizers do not run in the emulator"
    exit 0
fi
export OMP_WAIT_POLICY=passive # also keeps the program from starting itself anew, outside
unset HEED_DEVICE

awk -v seed=5 -v lines=60 -v longest=12 -f "$(dirname "$0")/reversals.awk" >"$dir/train.tsv"
cut -f 1 "$dir/train.tsv" | head -n 5 >"$dir/test"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"

train=(train --pairs "$dir/train.tsv" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 64
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 2 --quiet)
# processor and the level that it has
while read -r cpu level; do
    old() {
        local code=0
        qemu-x86_64 -cpu "$cpu" "$heed" "$@" 2>"$dir/err" || code=$?
        grep -v "TCG doesn't support" "$dir/err" >&2 || true
        return "$code"
    }
    for precision in f32 bf16; do
        old "${train[@]}" --precision "$precision" --out "$dir/$cpu-$precision"
        "$heed" "${train[@]}" --precision "$precision" --device "cpu:$level" \
            --out "$dir/$level-$precision"
        cmp "$dir/$cpu-$precision/model.safetensors" "$dir/$level-$precision/model.safetensors"
    done
    for weights in f32 bf16 int8; do
        old translate --model "$dir/$cpu-f32" --weights "$weights" --json --quiet \
            <"$dir/test" >"$dir/found"
        "$heed" translate --model "$dir/$level-f32" --weights "$weights" --json --quiet \
            --device "cpu:$level" <"$dir/test" | cmp - "$dir/found"
    done
    # a level above its own is refused with a sentence
    if [ "$level" = baseline ]; then
        if old translate --model "$dir/$cpu-f32" --device cpu:avx2 1 2>"$dir/said"; then exit 1; fi
        grep -q "^heed: device is 'cpu:avx2', which this machine lacks" "$dir/said"
    fi
done <<'END'
Nehalem baseline
Haswell avx2
END
