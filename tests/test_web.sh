#!/usr/bin/env bash
# test_web.sh - the page of heed serve in headless Chromium: web_drive.py uses it as a reader would.
# Skipped where there is no Chromium or no Python; `make test-web` installs both.
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
here=$(dirname "$0")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; rm -rf "$dir"' EXIT

# colours FILE.html: lines "NAME LIGHT DARK" of the colours that heed writes into its pages
colours() {
    awk -F '[:; ]+' '/^ *--/ { if ($2 in light) print $2, light[$2], $3; else light[$2] = $3 }' "$1" | sort
}
# The page has the colours of the pictures.
accepts attention --quiet --to de --out "$dir/a.html" 'A dog.'
sed -nE 's/^ *(--(paper|ink|faint|grid|[sw][0-9]+)): light-dark\((.*), (.*)\);/\1 \3 \4/p' \
    "$here/../src/serve/web/theme.css" | sort >"$dir/ours"
colours "$dir/a.html" | join - "$dir/ours" | awk '$2 != $4 || $3 != $5' >"$dir/err"
[ ! -s "$dir/err" ] || fail "colours of theme.css and of theme.c differ"
[ "$(wc -l <"$dir/ours")" = 45 ] || fail "colours are missing in theme.css"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] || ! command -v python3 >/dev/null; then
    [ "$failures" = 0 ] || exit 1
    echo "no Chromium or no Python (Debian's packages chromium and python3): the page was not opened"
    exit 0
fi

mkdir "$dir/run"
awk 'BEGIN {
    for (step = 10; step <= 200; step += 10) {
        printf "{\"event\": \"step\", \"step\": %d, \"epoch\": 1, \"seconds\": %d, \"loss\": %f, \"lr\": %f, " \
            "\"norm\": 1.5, \"source_tokens\": 900, \"target_tokens\": 900, \"flops\": 1e9, \"tokens_s\": %d}\n",
            step, step / 10, 3 + 6 / (1 + step / 50), step / 1e6, 9000 + step
        if (step % 100 == 0)
            printf "{\"event\": \"valid\", \"step\": %d, \"epoch\": 1, \"seconds\": %d, \"nll\": %f, \"perplexity\": 9, " \
                "\"best\": true, \"bleu\": %f, \"chrf\": %f}\n", step, step / 10, 4 - step / 100, step / 10, step / 8
    }
}' >"$dir/run/log.jsonl"

accepts attention --quiet --to de --json 'A dog runs.'
attention=$(tr -d '\n' <"$dir/out")
printf '{"step": %s, "texts": [{"source": ">>de<< A dog runs.", "reference": "Ein Hund rennt.", "translation": "%s"}], "attention": %s}\n' \
    100 'Ein Ein Ein' "$attention" 200 'Ein Hund rennt.' "$attention" >"$dir/run/samples.jsonl"

"$heed" serve --port 0 --watch "$dir/run" >"$dir/out" 2>"$dir/err" &
server=$!
for _ in $(seq 100); do
    address=$(grep -o 'http://[^ ]*/' "$dir/out" "$dir/err" -h | head -n 1)
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || {
    fail "heed serve did not say its address"
    exit 1
}
timeout 300 python3 -B "$here/web_drive.py" "$browser" "$address" "$heed" "$dir" || failures=$((failures + 1))
[ "$failures" = 0 ] || exit 1
