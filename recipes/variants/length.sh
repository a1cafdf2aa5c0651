#!/usr/bin/env bash
# How time and memory of a training step and of decoding grow with the length n of a sentence, for
# full, window and linear self-attention; bench/bench_length.c says what is measured.
#
#   recipes/variants/length.sh [OUT]
#
# Writes OUT/length.tsv (what bench_length measured), OUT/length.md (a table) and OUT/length.svg (a
# picture; docs/variants-length.svg is one); OUT is build/variants by default. BENCH names the program
# (build/benchmarks/bench_length), DEVICE the device (cuda:0), PRECISION f32 or bf16 (bf16 on a GPU),
# TO the longest n (16384), SET more fields of config.json (SET="encoder_layers=1 decoder_layers=1"), TITLE
# what the picture says of model and machine.
# A kind that the program does not know is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/variants}
bench=${BENCH:-build/benchmarks/bench_length}
device=${DEVICE:-cuda:0}
case $device in
cpu*) precision=${PRECISION:-f32} ;;
*) precision=${PRECISION:-bf16} ;;
esac
mkdir -p "$out"
: >"$out/length.tsv"

# measure NAME FIELD...
measure() {
    local name=$1 options=()
    shift
    # shellcheck disable=SC2086 # a word a field
    for field in "$@" ${SET:-}; do options+=(--set "$field"); done
    "$bench" --device "$device" --precision "$precision" --name "$name" --to "${TO:-16384}" "${options[@]}" |
        tee -a "$out/length.tsv" || echo "length: $name is left out" >&2
}
measure full
measure window attention=window window=64 global=1
measure linear attention=linear

awk -F '\t' '
    function growth(a, b) { return a > 0 ? sprintf("%.1f", b / a) : "" }
    BEGIN {
        print "| attention | n | ms a step | MiB of a step | MiB in use | ms a token | MiB of KV cache |"
        print "|---|---|---|---|---|---|---|"
    }
    {
        printf "| %s | %d | %.2f | %.1f | %.0f | %.3f | %.3f |\n", $1, $2, $3, $4, $5, $6, $7
        if (!($1 in last)) kind[++kinds] = $1
        if ($1 in last) { split(last[$1], a); text[$1] = a[2] " to " $2 ": step × " growth(a[3], $3) \
            ", its memory × " growth(a[4], $4) ", token × " growth(a[6], $6) ", KV cache × " growth(a[7], $7) }
        last[$1] = $0
    }
    END { print ""; for (k = 1; k <= kinds; k++) if (kind[k] in text) print "- " kind[k] ", n from " text[kind[k]] }
' "$out/length.tsv" >"$out/length.md"
awk -v title="${TITLE:-tiny, $precision, $device}; the other side of a pair has 256 tokens" -f recipes/variants/length.awk \
    "$out/length.tsv" >"$out/length.svg"
cat "$out/length.md"
