# reversals.awk - pairs for a small task: letters with spaces between, tab, the same in reverse. All
# different, and the same each time.
#
# usage: awk -v seed=N -v lines=N -v longest=N -f reversals.awk
BEGIN {
    srand(seed)
    while (made < lines) {
        n = 2 + int(rand() * (longest - 1))
        s = r = ""
        for (i = 0; i < n; i++) {
            c = substr("abcdefghijkl", 1 + int(rand() * 12), 1)
            s = s (i ? " " : "") c
            r = c (i ? " " : "") r
        }
        if (seen[s]++) continue
        print s "\t" r
        made++
    }
}
