#!/bin/bash
# test_cluster_hosts.sh - training on two hosts: two network namespaces with a link between them,
# over which Open MPI speaks TCP. The same bytes as on one; when the link is cut, or the disk is
# full, the job ends within ten seconds with a sentence that names rank and host, and goes on later.
#
# usage: test_cluster_hosts.sh PROGRAM
#
# Needs root, for the namespaces; skipped otherwise.
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
# shellcheck source=tests/mpi.sh
. "$(dirname "$0")/mpi.sh"

a=heed-a-$$ b=heed-b-$$
clean() {
    umount "$dir/disk" 2>/dev/null
    for host in $a $b; do
        # shellcheck disable=SC2046 # process ids; those of this test's namespaces alone
        kill -9 $(ip netns pids $host 2>/dev/null) 2>/dev/null
        ip netns del $host 2>/dev/null
    done
    rm -rf "$dir"
}
trap clean EXIT
if ! { ip netns add $a && ip netns add $b && unshare --uts true; } 2>/dev/null; then
    echo "skipped: network namespaces cannot be made here"
    exit 77
fi
ip -n $a link add link0 type veth peer name link1 netns $b
ip -n $a addr add 10.99.0.1/24 dev link0
ip -n $b addr add 10.99.0.2/24 dev link1
for host in $a $b; do ip -n $host link set lo up; done
ip -n $a link set link0 up
ip -n $b link set link1 up

# What mpirun takes for ssh: it starts a command on the host with this address.
cat >"$dir/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname host-b; \$*"
END
chmod +x "$dir/agent"

awk -v seed=1 -v lines=400 -v longest=9 -f "$(dirname "$0")/reversals.awk" >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv" || exit 1
run=("$(realpath "$heed")" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset tiny --d-model 32
    --heads 2 --d-ff 64 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --warmup 50 --seed 7
    --save-every 5 --shards 4 --threads 1 --quiet)

# hosts OPTIONS...: a training with two ranks on each host. mpirun itself needs the keepalive
# options (docs/cluster.md) to notice that it cannot reach the other host.
hosts() {
    timeout -k 5 60 ip netns exec $a unshare --uts sh -c 'hostname host-a && exec "$@"' sh \
        mpirun --allow-run-as-root --oversubscribe --bind-to none --host 10.99.0.1:2,10.99.0.2:2 -n 4 \
        --mca plm_rsh_agent "$dir/agent" --mca plm_rsh_no_tree_spawn 1 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.99.0.0/24 --mca oob_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
        "${run[@]}" "$@" >"$dir/out" 2>"$dir/err"
}

# ended PID PATTERN: within ten seconds, with one sentence of ours
ended() {
    for ((i = 0; i < 100; i++)); do kill -0 "$1" 2>/dev/null || break; sleep 0.1; done
    if kill -0 "$1" 2>/dev/null; then
        fail "the job goes on for ten seconds"
        kill "$1"
    fi
    wait "$1" && fail "the job ended well"
    if ! grep -Eq -- "$2" "$dir/err" || [ "$(grep -c '^heed: ' "$dir/err")" != 1 ]; then
        fail "expected one sentence with '$2'"
    fi
}

# begin NAME: starts a long run in the background and waits for a checkpoint; sets pid
begin() {
    hosts --steps 1000000 --out "$dir/$1" &
    pid=$!
    until compgen -G "$dir/$1/checkpoints/step-????????" >/dev/null || ! kill -0 $pid 2>/dev/null; do
        sleep 0.1
    done
}

hosts --steps 12 --out "$dir/two" || fail "two hosts: failed"
"${run[@]}" --steps 12 --out "$dir/one" || fail "one host: failed"
cmp -s "$dir/one/model.safetensors" "$dir/two/model.safetensors" || fail "two hosts: other bytes"

# a link over which packets vanish: each side sends to an address that nobody has
begin cut
ip -n $a neigh replace 10.99.0.2 lladdr 02:00:00:00:00:01 dev link0 nud permanent
ip -n $b neigh replace 10.99.0.1 lladdr 02:00:00:00:00:01 dev link1 nud permanent
ended $pid 'rank [23] on host host-b has not answered rank 0 on host host-a'
ip -n $a neigh del 10.99.0.2 dev link0
ip -n $b neigh del 10.99.0.1 dev link1
sleep 4 # for the ranks of the other host, which end by themselves
[ -z "$(ip netns pids $b | xargs -r ps -o comm= -p | grep heed)" ] || fail "ranks on the other host go on"
step=$(ls "$dir/cut/checkpoints" | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1)
hosts --steps $((step + 5)) --out "$dir/cut" --resume || fail "after a cut: failed"
"${run[@]}" --steps $((step + 5)) --out "$dir/uncut" || fail "uncut: failed"
cmp -s "$dir/cut/model.safetensors" "$dir/uncut/model.safetensors" || fail "after a cut: other bytes"

# a disk that fills up
mkdir "$dir/disk"
mount -t tmpfs -o size=1m none "$dir/disk"
hosts --steps 1000000 --keep 9 --out "$dir/disk/run" &
ended $! 'rank 0 on host host-a: .*No space left on device'
mount -o remount,size=64m "$dir/disk"
hosts --steps 60 --keep 9 --out "$dir/disk/run" --resume || fail "after a full disk: failed"
"${run[@]}" --steps 60 --out "$dir/roomy" || fail "roomy: failed"
cmp -s "$dir/disk/run/model.safetensors" "$dir/roomy/model.safetensors" || fail "after a full disk: other bytes"

exit $((failures > 0))
