#!/bin/bash
# cluster_link.sh - measures training steps of two ranks, one on each side of a link of a given rate and
# delay between two network namespaces; bench/cluster_model predicts the same figures.
#
# usage: cluster_link.sh PROGRAM PRESET BATCH_TOKENS STEPS RATE DELAY...
#
# RATE is tc's, such as 1gbit, or - for no limit; DELAY is in milliseconds in each direction, 0 for none.
# Further pairs of RATE and DELAY are measured one after the other. Prints the speed of the link
# (link_speed.py) and the medians of the seconds of a step and of those that rank 0 waited in it. Needs
# root and Python; delays also a TUN device (delay_link.py), because not every kernel has tc's netem.
set -eu
heed=$(realpath "${1:?}") preset=$2 tokens=$3 steps=$4
shift 4
here=$(realpath "$(dirname "$0")")
dir=$(mktemp -d)
a=heed-a-$$ b=heed-b-$$
relay=
clean() {
    [ -z "$relay" ] || kill "$relay" 2>/dev/null || true
    for host in $a $b; do ip netns del $host 2>/dev/null || true; done
    rm -rf "$dir"
}
trap clean EXIT

cat >"$dir/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname host-b; \$*"
END
chmod +x "$dir/agent"
awk -v seed=1 -v lines=20000 -v longest=30 -f "$here/../tests/reversals.awk" >"$dir/pairs.tsv"
"$heed" vocab --size 275 --out "$dir/vocab.model" --quiet "$dir/pairs.tsv"

# link RATE DELAY: two namespaces with a device link0 each
link() {
    for host in $a $b; do
        ip netns add $host
        ip -n $host link set lo up
        # TCP would begin slowly again after each backward.
        ip netns exec $host sysctl -qw net.ipv4.tcp_slow_start_after_idle=0
    done
    if [ "$2" = 0 ]; then
        ip -n $a link add link0 type veth peer name link0 netns $b
    else
        python3 "$here/delay_link.py" $a $b link0 "$2" &
        relay=$!
        until ip -n $b link show link0 >/dev/null 2>&1; do sleep 0.1; done
    fi
    ip -n $a addr add 10.99.0.1/24 dev link0
    ip -n $b addr add 10.99.0.2/24 dev link0
    for host in $a $b; do
        ip -n $host link set link0 up
        [ "$1" = - ] || ip netns exec $host tc qdisc add dev link0 root tbf rate "$1" burst 64kb limit 16mb
    done
}

unlink() {
    [ -z "$relay" ] || { kill "$relay" && wait "$relay" || true; } 2>/dev/null
    relay=
    for host in $a $b; do ip netns del $host; done
    sleep 0.5
}

# median: of numbers, one a line
median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.4f", v[int((NR + 1) / 2)] }'; }

# measure RATE DELAY
measure() {
    link "$1" "$2"
    speed=$(python3 "$here/link_speed.py" $a $b 10.99.0.1 3000000)
    rm -rf "$dir/model"
    ip netns exec $a unshare --uts sh -c 'hostname host-a && exec "$@"' sh \
        mpirun --allow-run-as-root --oversubscribe --bind-to none --host 10.99.0.1,10.99.0.2 -n 2 \
        --mca plm_rsh_agent "$dir/agent" --mca plm_rsh_no_tree_spawn 1 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.99.0.0/24 --mca oob_tcp_if_include 10.99.0.0/24 \
        "$heed" train --pairs "$dir/pairs.tsv" --vocab "$dir/vocab.model" --preset "$preset" --quiet \
        --batch-tokens "$tokens" --shards "${SHARDS:-2}" --threads 1 --steps "$steps" --save-every 0 --out "$dir/model"
    for field in seconds waited; do
        sed -n "s/.*\"event\":\"step\".*\"$field\":\([0-9.e-]*\).*/\1/p" "$dir/model/log.jsonl" >"$dir/$field"
    done
    # log.jsonl has the seconds since the start
    step=$(awk 'NR > 2 { print $1 - last } { last = $1 }' "$dir/seconds" | median)
    echo "$1 $2 ms: link $speed MB/s, step $step s, waited $(tail -n +3 "$dir/waited" | median) s"
    unlink
}

while [ $# -ge 2 ]; do
    measure "$1" "$2"
    shift 2
done
