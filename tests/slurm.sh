#!/bin/bash
# slurm.sh - the batch file of docs/cluster.md under Slurm: a controller and a node of its own on this
# machine, which are gone afterwards. Two ranks train; scancel saves a checkpoint; the same command
# goes on, to the bytes of a run without Slurm. So does mpirun within an allocation.
#
# usage: slurm.sh PROGRAM
#
# Needs root and the packages slurmctld, slurmd, slurm-client and munge, and two cores.
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
here=$(realpath "$(dirname "$0")")
HEED=$(realpath "$heed")
export HEED SLURM_CONF=$dir/slurm.conf

for program in slurmctld slurmd sbatch munged; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || { echo "slurm.sh: there is no $program"; exit 1; }
done

# ---- a cluster of one node ----

stop() {
    [ -z "${job:-}" ] || scancel --quiet "$job" 2>/dev/null
    for name in slurmd slurmctld munged; do
        local pid i
        pid=$(cat "$dir/$name.pid" 2>/dev/null) && kill "$pid" || continue
        for ((i = 0; i < 100; i++)); do kill -0 "$pid" 2>/dev/null && sleep 0.1; done
    done
    rm -rf "$dir"
}
trap stop EXIT
mkdir "$dir/state" "$dir/spool"
chmod 755 "$dir" # munged refuses a socket that others cannot reach
head -c 128 /dev/urandom >"$dir/key"
chmod 600 "$dir/key"
cat >"$SLURM_CONF" <<END
ClusterName=heed
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmctldPort=17817
SlurmdPort=17818
AuthInfo=socket=$dir/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES
END
PATH=$PATH:/usr/sbin
munged --force --socket="$dir/munge" --key-file="$dir/key" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" \
    --seed-file="$dir/seed" && slurmctld -c && slurmd -c || exit 1
for ((i = 0; i < 100; i++)); do
    [ "$(sinfo --noheader --format %T 2>/dev/null)" = idle ] && break
    sleep 0.2
done
sinfo

# ---- training ----

awk -v seed=1 -v lines=400 -v longest=9 -f "$here/reversals.awk" >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv" || exit 1
run=(--pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 32 --heads 2 --d-ff 64
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --warmup 50 --seed 7 --save-every 0 --shards 8)

# submit STEPS: prints the number of the job
submit() {
    sbatch --parsable --output "$dir/job.log" "$here/../contrib/slurm/heed-train.sbatch" "${run[@]}" --steps "$1" \
        --out "$dir/model"
}
# finished JOB: waits for its end, at most a minute
finished() {
    for ((i = 0; i < 300; i++)); do
        [ -n "$(squeue --noheader --jobs "$1" 2>/dev/null)" ] || return 0
        sleep 0.2
    done
    fail "job $1 goes on"
}
step() { ls "$dir/model/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1; }

job=$(submit 1000000)
for ((i = 0; i < 300; i++)); do
    [ "$(cat "$dir/model/log.jsonl" 2>/dev/null | wc -l)" -lt 10 ] || break
    sleep 0.2
done
squeue
srun_tasks=$(scontrol show step "$job.0" | grep -o 'Tasks=[0-9]*')
[ "$srun_tasks" = Tasks=2 ] || fail "expected a step with 2 tasks, found '$srun_tasks'"
[ -z "$(step)" ] || fail "there is a checkpoint before scancel"
scancel "$job"
finished "$job"
saved=$(step)
[ -n "$saved" ] || fail "scancel: no checkpoint was saved"
echo "job $job was cancelled and has saved step $saved"

last=$((${saved:-0} + 20))
job=$(submit $last)
finished "$job"
[ "$(step)" = $last ] || fail "the second job has not gone on to step $last, but to '$(step)'"
echo "job $job went on to step $(step)"
"$heed" train "${run[@]}" --threads 1 --steps $last --out "$dir/alone" --quiet || fail "a run without Slurm: failed"
cmp "$dir/alone/model.safetensors" "$dir/model/model.safetensors" || fail "srun: other bytes than without Slurm"
timeout -k 5 60 salloc --quiet --ntasks 2 mpirun --allow-run-as-root "$heed" train "${run[@]}" --threads 1 --steps $last \
    --out "$dir/mpirun" --quiet || fail "mpirun within an allocation: failed"
cmp "$dir/alone/model.safetensors" "$dir/mpirun/model.safetensors" || fail "mpirun: other bytes than without Slurm"
cat "$dir/job.log"

exit $((failures > 0))
