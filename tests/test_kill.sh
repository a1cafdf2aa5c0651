#!/bin/bash
# test_kill.sh - a run that is killed with -9 at random moments ends in the same bytes as one that
# was left alone; one that is asked to end saves where it is.
#
# usage: test_kill.sh PROGRAM [KILLS]
set -eu
heed=${1:?usage: test_kill.sh PROGRAM [KILLS]}
kills=${2:-20}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

awk 'BEGIN { srand(1); for (i = 0; i < 500; i++) { s = ""; n = 2 + int(rand() * 8);
    for (j = 0; j < n; j++) s = s (j ? " " : "") substr("abcdefghij", 1 + int(rand() * 10), 1);
    print s "\t" s } }' >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv"

# the same run each time; --out, --steps and --save-every are added
train=("$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 32
    --heads 2 --d-ff 64 --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --warmup 100
    --keep 2 --seed 7 --threads 2 --resume --quiet)

newest() {
    ls "$dir/killed/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1
}

done_kills=0
while [ "$done_kills" -lt "$kills" ]; do
    "${train[@]}" --out "$dir/killed" --save-every 3 --steps 1000000 &
    pid=$!
    sleep "0.$((RANDOM % 6 + 1))$((RANDOM % 10))"
    if kill -9 "$pid" 2>/dev/null; then done_kills=$((done_kills + 1)); fi
    wait "$pid" 2>/dev/null || true
done

step=$(newest)
if [ -z "$step" ]; then
    echo "no checkpoint after $kills kills: the runs never got going"
    exit 1
fi
last=$((step + 5))
"${train[@]}" --out "$dir/killed" --save-every 3 --steps "$last"
"${train[@]}" --out "$dir/whole" --save-every 3 --steps "$last"
cmp "$dir/killed/model.safetensors" "$dir/whole/model.safetensors"
if ls "$dir"/killed/checkpoints/*.tmp >/dev/null 2>&1; then
    echo "half-written checkpoints were left behind"
    exit 1
fi
# the log tells of one run: every step once, in order
grep '"event":"step"' "$dir/killed/log.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/' |
    awk '$1 != NR { print "log.jsonl: line " NR " is of step " $1; exit 1 }
        END { if (NR != '"$last"') { print "log.jsonl has " NR " steps"; exit 1 } }'

# begin NAME [COMMAND...]: starts a long run in the background, waits for its first step; sets pid
begin() {
    local name=$1
    shift
    "$@" "${train[@]}" --out "$dir/$name" --steps 1000000 --save-every 0 2>"$dir/$name.err" &
    pid=$!
    until grep -q '"event":"step"' "$dir/$name/log.jsonl" 2>/dev/null || ! kill -0 "$pid"; do
        sleep 0.1
    done
}

# saved NAME STATUS: the run ends with this status and leaves its model
saved() {
    local status=0
    wait "$pid" || status=$?
    if [ "$status" != "$2" ] || [ ! -f "$dir/$1/model.safetensors" ]; then
        echo "$1: status $status, expected $2 and a saved model"
        exit 1
    fi
}

# timeout and others signal the process and its group: asked twice at once is asked once
begin asked
for _ in $(seq 20); do
    for _ in 1 2 3 4 5 6 7 8 9; do kill -TERM "$pid" 2>/dev/null || true; done
    sleep 0.001
done
saved asked 143

# a terminal that closes asks as well, unless nohup was told otherwise
begin hung_up
kill -HUP "$pid"
saved hung_up 129
begin nohup nohup
kill -HUP "$pid"
steps=$(wc -l <"$dir/nohup/log.jsonl")
until [ "$(wc -l <"$dir/nohup/log.jsonl")" -gt $((steps + 5)) ] || ! kill -0 "$pid"; do sleep 0.1; done
kill -TERM "$pid"
saved nohup 143
echo "killed $kills times, $last steps: the same bytes"
