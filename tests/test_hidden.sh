#!/bin/sh
# test_hidden.sh - the recipe of the default model leaves out the sentences of test sets, whatever
# their case, spaces and punctuation.
#
# usage: test_hidden.sh
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
shown() { # SENTENCES
    LC_ALL=C awk -v hidden="$1" -v name=lines -f "$(dirname "$0")/../recipes/default/hidden.awk"
}

printf '%s\n' 'Good bye.' '再见。' 'Das ist ÜBEL!' '»Nein«, sagte er.' >"$dir/hidden"
{
    printf '%s\t%s\n' 'good  bye' 'x' '>>en<< x' 'GOOD BYE!' '>>de<< y' '“再见！”' 'y' '再　见' \
        'z' 'das ist übel' '„Nein“ – sagte er…' 'z'
    printf '%s\t%s\n' '>>zh<< Good day.' '再次见面。' 'Nein' 'Das ist ein Übel.'
} >"$dir/lines"
shown "$dir/hidden" <"$dir/lines" >"$dir/out" 2>"$dir/err"
tail -n 2 "$dir/lines" | cmp - "$dir/out"
grep -q -x 'lines: 8 lines, 6 left out' "$dir/err"
if shown "$dir/none" <"$dir/lines" 2>"$dir/err"; then
    echo "lines go through where there are no sentences to leave out"
    exit 1
fi
echo "of 8 lines the 6 with a hidden sentence are left out"
