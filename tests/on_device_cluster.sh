#!/bin/bash
# on_device_cluster.sh - training by several ranks that share one GPU, on a machine with a GPU and
# Open MPI, from the archive that on_device.sh made with libnccl.so.2: the same bytes however gradients are
# exchanged, what a rank that dies leaves behind, and times.
#
# usage: on_device_cluster.sh [same] [fast] [text] [base] [kill]     (default: all)
#
# Exit status: the number of checks that failed. Logs stay in $OUT/cluster or heed-device/out/cluster.
set -u
cd "$(dirname "$0")" || exit 1
out=${OUT:-$PWD/out}/cluster
dir=$(mktemp -d)
failures=0
mkdir -p "$out"
export LD_LIBRARY_PATH="$PWD/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
# one machine without ssh
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_orte_keep_fqdn_hostnames=0 OMPI_MCA_mca_base_component_show_load_errors=0
device=${DEVICE:-cuda:0}
mps=
nccl=()    # settings with which NCCL works here
nccl_with= # mps: it needs MPS as well

fail() {
    echo "FAILED  $1"
    failures=$((failures + 1))
}

# followed by the number of ranks and a command
mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n)

mps_start() {
    [ -z "$mps" ] && command -v nvidia-cuda-mps-control >/dev/null || return 1
    export CUDA_MPS_PIPE_DIRECTORY=$dir/mps CUDA_MPS_LOG_DIRECTORY=$dir/mps-log
    mkdir -p "$dir/mps" "$dir/mps-log"
    nvidia-cuda-mps-control -d >"$out/mps.log" 2>&1 || return 1
    mps=1
}

mps_stop() {
    [ -n "$mps" ] || return
    echo quit | timeout 20 nvidia-cuda-mps-control >>"$out/mps.log" 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps=
}
trap 'mps_stop; rm -rf "$dir"' EXIT

# steps NAME [FROM]: the median of the seconds of a step of a run in ms, of the steps after FROM, 20
steps() {
    sed -n 's/.*"step": *\([0-9]*\), *"event": *"step".*"seconds": *\([0-9.e-]*\).*/\1 \2/p' "$dir/$1/log.jsonl" |
        awk -v from="${2:-20}" '$1 > from && last { print ($2 - last) * 1000 } { last = $2 }' | sort -g |
        awk '{ x[NR] = $1 } END { if (NR) printf "%.2f", x[int((NR + 1) / 2)]; else printf "none" }'
}

# mean NAME FIELD [FROM]: the mean of a field of the steps
mean() {
    sed -n 's/.*"step": *\([0-9]*\), *"event": *"step".*"'"$2"'": *\([0-9.e+-]*\).*/\1 \2/p' "$dir/$1/log.jsonl" |
        awk -v from="${3:-20}" '$1 > from { sum += $2; n++ } END { printf "%.9g", n ? sum / n : 0 }'
}

# trained SECONDS NAME COMMAND...: a run; prints its step
trained() {
    local limit=$1 name=$2 status
    shift 2
    timeout -k 5 "$limit" "$@" --save-every 0 --out "$dir/$name" >"$out/$name.out" 2>"$out/$name.err"
    status=$?
    [ -f "$dir/$name/log.jsonl" ] && cp "$dir/$name/log.jsonl" "$out/$name.jsonl"
    if [ $status != 0 ]; then
        echo "        $name ended with status $status: $(grep -hE 'heed:|NCCL|rank' "$out/$name.err" "$out/$name.out" |
            cut -c1-300 | sort -u | head -8)"
        head -n 3 "$out/$name.err" | cut -c1-300
        return 1
    fi
    echo "good    $name: step $(steps "$name") ms, of which waited $(awk -v x="$(mean "$name" waited)" 'BEGIN { printf "%.2f", x * 1000 }')," \
        "for text $(awk -v x="$(mean "$name" text_waited)" 'BEGIN { printf "%.2f", x * 1000 }'); loss $(mean "$name" loss 59)"
}

# same A B: two runs wrote the same weights
same() {
    cmp -s "$dir/$1/model.safetensors" "$dir/$2/model.safetensors" || fail "$1 and $2 have other weights"
}

# ---- text ----

prepare() {
    local data=data/multi30k
    [ -f $data/train.en ] || { echo "no Multi30k in the archive"; exit 1; }
    paste $data/train.en $data/train.de >"$dir/train.tsv"
    bin/heed vocab --size 8000 --out "$dir/vocab.model" --quiet "$dir/train.tsv" || exit 1
    common=(bin/heed train --pairs "$dir/train.tsv" --vocab "$dir/vocab.model" --precision bf16 --device "$device"
        --seed 3 --quiet)
    small=("${common[@]}" --preset small --shards 8 --batch-tokens 16384 --threads 3)
}

# ---- NCCL between ranks that share a GPU ----

# Finds out how two ranks can share the GPU; sets nccl, and leaves MPS on where that is needed.
find_nccl() {
    local with set
    if [ ${#nccl[@]} -gt 0 ]; then
        [ $nccl_with = mps ] && mps_start
        return 0
    fi
    for with in mps plain; do
        if [ $with = mps ]; then mps_start || continue; else mps_stop; fi
        for set in "" NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"; do
            # shellcheck disable=SC2206 # one word a variable
            nccl=(env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_DEBUG=WARN $set)
            rm -rf "$dir/try"
            if trained 45 try "${mpi[@]}" 2 "${nccl[@]}" "${small[@]}" --steps 4 --link nccl >"$out/try"; then
                nccl_with=$with
                echo "two ranks share the GPU by NCCL with: $with ${nccl[*]:1}"
                return 0
            fi
            echo "        not with: $with ${nccl[*]:1}"
            cat "$out/try"
            grep -h 'NCCL WARN' "$out/try.err" "$out/try.out" | cut -c1-200 | sort -u | head -8
        done
    done
    nccl=()
    fail "NCCL cannot be used by two ranks that share a GPU"
    return 1
}

part_same() {
    local n
    trained 60 alone "${small[@]}" --steps 60 || fail alone
    trained 60 one_host "${mpi[@]}" 1 "${small[@]}" --steps 60 --link host || fail one_host
    trained 60 one_nccl "${mpi[@]}" 1 "${small[@]}" --steps 60 --link nccl || fail one_nccl
    trained 60 two_host "${mpi[@]}" 2 "${small[@]}" --steps 60 --link host || fail two_host
    trained 60 two_auto "${mpi[@]}" 2 "${small[@]}" --steps 60 || fail two_auto
    grep -q 'host memory: ranks 0 and 1 share a GPU' "$dir/two_auto/log.jsonl" || fail "two_auto does not say its way"
    for n in one_host one_nccl two_host two_auto; do same alone $n; done
    find_nccl || return
    for n in 2 4; do
        trained 90 ${n}_nccl "${mpi[@]}" $n "${nccl[@]}" "${small[@]}" --steps 60 --link nccl || fail "$n ranks by NCCL"
        same alone ${n}_nccl
    done
    grep -o 'gradients go[^"]*' "$dir/2_nccl/log.jsonl"
    # 2 and then 4 ranks over NCCL, and one without it at the end
    trained 60 pieces "${mpi[@]}" 2 "${nccl[@]}" "${small[@]}" --steps 20 --link nccl || fail pieces
    trained 60 pieces "${mpi[@]}" 4 "${nccl[@]}" "${small[@]}" --steps 40 --link nccl --resume || fail pieces
    trained 60 pieces "${small[@]}" --steps 60 --resume || fail pieces
    same alone pieces
    # without the variable NCCL refuses ranks that share a GPU
    if trained 40 refused "${mpi[@]}" 2 "${small[@]}" --steps 2 --link nccl >"$out/refused"; then
        fail "ranks share a GPU by NCCL without its variable"
    fi
    grep -h '^heed: ' "$out/refused.err" | head -2
    [ "$(grep -c '^heed: ' "$out/refused.err")" = 1 ] || fail "not one sentence where NCCL refuses"
}

part_fast() {
    [ -d "$dir/alone" ] || trained 60 alone "${small[@]}" --steps 60
    trained 60 one_fast "${mpi[@]}" 1 "${small[@]}" --steps 60 --link nccl --sum fast || fail one_fast
    same alone one_fast
    find_nccl || return
    trained 60 2_fast "${mpi[@]}" 2 "${nccl[@]}" "${small[@]}" --steps 60 --link nccl --sum fast || fail 2_fast
    cmp -s "$dir/alone/model.safetensors" "$dir/2_fast/model.safetensors" && echo "        2_fast has the same bytes"
    awk -v a="$(mean alone loss 50)" -v b="$(mean 2_fast loss 50)" 'BEGIN {
        printf "        loss of the last ten steps: exact %s, fast %s\n", a, b
        exit !(a > 0 && (a - b) * (a - b) < 1e-4 * a * a) }' || fail "the loss of the fast sum is another"
}

# Runs of `tiny`, whose steps are the shortest, through the index of 80 MB of text: with large batches, and
# with small ones, at fewer tokens a second.
part_text() {
    local tiny=("${common[@]/train.tsv/large.tsv}") tokens name
    for _ in $(seq 20); do cat "$dir/train.tsv"; done >"$dir/large.tsv"
    for tokens in 25000 6000; do
        name=tiny_$tokens
        trained 120 $name "${tiny[@]}" --preset tiny --batch-tokens $tokens --steps 1500 || fail $name
        awk -v ms="$(steps $name 100)" -v text="$(mean $name text_waited 100)" -v tokens="$(mean $name target_tokens 100)" \
            'BEGIN { printf "        tiny: %.0f target tokens/s, %.2f%% of a step waits for text\n", tokens / ms * 1000, 100000 * text / ms }'
    done
    rm "$dir/large.tsv"
}

# `base` with 25,000 tokens a shard: one process with no exchange of its gradients but the sum over its
# two shards, and one rank whose exchange goes through NCCL. Three runs of each in turn.
part_base() {
    local run=("${common[@]}" --preset base --shards 2 --batch-tokens 50000 --steps 80) i name
    for i in 1 2 3; do
        trained 60 base_none$i "${run[@]}" || fail base_none$i
        trained 60 base_nccl$i "${mpi[@]}" 1 "${run[@]}" --link nccl || fail base_nccl$i
        trained 60 base_fast$i "${mpi[@]}" 1 "${run[@]}" --link nccl --sum fast || fail base_fast$i
        for name in nccl fast; do same base_none$i base_$name$i; done
        for name in none nccl fast; do echo "$(steps base_$name$i)" >>"$dir/base_$name"; done
    done
    awk -v none="$(sort -g "$dir/base_none" | head -n 1)" -v nccl="$(sort -g "$dir/base_nccl" | head -n 1)" \
        -v fast="$(sort -g "$dir/base_fast" | head -n 1)" 'BEGIN {
        printf "        base, best of three: none %.2f ms, NCCL of one rank %.2f ms (%+.2f%%), with --sum fast %.2f ms (%+.2f%%)\n",
            none, nccl, 100 * (nccl / none - 1), fast, 100 * (fast / none - 1)
        exit !(nccl <= 1.02 * none) }' || fail "NCCL costs one rank more than 2%"
}

# The step of the newest whole checkpoint of the run that is killed.
newest() {
    ls "$dir/killed/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1
}

part_kill() {
    find_nccl || return
    "${mpi[@]}" 2 "${nccl[@]}" "${small[@]}" --save-every 10 --steps 1000000 --link nccl --out "$dir/killed" \
        >"$out/killed.out" 2>"$out/killed.err" &
    local pid=$! i ranks began
    for ((i = 0; i < 600; i++)); do [ -n "$(newest)" ] && break; sleep 0.1; done
    mapfile -t ranks < <(awk -v parent=$pid '$1 == "PPid:" && $2 == parent { split(FILENAME, f, "/"); print f[3] }' \
        /proc/[0-9]*/status 2>/dev/null)
    [ ${#ranks[@]} = 2 ] || { fail "killed: ${#ranks[@]} ranks"; kill $pid; return; }
    began=$(date +%s%N)
    kill -9 "${ranks[1]}"
    for ((i = 0; i < 300; i++)); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
    echo "        a rank of two was killed at step $(newest) or later; the job ended after $((($(date +%s%N) - began) / 1000000)) ms"
    grep -E 'heed:|rank [0-9]' "$out/killed.err" | head -3
    [ $i -lt 100 ] || fail "the job went on ten seconds after a rank was killed"
    kill -9 $pid "${ranks[@]}" 2>/dev/null
    wait $pid 2>/dev/null
    # The other rank must be gone, too, or the GPU is not free; the driver takes a moment to clean up.
    for pid in "${ranks[@]}"; do
        for ((i = 0; i < 50; i++)); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
        [ $i -lt 50 ] || fail "rank process $pid is still there"
    done
    mps_stop
    local end=$(($(newest) + 20))
    trained 60 killed "${mpi[@]}" 1 "${small[@]}" --steps $end --resume || fail "killed goes on"
    trained 60 unhurt "${small[@]}" --steps $end || fail unhurt
    same unhurt killed
}

prepare
[ $# -gt 0 ] || set -- same fast text base kill
for part in "$@"; do
    echo "---- $part"
    [ "$part" = same ] || [ "$part" = fast ] || [ "$part" = kill ] || mps_stop
    part_"$part"
done
echo "$failures checks of the cluster failed"
exit $failures
