#!/bin/bash
# test_heads_cli.sh - `heed heads` with the default model, as a user types it.
#
# usage: test_heads_cli.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

cat >"$dir/en" <<'END'
The old woman said that she had lost her keys in the garden.
Two people were injured by the fire, and one of them was able to make a call.
A dog runs.
END
cat >"$dir/de" <<'END'
Die alte Frau sagte, dass sie ihre Schlüssel im Garten verloren hatte.
Zwei Menschen wurden durch das Feuer verletzt, und einer von ihnen konnte telefonieren.
Ein Hund rennt.
END

accepts heads --to de --src "$dir/en" --mask none --best "$dir/best"
grep -Eq '^encoder +1 +3 previous ' "$dir/out" || fail "head 3 of the encoder is not 'previous'"
[ "$(grep -Ec '^(encoder|decoder|cross) +[1-6] +[1-6] ' "$dir/out")" = 108 ] ||
    fail "the table does not have 108 heads"
grep -q '^3 sentences' "$dir/out" || fail "not all sentences were measured"
[ -s "$dir/best/encoder-previous.svg" ] || fail "--best does not draw the head 'previous'"
for picture in "$dir"/best/*.svg; do
    grep -q '<svg ' "$picture" || fail "$picture is no SVG"
done
accepts heads --to de --src "$dir/en" --tgt "$dir/de" --mask none --lines 2 --out "$dir/heads.json"
grep -q '"sentences": 2,' "$dir/heads.json" || fail "--lines 2 does not take two lines"
accepts heads --to de --src "$dir/en" --tgt "$dir/de" --mask none --out "$dir/heads.svg"
grep -q 'Do heads repeat each other' "$dir/heads.svg" || fail "the picture has no agreement"
accepts heads --to de --src "$dir/en" --tgt "$dir/de" --lines 1
grep -Eq '^cross .* -?0\.[0-9]{4} +-$' "$dir/out" || fail "no loss is lost without a head"

# Ctrl-C: many lines take long, and the program ends within a batch.
for _ in $(seq 300); do cat "$dir/en"; done >"$dir/long.en"
for _ in $(seq 300); do cat "$dir/de"; done >"$dir/long.de"
"$heed" heads --to de --src "$dir/long.en" --tgt "$dir/long.de" >"$dir/out" 2>"$dir/err" &
sleep 2
kill -TERM $!
wait $! && fail "heed heads that was stopped exits with 0"
grep -q 'stopped' "$dir/err" || fail "heed heads that was stopped does not say so"

refuses 2 'needs --src' heads
refuses 2 'bleu needs --tgt' heads --to de --src "$dir/en" --mask bleu
refuses 2 'to is missing' heads --src "$dir/en" --tgt "$dir/de"
refuses 1 'nowhere' heads --to de --src nowhere
refuses 1 'lines' heads --to de --src "$dir/en" --tgt "$dir/long.de"
: >"$dir/empty"
refuses 1 'has no lines' heads --to de --src "$dir/empty"
refuses 2 'expected a name that ends in' heads --src "$dir/en" --out heads.txt
refuses 1 'cannot make the directory' heads --to de --src "$dir/en" --best "$dir/en/best"
refuses 1 'nowhere' heads --model nowhere --src "$dir/en"
exit $((failures > 0))
