#!/usr/bin/env bash
# test_page.sh - the page that heed attention writes, in headless Chromium: choose kind, layer and
# head, point at words and cells, use the keyboard; no error, nothing loaded, nothing overlapping, in
# a wide and a narrow window, light and dark. Skipped where there is no Chromium.
set -u
heed=${1:?usage: test_page.sh PROGRAM}
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

write() {
    "$heed" attention --quiet --to "$1" --out "$dir/$2.html" "$3" || fail "no page: $2"
}
write de short 'A dog runs.'
write zh chinese 'She has been living in Berlin since last summer </script>.'
write de long "Although the committee had repeatedly promised that the report on the old railway bridges \
would be published before the end of the summer, the members of the parliament learned only last week \
from a short article that nobody had even begun to inspect the most important of them."

# The page needs no other file and no host; the only address in it is the name of SVG's elements.
for page in "$dir"/*.html; do
    grep -o 'https\{0,1\}://[^"]*' "$page" | grep -vx 'http://www.w3.org/2000/svg' && fail "$page names a host"
    grep -q "default-src 'none'" "$page" || fail "$page has no policy"
    grep -qiE '<(link|img|iframe)| on(click|load)=' "$page" && fail "$page has what the policy forbids"
    tail -n 1 "$page" | grep -q '</html>' || fail "$page has no end"
done

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    [ "$failures" = 0 ] || exit 1
    echo "no Chromium (Debian's package chromium): the page was not opened"
    exit 0
}

# driven PAGE: the page with page_watch.js before its scripts and page_drive.js behind them
driven() {
    awk -v watch="$here/page_watch.js" -v drive="$here/page_drive.js" '
        function put(tag, file) {
            print tag
            while ((getline line <file) > 0) print line
            print "</script>"
        }
        /^<title>/ { put("<script>", watch) }
        /^<\/body>/ { put("<script type=\"module\">", drive) }
        { print }' "$1"
}

# look PAGE WIDTH SCHEME: opens the page in a frame, since a window cannot be as narrow as a phone, and
# prints what page_drive.js found
look() {
    driven "$dir/$1.html" >"$dir/driven.html"
    cat >"$dir/frame.html" <<FRAME
<!doctype html><meta name="color-scheme" content="light dark">
<script>addEventListener("message", (e) => document.body.append(e.data))</script>
<body><iframe src="driven.html" width="$2" height="800"></iframe>
FRAME
    local scheme=1
    [ "$3" = dark ] && scheme=0
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" \
        --window-size=1200,900 --blink-settings=preferredColorScheme=$scheme \
        --virtual-time-budget=4000 --dump-dom "file://$dir/frame.html" 2>"$dir/err" |
        grep -o 'VERDICT [^<]*' | tail -n 1
}

while read -r page width scheme; do
    said=$(look "$page" "$width" "$scheme")
    case $said in
    "VERDICT good, $scheme on rgb("*", $width wide") echo "$page: ${said#VERDICT }" ;;
    *) fail "$page, $width, $scheme: ${said:-nothing; $(tail -n 3 "$dir/err")}" ;;
    esac
done <<'LIST'
short 1000 light
chinese 1000 dark
long 1000 light
long 360 dark
LIST
[ "$failures" = 0 ] || exit 1
