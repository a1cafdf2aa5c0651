#!/bin/sh
# test_default.sh - the default model: found without being named, in all four directions, small.
#
# usage: test_default.sh PROGRAM
set -eu
heed=${1:?usage: test_default.sh PROGRAM}
model=$(dirname "$0")/../models/default
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

expect() { # LANGUAGE TEXT WORD: the translation has the word
    "$heed" translate --quiet --to "$1" "$2" >"$dir/out"
    grep -q "$3" "$dir/out" || {
        echo "$2 in $1 is: $(cat "$dir/out"), expected a sentence with $3"
        exit 1
    }
}
expect de 'Good morning! Where is the station?' 'Guten Morgen'
expect en 'Die Katze schläft auf dem Sofa.' 'cat '
expect zh 'Where is the station?' '车站'
expect en '我喜欢喝茶。' ' tea'
expect de '  Good morning!	 ' '^Guten Morgen!$'

bytes=$(cat "$model"/* | wc -c)
[ "$bytes" -le 40000000 ] || {
    echo "the model has $bytes bytes, expected at most 40 million"
    exit 1
}

"$heed" attention --quiet --to zh --out "$dir/picture.svg" 'She lives in Berlin.'
grep -q '>Berlin<' "$dir/picture.svg"

"$(dirname "$0")/../scripts/demo.sh" "$heed" "$dir/demo" >"$dir/out"
grep -q 'sentences in' "$dir/out"
[ -s "$dir/demo/attention.svg" ]
[ -s "$dir/demo/attention.html" ]
echo "the default model has $bytes bytes and translates in its four directions"
