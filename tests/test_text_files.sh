#!/bin/bash
# test_text_files.sh - every command reads text in the same forms: plain or compressed, from a file
# or a pipe. Other formats are refused by name, and nothing waits for ever.
#
# usage: test_text_files.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"

# refuses_input CODE PATTERN INPUT ARGUMENTS...: like refuses, with INPUT as standard input
refuses_input() {
    input=$3 refuses "$1" "$2" "${@:4}"
}

for i in $(seq 1 200); do echo "line $i, a dog runs in the park"; done >"$dir/text"
gzip -k "$dir/text"
xz -k "$dir/text"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/text" || exit 1
"$heed" train --vocab "$dir/vocab" --preset tiny --d-model 16 --d-ff 16 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --steps 2 --quiet \
    --src "$dir/text" --tgt "$dir/text" --out "$dir/model" || exit 1
translate="translate --model $dir/model --beam 1 --max-length 5 --quiet"
rescore="translate --model $dir/model --quiet"

# gzip and xz, as a file, on standard input and through a pipe
"$heed" $translate <"$dir/text" >"$dir/plain"
"$heed" score --ref "$dir/text" <"$dir/text" >"$dir/score"
for form in gz xz; do
    "$heed" $translate <"$dir/text.$form" >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/out" "$dir/plain" || fail "translate <text.$form differs from translate <text"
    cat "$dir/text.$form" | "$heed" $translate >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/out" "$dir/plain" || fail "cat text.$form | translate differs from translate <text"
    "$heed" score --ref "$dir/text.$form" <"$dir/text.$form" >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/out" "$dir/score" || fail "score of text.$form differs from that of text"
    "$heed" $rescore --score-only "$dir/text.$form" <"$dir/text" >"$dir/out" 2>"$dir/err"
    [ "$(wc -l <"$dir/out")" = 200 ] || fail "translate --score-only text.$form"
    "$heed" evaluate --model "$dir/model" --beam 1 --max-length 5 --quiet --src "$dir/text.$form" \
        --ref "$dir/text.$form" >"$dir/out" 2>"$dir/err"
    grep -q '^200 sentences' "$dir/out" || fail "evaluate --src text.$form --ref text.$form"
    head -c 300 "$dir/text.$form" >"$dir/cut.$form"
    refuses_input 1 "standard input is truncated" "$dir/cut.$form" $translate
    refuses_input 1 "$dir/cut.$form is truncated" "$dir/text" score --ref "$dir/cut.$form"
done

# other forms are refused by name, everywhere
printf '\x28\xb5\x2f\xfd\x04\x00\x01' >"$dir/zst"
printf 'BZh91AY&SY\x01\x02\x03' >"$dir/bz2"
printf 'PK\x03\x04\x14\x00' >"$dir/zip"
printf '\xff\xfeh\0i\0\n\0' >"$dir/utf16le"
printf '\xfe\xff\0h\0i\0\n' >"$dir/utf16be"
printf 'h\0e\0l\0l\0o\0\n\0w\0\n\0' >"$dir/utf16le.bare"
printf '\0h\0e\0l\0l\0o\0\n' >"$dir/utf16be.bare"
gzip <"$dir/utf16le" >"$dir/utf16le.gz"
printf 'one\rtwo\rthree\r' >"$dir/mac"
for form in zst:zstd bz2:bzip2 zip:zip utf16le:UTF-16 utf16be:UTF-16 utf16le.bare:UTF-16 \
    utf16be.bare:UTF-16 utf16le.gz:UTF-16 mac:'carriage returns'; do
    file=$dir/${form%%:*} name=${form##*:}
    refuses_input 1 "standard input .*$name.*expected" "$file" $translate
    refuses_input 1 "standard input .*$name.*expected" "$file" score --ref "$dir/text"
    refuses_input 1 "$file .*$name.*expected" "$dir/text" score --ref "$file"
    refuses_input 1 "$file .*$name.*expected" "$dir/text" $rescore --score-only "$file"
    refuses_input 1 "$file .*$name.*expected" /dev/null evaluate --model "$dir/model" --src "$file" \
        --ref "$dir/text"
    refuses_input 1 "$file .*$name.*expected" /dev/null vocab --size 300 --out "$dir/v" "$file"
    refuses_input 1 "$file .*$name.*expected" /dev/null train --vocab "$dir/vocab" --preset tiny \
        --steps 1 --quiet --src "$dir/text" --src "$file" --tgt "$dir/text" --tgt "$file" \
        --out "$dir/o"
done

# what such forms begin with may begin a line as well
printf 'BZhang\rPK\377\376\n' >"$dir/like"
timeout 20 "$heed" $translate <"$dir/like" >"$dir/out" 2>"$dir/err" || fail "translate <like"

# a pipe without a writer, a directory, a device and a socket are errors that say so, without
# waiting
mkfifo "$dir/pipe"
mkdir -p "$dir/directory" "$dir/broken"
cp "$dir/model"/* "$dir/broken" 2>/dev/null
rm "$dir/broken/config.json" && mkfifo "$dir/broken/config.json"
for odd in "$dir/pipe:a pipe" "$dir/directory:a directory" "/dev/zero:a device"; do
    file=${odd%%:*} kind=${odd##*:}
    refuses_input 1 "$file is $kind, expected" "$dir/text" score --ref "$file"
    refuses_input 1 "$file is $kind, expected" "$dir/text" $rescore --score-only "$file"
    refuses_input 1 "$file is $kind, expected" /dev/null evaluate --model "$dir/model" --src "$file" \
        --ref "$dir/text"
    refuses_input 1 "$file is $kind, expected" /dev/null vocab --size 300 --out "$dir/v" "$file"
    refuses_input 1 "$file is $kind, expected" /dev/null train --vocab "$file" --preset tiny --steps 1 \
        --quiet --src "$dir/text" --tgt "$dir/text" --out "$dir/o"
    refuses_input 1 "$file is $kind, expected" /dev/null train --vocab "$dir/vocab" --preset tiny \
        --steps 1 --quiet --src "$file" --tgt "$dir/text" --out "$dir/o"
done
refuses_input 1 "$dir/broken/config.json is a pipe, expected" /dev/null translate --model "$dir/broken"

# a pipe that is open already is read where once is enough
"$heed" score --ref <(cat "$dir/text") <"$dir/text" >"$dir/out" 2>"$dir/err"
cmp -s "$dir/out" "$dir/score" || fail "score --ref <(cat text)"
"$heed" score --ref <(cat "$dir/text.xz") <"$dir/text" >"$dir/out" 2>"$dir/err"
cmp -s "$dir/out" "$dir/score" || fail "score --ref <(cat text.xz)"
"$heed" evaluate --model "$dir/model" --beam 1 --max-length 5 --quiet --src /dev/stdin \
    --ref "$dir/text" <"$dir/text" >"$dir/out" 2>"$dir/err"
grep -q '^200 sentences' "$dir/out" || fail "evaluate --src /dev/stdin"
refuses_input 1 "/dev/stdin is a pipe, expected a regular file" <(cat "$dir/text") vocab --size 300 \
    --out "$dir/v" /dev/stdin

# SIGTERM ends a program that waits for input
sleep 30 >"$dir/pipe" &
writer=$!
"$heed" $translate <"$dir/pipe" >"$dir/out" 2>"$dir/err" &
waiter=$!
sleep 1
kill -TERM "$waiter"
for _ in $(seq 50); do
    kill -0 "$waiter" 2>/dev/null || break
    sleep 0.1
done
kill -0 "$waiter" 2>/dev/null && kill -KILL "$waiter" && fail "SIGTERM did not end translate"
kill "$writer" 2>/dev/null

# a line is answered before the next one has come, also if its first bytes could begin a compressed
# file
mkfifo "$dir/in" "$dir/answers"
"$heed" $translate --interactive <"$dir/in" >"$dir/answers" 2>"$dir/err" &
exec 3>"$dir/in" 4<"$dir/answers"
for line in B PK 'a dog'; do
    echo "$line" >&3
    printf 'the beginning of ' >&3
    read -r -t 20 _ <&4 || fail "--interactive: no answer to '$line'"
    echo 'another line' >&3
    read -r -t 20 _ <&4 || fail "--interactive: no answer to the line behind '$line'"
done
exec 3>&- 4<&-

# the time to read a line grows with its length, not with the square of it; CPU time, because other
# programs may keep the cores busy
cpu_ms() {
    local TIMEFORMAT='%3U %3S'
    { time "$@" >/dev/null 2>&1; } 2>&1 | awk '{ print int(1000 * ($1 + $2)) }'
}
printf 'one\ntwo\n' >"$dir/two"
many() { head -c 100000000 /dev/zero | tr '\0' x | fold -w 10000 | "$heed" score --ref "$dir/two"; }
one() { head -c 100000000 /dev/zero | tr '\0' x | "$heed" score --ref "$dir/two"; }
many_ms=$(cpu_ms many)
one_ms=$(cpu_ms one)
[ "$one_ms" -lt $((3 * many_ms + 1000)) ] ||
    fail "100 MB in lines of 10 kB take $many_ms ms, in one line $one_ms ms"

[ "$failures" = 0 ] && echo "text is read alike from every place"
exit "$((failures > 0))"
