# hidden.awk - lets through the lines that have no hidden sentence among their fields.
#
#   awk -v hidden=SENTENCES -v name=NAME -f hidden.awk LINES
#
# Sentences are compared without case, spaces, ASCII punctuation and the tag in front.
function bare(s)
{
    sub(/^>>..<< /, "", s)
    s = tolower(s)
    gsub(/[ -\/:-@[-`{-~]/, "", s)
    return s
}
BEGIN {
    FS = "\t"
    while ((got = (getline line <hidden)) > 0)
        if (bare(line) != "") seen[bare(line)] = 1
    if (got < 0) { # without them nothing would be left out
        print "hidden.awk: cannot read " hidden >"/dev/stderr"
        exit 1
    }
}
{
    for (i = 1; i <= NF; i++)
        if (bare($i) in seen) {
            dropped++
            next
        }
    print
}
END { print name ": " NR " lines, " dropped + 0 " left out" >"/dev/stderr" }
