#!/bin/bash
# cluster_kill.sh - kills a random rank of a training with -9 at a random moment, again and again,
# and goes on with another number of ranks each time, up to the last step.
#
# usage: cluster_kill.sh PROGRAM DIRECTORY KILLS STEPS OPTIONS...
#
# OPTIONS are those of heed train; the run is DIRECTORY/killed, with 8 shards. After a kill all
# processes must be gone within ten seconds.
set -u
heed=$1 dir=$2 kills=$3 steps=$4
shift 4
train=("$heed" train "$@" --threads 1 --save-every 4 --resume --out "$dir/killed")
counts=(8 2 4 1)

# mpi N STEPS: starts a run of N ranks in the background; sets pid
mpi() {
    mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$1" "${train[@]}" --shards 8 --steps "$2" \
        >/dev/null 2>"$dir/killed.err" &
    pid=$!
}

# The step of the newest whole checkpoint.
newest() {
    ls "$dir/killed/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1
}

for ((k = 0; k < kills; k++)); do
    n=${counts[k % 3]}
    before=$(newest)
    mpi "$n" 1000000
    # not before a new checkpoint is there, so that the run gets on
    until [ "$(newest)" != "$before" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    sleep "0.0$((RANDOM % 10))"
    # shellcheck disable=SC2207 # process ids
    ranks=($(pgrep -P "$pid" -x heed))
    [ ${#ranks[@]} -gt 0 ] || { echo "no ranks to kill: $(cat "$dir/killed.err")"; exit 1; }
    kill -9 "${ranks[RANDOM % ${#ranks[@]}]}"
    for ((i = 0; i < 100; i++)); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
    if kill -0 $pid 2>/dev/null; then
        echo "the job goes on ten seconds after a rank was killed"
        kill -9 $pid "${ranks[@]}"
        exit 1
    fi
    wait $pid && { echo "the job ended well after a rank was killed"; exit 1; }
    grep -Eq 'rank [0-9]+ .*on node|rank [0-9]+ on host' "$dir/killed.err" ||
        { echo "nobody says which rank was lost: $(cat "$dir/killed.err")"; exit 1; }
    step=$(newest)
    echo "kill $((k + 1)) with $n ranks: checkpoint of step $step"
done
[ "$step" -le "$steps" ] || { echo "the run is at step $step already, past $steps"; exit 1; }
mpi "${counts[k % 4]}" "$steps"
wait $pid || { cat "$dir/killed.err"; exit 1; }
