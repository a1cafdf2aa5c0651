# baseline.awk - right-branching trees: every word begins a constituent that goes to the end.
#
#   awk -f baseline.awk TRAIN.linear TEST.words
#
# The root has the most frequent label of roots in the training trees; the others have the most
# frequent label of constituents that go to the end of the sentence. A mark at the end is left at
# the root. Written are linear trees for `heed tree --restore`.
FNR == NR {
    depth = 0
    last = NF - 1 # where the last word is, a mark at the end left aside
    while (last > 1 && $last ~ /^([.:)]|'')$/) last--
    for (i = 1; i <= NF; i++) {
        if ($i == ")") {
            if (depth > 1 && i > last) inner_count[label[depth]]++
            depth--
        } else if ($i ~ /^\(/) {
            label[++depth] = substr($i, 2)
            if (depth == 1) root_count[label[1]]++
        }
    }
    next
}
FNR == 1 {
    top = most(root_count)
    inner = most(inner_count)
}
{
    end = $NF ~ /^[.?!]$/ && NF > 1 ? NF - 1 : NF
    line = "(" top
    for (i = 1; i < end; i++) line = line " NN (" inner
    line = line " NN"
    for (i = 1; i < end; i++) line = line " )"
    print line (end < NF ? " . )" : " )")
}

function most(count,    name, found)
{
    for (name in count) if (!found || count[name] > count[found]) found = name
    return found
}
