#!/bin/sh
# check_includes.sh - fails when a file of src/ includes what its directory may not.
#
# usage: check_includes.sh SOURCE_DIRECTORY
#
# Each directory of src/ may include its own headers, the C library's and what the table below
# lists for it: a directory ("base/": the headers right in it), or a header of a library that is
# not ours. Prints every include that the table does not allow and fails if there is one.
set -eu
cd "${1:?usage: check_includes.sh SOURCE_DIRECTORY}/src"

# shellcheck disable=SC2016 # the dollars are awk's
find . -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.hh' | sort | xargs awk '
BEGIN {
    allow["base"]     = "heed.h unicode/utf8.h"
    allow["cluster"]  = "heed.h base/ mpi.h"
    allow["corpus"]   = "heed.h base/ tokens/ sentencepiece_trainer.h zlib.h lzma.h"
    allow["tokens"]   = "heed.h base/ sentencepiece_processor.h unicode/"
    allow["tree"]     = "heed.h base/"
    allow["score"]    = "heed.h base/ tree/ unicode/"
    allow["ops"]      = "heed.h base/"
    allow["ops/ref"]  = "heed.h base/ ops/"
    allow["ops/cpu"]  = "heed.h base/ ops/ omp.h oneapi/dnnl/"
    allow["ops/cuda"] = "heed.h base/ ops/ cuda cublas nccl.h"
    allow["model"]    = "heed.h base/ ops/ jansson.h"
    allow["store"]    = "heed.h base/ ops/ model/ tokens/ jansson.h zlib.h"
    allow["train"]    = "heed.h base/ ops/ model/ store/ corpus/ tokens/ decode/ cluster/ jansson.h"
    allow["decode"]   = "heed.h base/ ops/ model/ store/ corpus/ tokens/"
    allow["study"]    = "heed.h base/ ops/ model/ store/ corpus/ tokens/ decode/"
    allow["paper"]    = "heed.h base/ ops/ model/ corpus/ train/ view/ jansson.h"
    allow["view"]     = "heed.h base/ tree/"
    allow["serve"]    = "heed.h microhttpd.h jansson.h unicode/utf8.h"
    allow["cli"]      = "heed.h serve/ unicode/utf8.h"
    foreign = "^(sentencepiece|unicode/|jansson|zlib|lzma|omp\\.h|oneapi/|dnnl|cuda|cublas|nccl" \
              "|mpi\\.h|microhttpd|cmocka)"
}

function directory_of(path)
{
    return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : ""
}

# Our headers are in quotes, with their path from src/; a header without a path is in `from`, except
# heed.h. Headers in angle brackets are checked only if they belong to a library other than libc.
function allowed(from, header, quoted,    words, n, i, where)
{
    if (!quoted && header !~ foreign) return 1
    if (header ~ /\.\./) return 0
    where = directory_of(header)
    if (quoted && (where == from || (where == "" && header != "heed.h"))) return 1
    n = split(allow[from], words, " ")
    for (i = 1; i <= n; i++) {
        if (quoted ? header == words[i] || where "/" == words[i] : index(header, words[i]) == 1) {
            return 1
        }
    }
    return 0
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    file = substr(FILENAME, 3)
    from = directory_of(file)
    split($0, part, /["<>]/)
    if (!(from in allow) || !allowed(from, part[2], /"/)) {
        printf "src/%s:%d: %s may not include %s\n", file, FNR, from, part[2]
        bad = 1
    }
    seen++
}

END {
    if (!seen) print "no includes found: is this the right directory?"
    exit bad || !seen
}'
