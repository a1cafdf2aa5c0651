# hidden.awk - lets through the lines that have no hidden sentence among their fields.
#
#   awk -v hidden=SENTENCES -v name=NAME -f hidden.awk LINES
#
# Sentences are compared without case, spaces, punctuation and the tag in front. In bytes (LC_ALL=C),
# which every awk can: ASCII; the full-width forms, the marks of Chinese and the ideographic space; dashes,
# quotes and dots of U+2010 to U+205E; those of Latin-1; and the capital umlauts.
function bare(s)
{
    sub(/^>>..<< /, "", s)
    s = tolower(s)
    gsub(/[ -\/:-@[-`{-~]/, "", s)
    gsub(/\343\200[\200-\277]|\357\274[\201-\217\232-\240\273-\277]|\357\275[\200\233-\245]/, "", s)
    gsub(/\342\200[\220-\277]|\342\201[\200-\236]|\302[\240\241\253\264\267\273\277]/, "", s)
    gsub(/\303\204/, "\303\244", s)
    gsub(/\303\226/, "\303\266", s)
    gsub(/\303\234/, "\303\274", s)
    return s
}
BEGIN {
    FS = "\t"
    while ((got = (getline line <hidden)) > 0)
        seen[bare(line)] = 1
    delete seen[""]
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
