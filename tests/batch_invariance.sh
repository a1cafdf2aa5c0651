#!/bin/bash
# batch_invariance.sh - a translation depends on its line and nothing else: not on the lines around
# it, on their order, on how many are translated at once or on the threads, to the last bit of the
# scores, in every kind of weights. The outputs are compared with cmp.
#
# usage: batch_invariance.sh PROGRAM MODEL TEXT [BEAMS]     (default: "1 4")
set -eu
usage="usage: batch_invariance.sh PROGRAM MODEL TEXT [BEAMS]"
heed=${1:?$usage} model=${2:?$usage} text=${3:?$usage} beams=${4:-1 4}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lines=$(wc -l <"$text")

# a file and not a variable, because some checks run in subshells
fail() {
    echo "$*"
    touch "$dir/failed"
}
translate() {
    "$heed" translate --model "$model" --quiet --json "$@"
}
# the number of the line is all that may differ
unnumbered() {
    sed 's/^{"line": [0-9]*, //'
}
same() {
    unnumbered | cmp - "$dir/whole" || fail "$*"
}

# the numbers of the lines in another order, always the same
awk '{ print (NR * 7919) % 10007, NR }' "$text" | sort -n | cut -d ' ' -f 2 >"$dir/order"
awk 'NR == FNR { line[NR] = $0; next } { print line[$1] }' "$text" "$dir/order" >"$dir/mixed"
mkfifo "$dir/to" "$dir/from"
for weights in f32 bf16 int8; do
    for beam in $beams; do
        options="--weights $weights --beam $beam --nbest $beam"
        what="$weights, beam $beam"
        translate $options --threads 2 <"$text" | unnumbered >"$dir/whole"
        n=$(wc -l <"$dir/whole")
        [ "$n" = "$lines" ] || fail "$what: $n lines for $lines"
        for threads in 1 3; do
            translate $options --threads $threads <"$text" | same "$what: $threads threads and two differ"
        done
        for sentences in 1 7 64; do
            translate $options --threads 2 --batch-tokens $((sentences * 32)) <"$text" |
                same "$what: batches of $sentences differ"
        done
        translate $options --threads 2 <"$dir/mixed" | unnumbered | paste "$dir/order" - | sort -n | cut -f 2- |
            same "$what: the order of the lines matters"
        # each line is answered before the next is sent, so that none has company
        translate $options --threads 1 --interactive <"$dir/to" >"$dir/from" &
        exec 3>"$dir/to" 4<"$dir/from"
        while IFS= read -r line; do
            echo "$line" >&3
            IFS= read -t 60 -r answer <&4 || break
            echo "$answer"
        done <"$text" >"$dir/alone"
        exec 3>&- 4<&-
        wait $! || fail "$what: --interactive failed"
        same "$what: alone it differs" <"$dir/alone"
    done
done
[ ! -e "$dir/failed" ] || exit 1
echo "$lines lines do not meet"
