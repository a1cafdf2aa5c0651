#!/bin/bash
# test_cluster.sh - training by several processes under mpirun: the same bytes for any number of
# ranks and threads, also after a rank was killed and the run went on with another number of them;
# and what is refused at the start.
#
# usage: test_cluster.sh PROGRAM [KILLS]
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
# shellcheck source=tests/mpi.sh
. "$(dirname "$0")/mpi.sh"

awk -v seed=1 -v lines=400 -v longest=9 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs.tsv"
head -n 24 "$dir/pairs.tsv" >"$dir/valid.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv" || exit 1
run=("$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 32
    --heads 2 --d-ff 64 --encoder-layers 1 --decoder-layers 2 --batch-tokens 512 --warmup 50
    --valid-pairs "$dir/valid.tsv" --valid-every 3 --keep 2 --seed 7 --quiet)

# same A B: the files of two runs that depend on nothing but the options
same() {
    local file
    for file in model.safetensors best/model.safetensors samples.jsonl \
        "$(cd "$dir/$1" && ls checkpoints/*/state.safetensors | tail -n 1)"; do
        cmp -s "$dir/$1/$file" "$dir/$2/$file" || fail "$file of $1 and $2 differ"
    done
    for log in "$1" "$2"; do sed 's/,"\(tokens_s\|seconds\)":.*//' "$dir/$log/log.jsonl" >"$dir/$log.log"; done
    cmp -s "$dir/$1.log" "$dir/$2.log" || fail "log.jsonl of $1 and $2 differ"
}

# trained N THREADS NAME OPTIONS...: a run by N ranks
trained() {
    local n=$1 threads=$2 name=$3
    shift 3
    timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$n" "${run[@]}" \
        --threads "$threads" --out "$dir/$name" "$@" >"$dir/out" 2>"$dir/err" ||
        fail "$name: training with $n ranks failed"
}

# ---- the same bytes ----

forms=("" "--accumulate 2 --precision bf16" "--ff moe --experts 4 --norm pre")
for i in "${!forms[@]}"; do
    # shellcheck disable=SC2206 # one word an option
    form=(${forms[i]})
    "${run[@]}" --threads 1 --shards 8 --steps 6 --out "$dir/alone$i" "${form[@]}" || fail "alone$i"
    for n in 1 2 4 8; do
        trained $n $((n % 3 == 1 ? 1 : 2)) "ranks$i.$n" --steps 6 "${form[@]}"
        same "alone$i" "ranks$i.$n"
    done
    trained 4 1 "pieces$i" --steps 3 "${form[@]}"
    trained 2 1 "pieces$i" --steps 6 --resume "${form[@]}"
    for file in model.safetensors best/model.safetensors checkpoints/step-00000006/state.safetensors; do
        cmp -s "$dir/alone$i/$file" "$dir/pieces$i/$file" || fail "$file of pieces$i differs"
    done
done
"${run[@]}" --threads 1 --steps 6 --out "$dir/whole" || fail whole
cmp -s "$dir/whole/model.safetensors" "$dir/alone0/model.safetensors" && fail "shards change nothing"

# a run goes on without mpirun
trained 8 1 pieces --steps 4
"${run[@]}" --threads 2 --steps 6 --out "$dir/pieces" --resume || fail pieces
cmp -s "$dir/pieces/model.safetensors" "$dir/alone0/model.safetensors" || fail "in pieces: other bytes"

# ---- a rank that dies ----

kills=${2:-3}
whole=$((kills * 60))
"${run[@]}" --threads 1 --shards 8 --steps $whole --save-every 4 --out "$dir/unhurt" || fail unhurt
"$(dirname "$0")/cluster_kill.sh" "$heed" "$dir" "$kills" "$whole" "${run[@]:2}" >"$dir/err" 2>&1 ||
    fail "killing ranks"
cmp -s "$dir/killed/model.safetensors" "$dir/unhurt/model.safetensors" || fail "killed: other bytes"

# ---- what is refused ----

# refused PATTERN COMMAND...: fails within ten seconds, with one sentence of ours
refused() {
    local pattern=$1
    shift
    if timeout -k 5 10 "$@" >"$dir/out" 2>"$dir/err" || ! grep -Eq -- "$pattern" "$dir/err" ||
        [ "$(grep -c '^heed: ' "$dir/err")" != 1 ]; then
        fail "$*: expected one sentence with '$pattern'"
    fi
}
mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none)
one=("${run[@]}" --threads 1 --steps 2)
new=0
fresh() {
    new=$((new + 1))
    out="$dir/new$new"
}
fresh
refused "8 shards cannot be divided among 3 ranks" "${mpi[@]}" -n 3 "${one[@]}" --out "$out"
fresh
refused "2 shards cannot be divided among 4 ranks" "${mpi[@]}" -n 4 "${one[@]}" --out "$out" --shards 2
fresh
refused "shards is 6, expected a power of two" "${mpi[@]}" -n 2 "${one[@]}" --out "$out" --shards 6
refused "was begun with --shards 8, found 4" "${mpi[@]}" -n 2 "${run[@]}" --steps 9 --out "$dir/unhurt" \
    --shards 4 --resume
refused "holds a run at step .* already" "${mpi[@]}" -n 2 "${one[@]}" --out "$dir/unhurt"
fresh
refused "rank 0 on host .* has --seed 7, rank 1 on host .* has --seed 8" \
    "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]/#7/8}" --out "$out"
fresh
sed 's/a/b/' "$dir/pairs.tsv" >"$dir/other.tsv"
refused "training text of .*, rank 1 on host .* has training text of" \
    "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]/pairs.tsv/other.tsv}" --out "$out"
fresh
refused "rank 1 on host .*: the output directory $out.b is not that of rank 0" \
    "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]}" --out "$out.b"
fresh
refused "no-such-file" "${mpi[@]}" -n 2 "${one[@]/pairs.tsv/no-such-file}" --out "$out"
refused "rank 1 on host .*no-such-file" \
    "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]/pairs.tsv/no-such-file}" --out "$out"
fresh
refused "rank 1 on host .*: device is 'none'" \
    "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]}" --out "$out" --device none
refused "no option --wrong" "${mpi[@]}" -n 4 "${one[@]}" --out "$out" --wrong
refused "no option --wrong" "${mpi[@]}" -n 1 "${one[@]}" --out "$out" : -n 1 "${one[@]}" --out "$out" --wrong
refused "link is nccl, but the device 'cpu' has no NCCL" "${mpi[@]}" -n 2 "${one[@]}" --out "$out" --link nccl
refused "sum is fast, which needs NCCL" "${mpi[@]}" -n 2 "${one[@]}" --out "$out" --sum fast
refused "link is nccl, but the device 'cpu' has no NCCL" "${one[@]}" --out "$out" --link nccl

exit $((failures > 0))
