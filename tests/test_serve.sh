#!/bin/bash
# test_serve.sh - heed serve as its clients use it: every endpoint, what it refuses, limits, keys,
# HTML, streams, the same bytes as `heed translate` with 64 clients at once, and that nothing is lost
# when it stops or loads a model anew under load.
#
# usage: test_serve.sh PROGRAM
set -eu
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
load=$(dirname "$heed")/tests/serve_load
[ -x "$load" ] || {
    echo "$load is missing: build the target heed_tests"
    exit 1
}
most=120 # seconds that any answer may take, even from a build with a sanitizer on a busy machine
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$dir"' EXIT

# start ARGUMENTS...: a server at $url
start() {
    : >"$dir/said"
    "$heed" serve --port 0 "$@" >"$dir/said" 2>"$dir/err" &
    server=$!
    for _ in $(seq 100); do
        url=$(sed -n 's|^heed serve: \(http://[^ ]*\)/ .*|\1|p' "$dir/said")
        [ -z "$url" ] || break
        sleep 0.05
    done
    port=${url##*:}
    [ -n "$url" ] || fail "heed serve $*: no address in $(cat "$dir/said")"
}

# stop: asks the server to stop, which then ends with 0
stop() {
    local code=0
    kill -TERM "$server"
    wait "$server" || code=$?
    server=
    [ "$code" = 0 ] || fail "a server that was asked to stop: exit $code"
}

# get STATUS PATTERN ARGUMENTS...: curl, with a path for the last argument, gets this status and a
# body that the extended regular expression matches
get() {
    local status=$1 pattern=$2 last="${*: -1}" got
    set -- "${@:3:$#-3}"
    got=$(curl -s -m "$most" -o "$dir/body" -D "$dir/head" -w '%{http_code}' "$@" "$url$last") || true
    if [ "$got" != "$status" ] || { [ -n "$pattern" ] && ! grep -Eq -- "$pattern" "$dir/body"; }; then
        fail "$* $last: status $got, expected $status and '$pattern': $(head -c 300 "$dir/body")"
    fi
}
header() { # PATTERN: the last reply has a header that it matches
    grep -Eiq -- "$1" "$dir/head" || fail "no header $1 in $(cat "$dir/head")"
}
json=(-H 'Content-Type: application/json' -d)

# ---- endpoints ----

start --access-log "$dir/access"
get 200 '^\{"status":"ok"\}$' /health
get 200 '\{"code":"de","name":"German","targets":\["en","de","zh"\]\}' /languages
get 200 '"charLimit":100000.*"keyRequired":false.*"code":"auto"' /frontend/settings
get 200 '"openapi"' /spec
get 200 '^heed_http_requests_total\{route="/health",code="200"\} 1$' /metrics
get 200 '"name":"default","languages":\["en","de","zh"\],"parameters":34034688,"weights":"int8"' /v1/models
get 200 '^\{"runs":\[\]\}$' /v1/runs
get 200 '<title>' /
header "content-security-policy: default-src 'none'; script-src 'self'"
header 'x-content-type-options: nosniff'
etag=$(sed -n 's/^ETag: \(.*\)\r$/\1/p' "$dir/head")
[ "$(curl -s -o /dev/null -w '%{http_code}' -H "If-None-Match: $etag" "$url/")" = 304 ] ||
    fail "a page that is known is sent again"
get 200 '' /web/style.css
header 'content-type: text/css'

say=(-d 'q=Good morning!' -d source=en)
get 200 '^\{"translatedText":"Guten Morgen!"\}$' "${say[@]}" -d target=de /translate
get 200 '^\{"translatedText":"Guten Morgen!"\}$' -F 'q=Good morning!' -F source=en -F target=de /translate
get 200 '^\{"translatedText":"Guten Morgen!"\}$' \
    "${json[@]}" '{"q":"Good morning!","source":"en","target":"DE"}' /translate
get 200 '^\{"translatedText":\["Guten Morgen!","\\n\\n"\]\}$' \
    "${json[@]}" '{"q":["Good morning!","\n\n"],"source":"en","target":"de"}' /translate
get 200 '^\{"translatedText":"Good morning!"\}$' "${say[@]}" -d target=en /translate
get 200 '"detectedLanguage":\{"confidence":[0-9.]+,"language":"de"\}' -d source=auto -d target=en \
    --data-urlencode 'q=Die Katze schläft auf dem Sofa und träumt von der Maus.' /translate
get 200 '"alternatives":\["[^"]+"' "${say[@]}" -d target=zh -d alternatives=3 /translate
get 200 '早' "${say[@]}" -d target=zh-Hans /translate
get 200 '^\[\{"confidence":[0-9.]+,"language":"zh"\}' --data-urlencode 'q=我喜欢喝茶。' /detect

# ---- what is refused ----

get 404 '^\{"error":"There is nothing at /nowhere"\}$' /nowhere
get 404 '"error"' /web/..%2f..%2fetc%2fpasswd
get 405 '"error"' /translate
header '^allow: POST'
get 405 '"error"' -X DELETE /languages
get 400 'missing q parameter' -d source=en -d target=de /translate
get 400 'missing source parameter' -d q=a -d target=de /translate
get 400 'missing target parameter' -d q=a -d source=en /translate
get 400 'xx is not supported' "${say[@]}" -d target=xx /translate
get 400 'rtf format is not supported' "${say[@]}" -d target=de -d format=rtf /translate
get 400 'alternatives parameter is not a number' "${say[@]}" -d target=de -d alternatives=x /translate
get 200 'Guten Morgen' "${say[@]}" -d target=de -d alternatives=-99999999999999999999 /translate
get 400 'alternatives parameter must be <= 15' "${say[@]}" -d target=de -d alternatives=99999999999999999999 /translate
get 400 'Invalid JSON format' "${json[@]}" '{"q":' /translate
get 400 'Invalid JSON format' "${json[@]}" '["q"]' /translate
get 400 'q parameter is no string' "${json[@]}" '{"q":[1],"source":"en","target":"de"}' /translate
get 415 'Content-Type is' -H 'Content-Type: text/plain' -d 'hello' /translate
get 403 'Suggestions are disabled' -d q=a /suggest
v1() { # STATUS PATTERN BODY
    get "$1" "$2" "${json[@]}" "$3" /v1/translate
}
v1 400 'target is missing' '{"text":"a"}'
v1 400 'text is no string' '{"target":"de"}'
v1 400 'beam is not a whole number of 1 to 64' '{"text":"a","target":"de","beam":65}'
v1 400 'beam is not a whole number of 1 to 64' '{"text":"a","target":"de","beam":99999999999999999999}'
v1 400 'beam is not a whole number' '{"text":"a","target":"de","beam":1.5}'
v1 200 '"text":""' '{"text":"","target":"de","beam":2.0,"seed":1e15}'
v1 400 'There is no model other' '{"text":"a","target":"de","model":"other"}'
v1 400 'There is no member bean; did you mean beam' '{"text":"a","target":"de","bean":2}'
v1 400 'does not translate from xx' '{"text":"a","source":"xx","target":"de","model":"default"}'
long=$(head -c 10001 /dev/zero | tr '\0' a)
v1 413 '10001 characters, expected at most 10000' "{\"text\":\"a\",\"target\":\"de\",\"prefix\":\"$long\"}"
v1 413 '10002 characters, expected at most 10000' "{\"text\":\"a\",\"target\":\"de\",\"banned\":[\"$long\",\"b\"]}"
v1 400 'sampling finds no required phrases' '{"text":"a","target":"de","required":["b"],"temperature":1}'
v1 409 '\\"b\\" is banned, but required \\"b\\" has it' '{"text":"a","target":"de","required":["b"],"banned":["b"]}'
v1 409 'needs [0-9]+ tokens, expected at most 1' '{"text":"a","target":"de","required":["b"],"max_length":1}'
get 200 '^heed_http_requests_total\{route="/v1/translate",code="409"\} 2$' /metrics
v1 400 'align is no boolean' '{"text":"a","target":"de","align":1}'
get 415 'expected Content-Type: application/json' -d text=a /v1/translate
get 404 'There is no run x' /v1/runs/x/log
[ "$(curl -s -m "$most" -X POST -H 'Content-Length: 99999999999' "$url/translate" | grep -c bytes)" = 1 ] ||
    fail "a body that is far too large is not refused"

# ---- /v1 ----

v1 200 '"results":\[\{"text":"Guten Morgen!","score":-[0-9.]+,"logp":-[0-9.]+,"flags":\[\]\},\{"text"' \
    '{"text":"Good morning!","target":"de","nbest":2}'
v1 200 '"tokens":\[\{"piece":"▁G","logp":-' '{"text":"Good morning!","target":"de","tokens":true}'
v1 200 '"alignment":\[\{"source":\[0,2\],"target":\[0,2\]\},\{"source":\[3,4\],"target":\[3,5\]\}' \
    '{"text":"😀 Good morning!","target":"de","align":true}'
v1 200 '"alignment":\[\{"source":\[0,2\].*\{"source":\[17,4\],"target":\[17,5\]\}' \
    '{"text":"😀 Good morning!\nGood morning!","target":"de","align":true}'
v1 200 '"attention":\{"align_layer":5,"encoder":\{"layers":6' \
    '{"text":"Good morning!","target":"de","attention":true}'
v1 200 '"beam_tree":\[\{"parent":-1,"piece":"▁G"' \
    '{"text":"Good morning!","target":"de","beam_tree":true}'
v1 200 '"flags":\[\]\}\]\}\]\}$' '{"text":["Good morning!","No."],"target":"de","beam_tree":true}'
printf '{"target":"de","text":["%s"]}' "$(yes '\n' | head -n 99999 | tr -d '\n')" >"$dir/lines.json"
sed -i 's/"\]}$/","\\n"]}/' "$dir/lines.json"
get 413 'have 100002 lines, expected at most 100000' -H 'Content-Type: application/json' \
    -d "@$dir/lines.json" /v1/translate
v1 200 'Hallo' '{"text":"Good morning!","target":"de","prefix":"Hallo"}'
v1 200 '^\{"model":"default","translations":\[\]\}$' '{"text":[],"target":"de"}'

stream() { # BODY: the events of a translation in $dir/events
    curl -sN -m "$most" "${json[@]}" "$1" "$url/v1/translate" >"$dir/events" || true
}
stream '{"text":["One. Two. Three.","Good morning!"],"target":"de","stream":true}'
[ "$(grep -c '^event: translation$' "$dir/events")" = 2 ] && grep -q '^event: done$' "$dir/events" ||
    fail "a stream: $(cat "$dir/events")"
stream '{"text":"The old man who lived by the sea went out every morning to look for the fish that his father had told him about, but he never found any of them.","target":"de","stream":true,"beam":16}'
[ "$(grep -c '^event: partial$' "$dir/events")" -ge 2 ] || fail "no partial translations in a stream"

# ---- HTML ----

html() { # HTML PATTERN: what becomes of it
    get 200 "$2" --data-urlencode "q=$1" -d source=en -d target=de -d format=html /translate
}
html '<p>Good <b>morning</b>!</p>' '"<p>Guten <b>Morgen</b>!</p>"'
html '<p class="a>b">Good morning!<br>Good <i>morning</i>!</p><!-- x < y -->' \
    '"<p class=\\"a>b\\">Guten Morgen!<br>Guten <i>Morgen</i>!</p><!-- x < y -->"'
html '<script>if (a < b) {}</script><pre>  Good </pre>' \
    '"<script>if \(a < b\) \{\}</script><pre>  Good </pre>"'
html '<b>Good morning!' '"<b>Guten Morgen!"'
html '<td>&nbsp;</td><td> &#160; </td>' '"<td>&nbsp;</td><td> &#160; </td>"'
html '<div class="a notranslate"><div>Good</div> morning</div>' \
    '"<div class=\\"a notranslate\\"><div>Good</div> morning</div>"'
html "<p translate='no'>Good morning!</p><p TRANSLATE=no>Good morning!</p>" \
    "\"<p translate='no'>Good morning!</p><p TRANSLATE=no>Good morning!</p>\""
html '<p title="notranslate" data-translate="no">Good morning!</p>' '>Guten Morgen!</p>'
html '<p class=notranslate>Good<p>Good morning!</p>' '<p class=notranslate>Good<p>Good morning!</p>'
html 'Good morning! &copy;&foo;</i><' '©.*&foo;.*</i>.*&lt;'

# ---- the same bytes as heed translate, 64 clients at once ----

cat >"$dir/text" <<'LINES'
A dog runs through the city.
Where is the station?
The old man who lived by the sea went out every morning to look for the fish that his father had told him about.
I would like to drink a cup of tea, please.
She said "no" and left the room \ closed the door.
The   children	are playing in the garden.
How much does it cost to travel from Berlin to Hamburg by train?
😀 Yes!
Open the file and press the button to save your changes before you close the program.

Two people are talking. A third one is listening. Nobody knows what they want. It is late. The shop is closed.
No.
LINES
for i in 1 2 3; do sed "s/\(...\)$/\1 $i./" "$dir/text"; done >"$dir/lines"
escape() {
    sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g'
}
number=0
: >"$dir/requests"
: >"$dir/want"
# wish OPTIONS MEMBERS: lines translated with options of heed translate, and members of a request
wish() {
    number=$((number + 1))
    # shellcheck disable=SC2086 # one word an option
    "$heed" translate --quiet --json $1 <"$dir/lines" |
        sed -E 's/^.*"translations": \[\{"text": "(([^"\\]|\\.)*)", "score": ([^,]*), .*/\1 \3/' >>"$dir/want"
    escape <"$dir/lines" | sed "s/.*/{\"text\":\"&\",$2}/" >>"$dir/requests"
}
wish '--to de' '"target":"de"'
wish '--to zh --beam 1' '"target":"zh","beam":1'
wish '--to de --beam 7 --nbest 3 --length-penalty 1' '"target":"de","beam":7,"nbest":3,"length_penalty":1'
wish '--to de --temperature 0.8 --seed 3 --top-k 20' '"target":"de","temperature":0.8,"seed":3,"top_k":20'
wish '--to de --prefix Also --ban Hund' '"target":"de","prefix":"Also","banned":["Hund"]'
wish '--to zh --align --no-repeat-ngram 2' '"target":"zh","align":true,"no_repeat_ngram":2'
answers() { # FILE: text and score of the answers
    sed -E 's/^200\t.*"results":\[\{"text":"(([^"\\]|\\.)*)","score":([^,]*),.*/\1 \3/; s/ -?0\.0$/ 0/' "$1"
}
sed -i 's/ -0$/ 0/' "$dir/want"
"$load" "$port" /v1/translate 64 0 <"$dir/requests" >"$dir/answers" 2>"$dir/speed"
answers "$dir/answers" | cmp - "$dir/want" || fail "64 clients get other bytes than heed translate"

# a document: line by line, with its line breaks
"$heed" translate --quiet --to de <"$dir/text" >"$dir/want.text"
curl -s --data-urlencode "q@$dir/text" -d source=en -d target=de "$url/translate" |
    sed 's/^{"translatedText":"//; s/"}$//; s/\\n/\n/g; s/\\"/"/g; s/\\\\/\\/g' |
    cmp - "$dir/want.text" || fail "a document differs from heed translate"

# ---- clients that go away, are slow, or close one side ----

idles() { # whether no request is under way soon
    for _ in $(seq 20); do
        sleep 0.1
        curl -s "$url/metrics" | grep -q '^heed_queue_requests{.*} 0$' && return 0
    done
    return 1
}
for _ in $(seq 25); do cat "$dir/lines"; done | escape | sed 's/.*/"&"/' | paste -sd , >"$dir/long"
{ printf '{"target":"de","text":['; cat "$dir/long"; printf ']}'; } >"$dir/long.json"
curl -s -m 0.4 -H 'Content-Type: application/json' -d "@$dir/long.json" "$url/v1/translate" >"$dir/body" &&
    fail "900 lines took less than 0.4 seconds"
idles || fail "a request goes on though its client has gone"
curl -sN -m 0.4 -H 'Accept: text/event-stream' -H 'Content-Type: application/json' -d "@$dir/long.json" \
    "$url/v1/translate" >"$dir/body" && fail "900 lines were streamed in less than 0.4 seconds"
idles || fail "a stream goes on though its client has gone"
# connections that send half a request do not keep others from their answers
for fd in 11 12 13 14 15; do
    eval "exec $fd<>/dev/tcp/127.0.0.1/$port"
    printf 'POST /translate HTTP/1.1\r\nHost: x\r\nContent-Le' >&"$fd"
done
get 200 'Guten Morgen' "${say[@]}" -d target=de /translate
for fd in 11 12 13 14 15; do eval "exec $fd>&-"; done
# garbage is refused, and does not end the server
printf 'GARBAGE\r\n\r\n' >"/dev/tcp/127.0.0.1/$port" || true
head -c 100000 /dev/urandom >"/dev/tcp/127.0.0.1/$port" 2>/dev/null || true
get 200 'Guten Morgen' "${say[@]}" -d target=de /translate

# a short text does not wait for the end of a long document
curl -s -m "$most" -H 'Content-Type: application/json' -d "@$dir/long.json" "$url/v1/translate" >"$dir/body" &
long=$!
sleep 0.2
get 200 'Nein' -d q=No. -d source=en -d target=de /translate
kill -0 "$long" 2>/dev/null || fail "a short text waited for a long document"
kill "$long"
wait "$long" || true

get 200 'route="/v1/translate",code="499"\} [0-9]' /metrics
grep -q 'code="500"' "$dir/body" && fail "a client that has gone is counted as a failure of the server"

mv "$dir/access" "$dir/access.1"
kill -HUP "$server"
sleep 0.5
get 404 '' /%0a2026-01-01T00:00:00Z%20
stop
grep -Eq '^[0-9T:Z-]+ 127.0.0.1 POST /translate 200 [0-9]+ [0-9.]+$' "$dir/access.1" || fail "no access log"
grep -Eq 'POST /v1/translate 499 ' "$dir/access.1" || fail "no 499 for a client that has gone"
grep -Eq ' GET /%0A2026-01-01T00:00:00Z%20 404 [0-9]+ [0-9.]+$' "$dir/access" ||
    fail "SIGHUP does not open the access log again, or a path ends a line: $(cat "$dir/access")"

# ---- keys, origins, limits ----

printf '# for tests\nsecret-1\n\nsecret-2\n' >"$dir/keys"
start --api-keys "$dir/keys" --cors https://example.org --max-body 4096 --max-text 20 --max-texts 2
get 400 'get an API key' "${say[@]}" -d target=de /translate
get 403 'Invalid API key' "${say[@]}" -d target=de -d api_key=secret-3 /translate
get 403 'Invalid API key' "${say[@]}" -d target=de -d api_key=secret- /translate
get 200 'Guten' "${say[@]}" -d target=de -d api_key=secret-2 /translate
header 'access-control-allow-origin: https://example.org'
get 200 'Guten' "${json[@]}" '{"text":"Good morning!","target":"de"}' '/v1/translate?api_key=secret-1'
get 200 'Guten' -H 'Authorization: Bearer secret-1' "${say[@]}" -d target=de /translate
get 200 '"keyRequired":true' /frontend/settings
get 204 '' -X OPTIONS /translate
get 413 'more than 4096 bytes' -H 'Expect:' --data-binary "@$dir/long.json" /translate
get 413 'more than 4096 bytes' -H 'Transfer-Encoding: chunked' --data-binary "@$dir/long.json" /translate
key=(-H 'Authorization: Bearer secret-1')
get 400 'request \(21\) exceeds text limit \(20\)' "${key[@]}" -d q=aaaaaaaaaaaaaaaaaaaaa -d source=en -d target=de /translate
get 413 '21 characters, expected at most 20' "${key[@]}" "${json[@]}" '{"text":"aaaaaaaaaaaaaaaaaaaaä","target":"de"}' /v1/translate
get 413 '3 texts, expected at most 2' "${key[@]}" "${json[@]}" '{"text":["a","b","c"],"target":"de"}' /v1/translate
stop

start --max-queue 2 --timeout 1 --max-body 9000000
"$load" "$port" /v1/translate 16 0 <"$dir/requests" >"$dir/answers" 2>"$dir/speed"
grep -q '^503	{"error":"2 requests wait already"}$' "$dir/answers" || fail "a full queue refuses nothing"
grep -q '^200	' "$dir/answers" || fail "a full queue refuses everything"
get 503 'took more than 1 seconds' -H 'Content-Type: application/json' -d "@$dir/long.json" /v1/translate
header 'retry-after: 1'
get 200 'Guten' "${say[@]}" -d target=de /translate
stop

start --max-per-client 3
"$load" "$port" /v1/translate 4 0 <"$dir/requests" >"$dir/answers" 2>"$dir/speed" &
clients=$!
for _ in $(seq 20); do get 200 'ok' /health; done # who watches the server is answered all the same
wait "$clients"
get 200 'route="/v1/translate",code="429"' /metrics
grep -q '^429	{"error":"Slowdown' "$dir/answers" || fail "one client may ask as much as it likes"
stop

start --sessions 2
"$load" "$port" /v1/translate 64 0 <"$dir/requests" >"$dir/answers" 2>"$dir/speed"
answers "$dir/answers" | cmp - "$dir/want" || fail "two sessions give other bytes than heed translate"
stop

# ---- a stop under load loses nothing that was accepted ----

start
"$load" "$port" /v1/translate 64 0 <"$dir/requests" >"$dir/answers" 2>"$dir/speed" &
clients=$!
accepted() { # requests that are being answered, this one included
    curl -s "$url/metrics" | awk '$1 == "heed_http_requests_in_flight" { print $2 }'
}
for _ in $(seq 200); do [ "$(accepted)" -gt 64 ] && break || sleep 0.02; done
stop
wait "$clients"
answered=$(grep -c '^200	' "$dir/answers") || true
[ "$answered" -ge 64 ] || fail "a stop under load: $answered answers, expected at least those of 64 clients"
paste "$dir/want" "$dir/answers" | grep '	200	' | cut -f 1 >"$dir/want.some"
grep '^200	' "$dir/answers" >"$dir/some"
answers "$dir/some" | cmp - "$dir/want.some" || fail "a stop under load changes answers"
grep -Ev '^(200|0)	' "$dir/answers" && fail "a stop under load answers with an error"

# ---- a model that is loaded anew under load loses nothing ----

awk -v seed=5 -v lines=400 -v longest=6 -f "$(dirname "$0")/reversals.awk" >"$dir/train.tsv"
"$heed" vocab --size 280 --quiet --out "$dir/vocab" "$dir/train.tsv"
tiny() { # SEED: a small model of its own kind in $dir/SEED
    "$heed" train --pairs "$dir/train.tsv" --valid-pairs "$dir/train.tsv" --vocab "$dir/vocab" \
        --preset tiny --d-model 32 --d-ff 64 --heads 2 --encoder-layers 1 --decoder-layers 1 \
        --batch-tokens 512 --steps 40 --valid-every 20 --warmup 20 --lr 0.003 --seed "$1" --quiet \
        --out "$dir/$1"
}
tiny 1
tiny 2
mkdir "$dir/aa-bb"
install_model() { # FROM: renames its files over those of the model that is served
    for name in config.json vocab.model model.safetensors; do
        cp "$dir/$1/$name" "$dir/aa-bb/$name.new"
        mv "$dir/aa-bb/$name.new" "$dir/aa-bb/$name"
    done
}
install_model 1
cut -f 1 "$dir/train.tsv" >"$dir/source"
start --model "$dir/aa-bb" --model x="$dir/2" --watch "$dir/1"
get 200 '^\[\{"code":"aa","name":"aa","targets":\["bb"\]\},\{"code":"bb","name":"bb","targets":\[\]\}\]$' /languages
get 400 'bb is not supported' -d q=a -d source=bb -d target=bb /translate
v1 200 '"model":"x"' '{"text":"a b","model":"x"}'
for i in 1 2; do "$heed" translate --quiet --model "$dir/$i" <"$dir/source" >"$dir/want.$i"; done
cmp -s "$dir/want.1" "$dir/want.2" && fail "the two small models do not differ"
texts() { # FILE: the translations in it
    sed -E 's/^200\t\{"translatedText":"(([^"\\]|\\.)*)"\}$/\1/; s/\\(["\\])/\1/g' "$1"
}
escape <"$dir/source" | sed 's/.*/{"q":"&","source":"aa","target":"bb"}/' >"$dir/small"
"$load" "$port" /translate 64 0 <"$dir/small" >"$dir/answers" 2>"$dir/speed"
texts "$dir/answers" | cmp - "$dir/want.1" || fail "a small model differs from heed translate"
for _ in $(seq 40); do cat "$dir/small"; done >"$dir/many"
"$load" "$port" /translate 16 1500 <"$dir/many" >"$dir/answers" 2>"$dir/speed" &
clients=$!
sleep 0.5
install_model 2
sleep 3
kill -HUP "$server"
wait "$clients"
[ "$(grep -vc '^200	' "$dir/answers")" = 0 ] || fail "a model loaded anew loses requests"
grep -q 'model aa-bb was loaded anew' "$dir/err" || fail "the model was not loaded anew"
"$load" "$port" /translate 64 0 <"$dir/small" >"$dir/answers" 2>"$dir/speed"
texts "$dir/answers" | cmp - "$dir/want.2" || fail "the new model does not answer"
# a broken one changes nothing
echo broken >"$dir/broken" && mv "$dir/broken" "$dir/aa-bb/config.json"
for _ in $(seq 60); do
    grep -q 'model aa-bb stays as it is' "$dir/err" && break
    sleep 0.1
done
grep -q 'model aa-bb stays as it is: .*config.json' "$dir/err" || fail "nothing is said of a broken model"
"$load" "$port" /translate 64 0 <"$dir/small" >"$dir/answers" 2>"$dir/speed"
texts "$dir/answers" | cmp - "$dir/want.2" || fail "a broken model changes answers"

# ---- training runs ----

get 200 '\{"runs":\[\{"name":"1","state":"finished","step":40,"steps":40\}' /v1/runs
# the number of steps is that of the last start, in a log that grows and in one that is replaced
echo '{"step":40,"event":"start","steps":60}' >>"$dir/1/log.jsonl"
get 200 '"name":"1",.*"steps":60' /v1/runs
sed 's/"steps":60/"steps":50/' "$dir/1/log.jsonl" >"$dir/1/log.new" && mv "$dir/1/log.new" "$dir/1/log.jsonl"
get 200 '"name":"1",.*"steps":50' /v1/runs
get 200 '\{"samples":\[\{"step":20,"texts":\[\{"source":.*"attention":true\}' /v1/runs/1/samples
get 200 '^\{"align_layer":1,"encoder":\{"layers":1' '/v1/runs/1/attention?step=40'
get 404 'has no attention of step 7' '/v1/runs/1/attention?step=7'
get 200 '"steps":\[\{"step":1,"loss":[0-9.]+,"lr":.*"valid":\[\{"step":20,"nll":' /v1/runs/1/log
next=$(sed 's/^{"next":\([0-9]*\),.*/\1/' "$dir/body")
get 200 "^\{\"next\":$next,\"steps\":\[\],\"valid\":\[\]\}$" "/v1/runs/1/log?after=$next"
get 400 "after is 'x'" '/v1/runs/1/log?after=x'
curl -sN -m 2 "$url/v1/runs/1/events?after=$next" >"$dir/events" &
events=$!
sleep 0.5
echo '{"step":41,"event":"step","loss":1.5,"lr":0.1,"norm":1.0,"tokens_s":5.0,"seconds":9.0}' >>"$dir/1/log.jsonl"
wait "$events" || true
grep -A 1 '^event: log$' "$dir/events" | grep -q '"steps":\[{"step":41' || fail "no event of a run that goes on"
# streams whose clients have gone end soon
for _ in 1 2 3 4 5; do curl -sN -m 0.3 "$url/v1/runs/1/events?after=999999999" >/dev/null & done
sleep 2
get 200 '^heed_http_connections [12]$' /metrics
# part of a line is no news, and does not keep the server busy
printf '{"step":42,"event":"st' >>"$dir/1/log.jsonl"
curl -sN -m 1 "$url/v1/runs/1/events" >"$dir/events" || true
[ "$(wc -c <"$dir/events")" -lt 20000 ] || fail "an incomplete line: $(wc -c <"$dir/events") bytes of events in a second"
# garbage, NUL bytes and lines that are far too long are passed over
{
    printf '\n\0\0{"step":\n[]\n'
    head -c 20000000 /dev/zero | tr '\0' 1
    printf '\n{"step":43,"event":"step","loss":1.5}\n'
} >>"$dir/1/log.jsonl"
from=$next
for _ in 1 2 3 4; do
    get 200 '"next"' "/v1/runs/1/log?after=$from"
    from=$(sed 's/^{"next":\([0-9]*\),.*/\1/' "$dir/body")
    grep -q '"step":43' "$dir/body" && break
done
grep -q '"step":43' "$dir/body" || fail "garbage in a log hides what follows: $(head -c 300 "$dir/body")"
{
    printf '{"step":'
    head -c 100000000 /dev/zero | tr '\0' 1
    printf '}\n{"step":60,"texts":[],"attention":{"align_layer":1}}\n{"step":80'
} >>"$dir/1/samples.jsonl"
get 200 '\{"step":60,"texts":\[\],"attention":true\}\]\}$' /v1/runs/1/samples
get 200 '^\{"align_layer":1\}$' '/v1/runs/1/attention?step=60'
# a run may have a long name; no name leads out of the directory
long_name=$(printf 'run%.0s' $(seq 80))
mkdir "$dir/runs"
cp -r "$dir/2" "$dir/runs/$long_name"
stop
start --watch "$dir/runs"
get 200 '"valid":\[\{"step":20' "/v1/runs/$long_name/log"
for name in .. %2e%2e ..%2f1 . %00 ../1; do
    get 404 '"error"' --path-as-is "/v1/runs/$name/log"
done
stop

: >"$dir/trained"
"$heed" train --pairs "$dir/train.tsv" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 64 \
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 1000000 \
    --dashboard 0 --out "$dir/3" 2>"$dir/trained" &
server=$!
for _ in $(seq 100); do
    url=$(sed -n 's|^the training can be watched at \(http://[^ ]*\)/#training.*|\1|p' "$dir/trained")
    [ -n "$url" ] && [ -s "$dir/3/log.jsonl" ] && break
    sleep 0.05
done
get 200 '"name":"3","state":"running"' /v1/runs
get 200 '"steps":\[\{"step":1,' /v1/runs/3/log
get 400 'is not supported' "${say[@]}" -d target=de /translate
curl -sN -m "$most" "$url/v1/runs/3/events" >"$dir/events" & # a stream does not keep it from its end
sleep 0.3
kill -TERM "$server"
wait "$server" && fail "a training that was stopped ends with 0"
server=

# ---- wrong use ----

refuses 2 "there is no option|unknown|--prot" serve --prot 1
refuses 1 'nowhere' serve --port 0 --model "$dir/nowhere"
refuses 1 'cannot listen at 256.0.0.1' serve --port 0 --host 256.0.0.1
echo '# none' >"$dir/keys"
refuses 1 'has no key' serve --port 0 --api-keys "$dir/keys"
curl -s "$url/health" >"$dir/body" && fail "a server that has stopped listens"

[ "$failures" = 0 ] || exit 1
echo "served: $(cat "$dir/speed")"
