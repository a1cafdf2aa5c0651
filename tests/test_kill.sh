#!/bin/bash
# test_kill.sh - kills training, averaging and quantizing with -9 at random moments: nothing is
# lost, and the results have the same bytes as without kills. A run that gets another signal saves a
# checkpoint.
#
# usage: test_kill.sh PROGRAM [KILLS]
#
# Half of the KILLS are for training, a quarter each for averaging and quantizing.
set -eu
heed=${1:?usage: test_kill.sh PROGRAM [KILLS]}
kills=${2:-40}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

awk -v seed=1 -v lines=500 -v longest=9 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv"

# the same run each time; --out, --steps and --save-every are added
train=("$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 32
    --heads 2 --d-ff 64 --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --warmup 100
    --valid-pairs "$dir/valid.tsv" --valid-every 4 --no-bleu --keep 2 --seed 7 --threads 2 --resume
    --quiet)
head -n 20 "$dir/pairs.tsv" >"$dir/valid.tsv"

die() {
    echo "$1"
    exit 1
}

# killed SECONDS COMMAND...: kills the command after so long; fails where it had ended by then
killed() {
    local status=0
    local seconds=$1
    shift
    "$@" &
    pid=$!
    sleep "$seconds"
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || status=$?
    [ "$status" = 0 ] || [ "$status" = 137 ] || die "$1 $2 failed with status $status"
    [ "$status" = 137 ]
}

newest() {
    ls "$dir/killed/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1
}

# ---- training ----

before=0
for ((n = 0; n < (kills + 1) / 2;)); do
    killed "0.$((RANDOM % 6 + 1))$((RANDOM % 10))" \
        "${train[@]}" --out "$dir/killed" --save-every 3 --steps 1000000 && n=$((n + 1))
    step=$(newest)
    [ "${step:-0}" -ge "$before" ] || die "the checkpoint of step $before is lost"
    before=${step:-0}
    for checkpoint in "$dir"/killed/checkpoints/step-*; do
        case $checkpoint in
        *\** | *.tmp | *.old) continue ;;
        esac
        [ "$(ls "$checkpoint" | wc -l)" = 5 ] || die "$checkpoint is not whole"
    done
done
[ "$before" -gt 0 ] || die "no checkpoint after $kills kills: the runs never got going"
last=$((before + 5))
"${train[@]}" --out "$dir/killed" --save-every 3 --steps "$last"
"${train[@]}" --out "$dir/whole" --save-every 3 --steps "$last"
for file in model.safetensors best/model.safetensors checkpoints/step-$(printf %08d "$last")/state.safetensors; do
    cmp "$dir/killed/$file" "$dir/whole/$file"
done
if ls -d "$dir"/killed/checkpoints/*.tmp "$dir"/killed/checkpoints/*.old "$dir"/killed/checkpoints/damaged* \
    >/dev/null 2>&1; then
    die "half-written, half-removed or damaged checkpoints were left behind"
fi
# the log has every step once, in order
grep '"event":"step"' "$dir/killed/log.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/' |
    awk '$1 != NR { print "log.jsonl: line " NR " is of step " $1; exit 1 }
        END { if (NR != '"$last"') { print "log.jsonl has " NR " steps"; exit 1 } }'

# ---- averaging and quantizing ----

# The same checkpoints are named many times, so that averaging takes long enough to be killed.
inputs=("$dir"/whole/checkpoints/step-*)
for _ in 1 2 3 4 5; do inputs+=("${inputs[@]}"); done
"$heed" average --quiet --out "$dir/mean" "${inputs[@]}"
"$heed" quantize --quiet --out "$dir/int8" "$dir/mean"
sums=$(cat "$dir"/whole/checkpoints/*/* "$dir"/mean/* | cksum)

# many KILLS RIGHT COMMAND...: kills the command, which writes $dir/cut, KILLS times; the weights in
# $dir/cut are then absent or those of RIGHT, and without a kill they are those of RIGHT
many() {
    local right=$2 n
    local times=$1
    shift 2
    for ((n = 0; n < times;)); do
        killed "0.0$((RANDOM % 4))$((RANDOM % 10))" "$@" && n=$((n + 1))
        [ ! -e "$dir/cut/model.safetensors" ] || cmp "$dir/cut/model.safetensors" "$right/model.safetensors"
        if [ $((RANDOM % 2)) = 0 ]; then rm -rf "$dir/cut"; fi
    done
    "$@"
    for file in config.json vocab.model model.safetensors; do cmp "$dir/cut/$file" "$right/$file"; done
    [ "$sums" = "$(cat "$dir"/whole/checkpoints/*/* "$dir"/mean/* | cksum)" ] || die "an input has changed"
    rm -rf "$dir/cut"
}
many $((kills / 4)) "$dir/mean" "$heed" average --quiet --out "$dir/cut" "${inputs[@]}"
many $((kills / 4)) "$dir/int8" "$heed" quantize --quiet --out "$dir/cut" "$dir/mean"

# ---- asked to end ----

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

# timeout and others send the signal to the process and to its group: two at once count as one
begin asked
for _ in $(seq 20); do
    for _ in 1 2 3 4 5 6 7 8 9; do kill -TERM "$pid" 2>/dev/null || true; done
    sleep 0.001
done
saved asked 143

# closing the terminal (SIGHUP) saves as well, except under nohup
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
