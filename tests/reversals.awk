# reversals.awk - pairs for a small task: letters with spaces between, tab, the same in reverse. All
# different, and the same each time: the random numbers are our own, because rand() differs between
# kinds of awk, and in some even between runs with one seed.
#
# usage: awk -v seed=N -v lines=N -v longest=N -f reversals.awk
function random() # in [0, 1), by the generator of Park and Miller
{
    state = state * 16807 % 2147483647
    return (state - 1) / 2147483646
}
BEGIN {
    state = 1 + seed
    random()
    while (made < lines) {
        n = 2 + int(random() * (longest - 1))
        s = r = ""
        for (i = 0; i < n; i++) {
            c = substr("abcdefghijkl", 1 + int(random() * 12), 1)
            s = s (i ? " " : "") c
            r = c (i ? " " : "") r
        }
        if (seen[s]++) continue
        print s "\t" r
        made++
    }
}
