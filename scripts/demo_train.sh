#!/bin/sh
# demo_train.sh - from raw pairs to a translator in about a minute: numbers in English words are learned
# in German and Chinese, and then read out for numbers that were not in the training text.
#
# usage: demo_train.sh PROGRAM DIRECTORY
set -eu
heed=${1:?usage: demo_train.sh PROGRAM DIRECTORY}
dir=${2:?usage: demo_train.sh PROGRAM DIRECTORY}
rm -rf "$dir"
mkdir -p "$dir"

# quoted WORD...: the words as a shell reads them back
quoted() {
    for word; do
        case $word in
        *[!A-Za-z0-9_./=:,+@%-]* | '') printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
}

# say COMMAND...: shows a command and runs it
say() {
    printf '\n$%s\n' "$(quoted "$@")"
    "$@"
}

awk -v train="$dir/train.tsv" -v test="$dir/test.tsv" -v n=20000 -f "$(dirname "$0")/numbers.awk"
cut -f 1 "$dir/test.tsv" >"$dir/test.src"
echo "20,000 numbers in English words, with their German or Chinese ones:"
awk -F '\t' 'NR <= 4 { print "    " $1 "  =  " $2 }' "$dir/train.tsv"

say "$heed" vocab --size 600 --tag '>>de<<' --tag '>>zh<<' --out "$dir/vocab.model" \
    "$dir/train.tsv"
say "$heed" train --pairs "$dir/train.tsv" --vocab "$dir/vocab.model" --preset tiny \
    --dropout 0 --steps 1400 --batch-tokens 512 --warmup 300 --lr 0.001 --out "$dir/model"

printf '\n$%s <%s\n\n' "$(quoted "$heed" translate --model "$dir/model")" "$(quoted "$dir/test.src")"
"$heed" translate --quiet --model "$dir/model" <"$dir/test.src" >"$dir/test.out"
paste "$dir/test.tsv" "$dir/test.out" | awk -F '\t' '
{
    right += $2 == $3
    printf "%s\n    %s%s\n", $1, $3, $2 == $3 ? "" : "    expected " $2
}
END { printf "\n%d of %d numbers that were not in the training text are right.\n", right, NR }'
