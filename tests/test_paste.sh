#!/bin/bash
# test_paste.sh - commands that are printed for people work when they are pasted into a shell: what
# `heed train` says to go on with, and what the training demo shows.
#
# usage: test_paste.sh PROGRAM
set -eu
heed=$(realpath "${1:?usage: test_paste.sh PROGRAM}")
source=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: the program prints its own path, which only an emulator can start"
    exit 0
fi

fail() {
    echo "$*"
    exit 1
}

# ---- the demo, with a program that only writes down its arguments ----

cat >"$dir/heed" <<END
#!/bin/sh
printf '<%s>' "\$@" >>"$dir/arguments"
echo >>"$dir/arguments"
END
chmod +x "$dir/heed"
"$source/scripts/demo_train.sh" "$dir/heed" "$dir/a demo" >"$dir/shown"
# the demo itself adds --quiet to its translation
sed 's/<translate><--quiet>/<translate>/' "$dir/arguments" >"$dir/want"
rm "$dir/arguments"
sed -n 's/^\$ //p' "$dir/shown" >"$dir/pasted"
(cd "$dir" && sh -e pasted) >"$dir/out" || fail "cannot be pasted: $(cat "$dir/pasted")"
[ -s "$dir/want" ]
cmp "$dir/want" "$dir/arguments" || fail "pasted: $(cat "$dir/arguments")"

# ---- going on with a training that was interrupted ----

odd=$dir/"it's a \$model & more"
for i in $(seq 1 300); do
    printf 'the line number %d of many\tdie Zeile %d von vielen\n' "$i" "$i"
done >"$dir/pairs"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/pairs"
train=(--pairs "$dir/pairs" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 32 --heads 2
    --encoder-layers 1 --decoder-layers 1 --steps 1000000 --out "$odd" --)
"$heed" train "${train[@]}" 2>"$dir/err" &
pid=$!
for _ in $(seq 1 600); do
    [ ! -d "$odd" ] || break
    sleep 0.1
done
kill -TERM $pid
if wait $pid; then fail 'the training did not stop'; fi
# again with the program that writes its arguments down
sed -n '/^to go on:/{n;p}' "$dir/err" | sed "s|$heed|$dir/heed|" >"$dir/pasted"
rm "$dir/arguments"
(cd "$dir" && sh pasted) || fail "cannot be pasted: $(cat "$dir/pasted" "$dir/err")"
{
    printf '<%s>' train --resume "${train[@]}"
    echo
} | cmp - "$dir/arguments" || fail "pasted: $(cat "$dir/pasted" "$dir/arguments")"
