# number.awk - numbers the words of sentences, and the tags of their linear trees in the same way.
#
#   awk [-v copies=K] -v side=words|linear -f number.awk FILE
#
# "The dog runs ." becomes "–7 The–8 dog–9 runs–10 .", and "(S (NP DT NN ) (VP VBZ ) . )" becomes
# "(S(NP–7 DT–8 NN )(VP–9 VBZ )–10 . )". Numbers go from 0 to 99 and then begin again; the first one
# depends on the line and on the copy of K, so that all of them are learned alike. A label follows
# without a space, as do numbers: both are pieces of the vocabulary. After a dash no sentence ends,
# so a long line is translated in one piece.
{
    for (copy = 0; copy < (copies ? copies : 1); copy++) {
        n = 7 * FNR + 37 * copy
        line = ""
        for (i = 1; i <= NF; i++) {
            if (side == "words") line = line "–" n++ % 100 " " $i
            else if ($i ~ /^\(/) line = line $i
            else if ($i == ")") line = line " )"
            else line = line "–" n++ % 100 " " $i
        }
        print line
    }
}
