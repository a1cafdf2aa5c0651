#!/bin/sh
# test_install.sh - what is installed is enough: the example is compiled against it as a user would
# do it, and says of a text what the program says.
#
# usage: test_install.sh PROGRAM
set -eu
heed=${1:?usage: test_install.sh PROGRAM}
source=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cmake --install "$(dirname "$heed")" --prefix "$dir/prefix" >"$dir/log" || {
    cat "$dir/log"
    exit 1
}
pc=$(find "$dir/prefix" -name heed.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
[ "$(find "$dir/prefix" -name '*.h')" = "$dir/prefix/include/heed.h" ]
# the names of C++ templates are meant to be met
others=$(nm --defined-only --extern-only "$(find "$dir/prefix" -name libheed.a)" |
    awk 'NF == 3 && $2 != "u" && $3 !~ /^heed_/')
[ -z "$others" ] || {
    echo "libheed.a shows more than heed.h does: $others"
    exit 1
}
# shellcheck disable=SC2046 # one word a flag
cc -Wall -Wextra -Werror "$source/examples/translate.c" $(pkg-config --cflags --libs heed) \
    -o "$dir/translate"

heed=$dir/prefix/bin/heed
"$heed" translate --quiet --to de 'Good morning!' | grep -q -x 'Guten Morgen!' # with the model in the box
for i in $(seq 1 300); do printf 'the line number %d of many\tdie Zeile %d von vielen\n' $i $i; done \
    >"$dir/pairs"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/pairs"
"$heed" train --pairs "$dir/pairs" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 32 \
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 60 --warmup 20 \
    --lr 0.005 --quiet --out "$dir/model"
cut -f 1 "$dir/pairs" | head -n 5 >"$dir/in"
"$heed" translate --model "$dir/model" --quiet <"$dir/in" >"$dir/want"
"$dir/translate" "$dir/model" <"$dir/in" | cmp - "$dir/want"
"$dir/translate" "$dir/model" "the line number 1 of many" | cmp - "$dir/want" 2>"$dir/log" ||
    grep -q 'EOF on -' "$dir/log"
grep -q . "$dir/want"
if "$dir/translate" "$dir/none" 2>"$dir/log"; then exit 1; fi
grep -q '^translate: .*none' "$dir/log"
echo "the example says what the program says: $(head -n 1 "$dir/want")"
