#!/bin/sh
# large_text.sh - writes a corpus of tab-separated pairs for measurements: 200 bytes a pair, words
# that are as frequent as those of a language (the n-th in proportion to 1/n).
#
# usage: large_text.sh PAIRS FILE
#
# The text of 320,000 pairs is repeated as often as needed. 50 million pairs are 10 GB.
set -eu
pairs=${1:?usage: large_text.sh PAIRS FILE} file=${2:?usage: large_text.sh PAIRS FILE}
part=$(mktemp "${TMPDIR:-/tmp}/heed-part-XXXXXX")
trap 'rm -f "$part"' EXIT
awk -v pairs=320000 -v words=200000 'BEGIN {
    srand(1)
    for (i = 0; i < words; i++) {
        word[i] = ""
        for (n = 2 + int(rand() * 3) + int(i > 300) * int(rand() * 4); n > 0; n--)
            word[i] = word[i] substr("etaoinshrdlu", 1 + int(rand() * 12), 1) \
                substr("aeiouscmnrt", 1 + int(rand() * 11), 1)
    }
    for (; pairs > 0; pairs--) {
        line = ""
        for (side = 0; side < 2; side++) {
            text = word[int(words ^ rand()) - 1]
            for (bytes = 70 + int(rand() * 54); length(text) < bytes;)
                text = text " " word[int(words ^ rand()) - 1]
            line = line (side ? "\t" : "") text
        }
        print line
    }
}' >"$part"
: >"$file"
for _ in $(seq $((pairs / 320000))); do cat "$part"; done >"$file"
head -n $((pairs % 320000)) "$part" >>"$file"
