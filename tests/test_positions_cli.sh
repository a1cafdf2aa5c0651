#!/bin/bash
# test_positions_cli.sh - `heed positions` as a user types it.
#
# usage: test_positions_cli.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

accepts positions --d-model 32 --length 16
grep -q '2 pi \* 1.000 to' "$dir/out" || fail "heed positions does not say the wavelengths"
accepts positions --d-model 32 --length 16 --json
grep -q '"maps"' "$dir/out" || fail "heed positions --json has no maps"
accepts positions --d-model 32 --length 16 --out "$dir/p.json"
cmp -s "$dir/out" /dev/null || fail "heed positions --out prints something"
"$heed" positions --d-model 32 --length 16 --json | cmp -s - "$dir/p.json" ||
    fail "heed positions --json and --out FILE.json differ"
accepts positions --out "$dir/p.svg"
grep -q '<svg ' "$dir/p.svg" || fail "heed positions --out FILE.svg is no SVG"
accepts positions --model "$(dirname "$0")/../models/default" --length 20
grep -q 'sinusoid, 384 dimensions' "$dir/out" || fail "the default model has other positions"

refuses 2 'd-model' positions --d-model 1
refuses 1 'd_model is 33, expected an even number' positions --d-model 33
refuses 2 'length' positions --length 4
refuses 2 'd-model has no effect' positions --model m --d-model 64
refuses 2 'light|dark' positions --theme blue
refuses 2 'expected a name that ends in' positions --out p.txt
refuses 1 'nowhere' positions --model nowhere
refuses 2 'options only' positions something
exit $((failures > 0))
