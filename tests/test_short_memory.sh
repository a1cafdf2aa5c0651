#!/bin/bash
# test_short_memory.sh - out of memory, reading, scoring and training a vocabulary end with a
# sentence and not with an abort.
#
# usage: test_short_memory.sh PROGRAM
set -u
heed=${1:?usage: test_short_memory.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: an emulator reserves more address space than there is memory"
    exit 0
fi
failures=0
runs=0
sentences=0

# Every run with so many kB of address space succeeds or says that memory is short.
limited() {
    local kb=$1 code
    shift
    (ulimit -v "$kb" && "$heed" --version) >/dev/null 2>&1 || return # too little to start at all
    (ulimit -v "$kb" && exec timeout 100 "$heed" "$@") <"$dir/text" >"$dir/out" 2>"$dir/err"
    code=$?
    runs=$((runs + 1))
    if [ "$code" = 0 ]; then
        [ "$1" != vocab ] || cmp "$dir/v" "$dir/vocab" || failures=$((failures + 1))
        return
    fi
    sentences=$((sentences + 1))
    if [ "$code" != 1 ] || [ "$(wc -l <"$dir/err")" != 1 ] ||
        ! grep -Eiq '^heed: .*(memory|cannot start a thread)' "$dir/err"; then
        echo "heed $* with $kb kB: exit code $code"
        sed 's/^/    /' "$dir/err"
        failures=$((failures + 1))
    fi
}

awk 'BEGIN {
    srand(1)
    for (i = 0; i < 3000; i++) { n = 2 + int(rand() * 7); w = ""
        for (k = 0; k < n; k++) w = w substr("abcdefghijklmnopqrstuvwxyz", 1 + int(26 * rand()^2), 1)
        word[i] = w }
    for (i = 0; i < 60000; i++) { line = ""
        for (k = 0; k < 12; k++) line = line " " word[int(3000 * rand()^2)]
        print substr(line, 2) }
}' >"$dir/text"
"$heed" vocab --size 1000 --quiet --out "$dir/vocab" "$dir/text" || exit 1
base=$( (for kb in $(seq 20000 5000 2000000); do
    (ulimit -v "$kb" && "$heed" --version) >/dev/null 2>&1 && echo "$kb" && break
done))
if [ -z "$base" ]; then
    echo "skipped: the program does not start within 2 GB of address space"
    exit 0
fi
for more in 0 10 20 30 40 60 80 100 120 140 160 200 250 300 400 600 900; do
    kb=$((base + more * 1000))
    limited "$kb" vocab --size 1000 --quiet --out "$dir/v" "$dir/text"
    [ "$more" -lt 100 ] && limited "$kb" score --ref "$dir/text"
done
[ "$sentences" -gt 0 ] || { echo "memory was never short" && failures=1; }

[ "$failures" = 0 ] && echo "$runs runs, $sentences of them short of memory, each with its sentence"
exit "$((failures > 0))"
