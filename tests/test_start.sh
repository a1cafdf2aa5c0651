#!/bin/bash
# test_start.sh - however the program is started, it finds the model that comes with it, translates,
# and its OpenMP threads spin briefly (cli/waiting.h): by its name, a relative path or a link, through
# the dynamic loader, when its file was deleted, without /proc, with and without an environment.
#
# usage: test_start.sh PROGRAM
set -u
heed=$(realpath "${1:?usage: test_start.sh PROGRAM}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: the program can only be started by an emulator"
    exit 0
fi
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export OMP_DISPLAY_ENV=verbose LC_ALL=C.UTF-8
text=(translate --quiet --to de 'Good morning!')

# Where libgomp is not the first OpenMP library of the program, another one does the work.
openmp=$(ldd "$heed" | grep -o 'lib\(gomp\|omp\)\.so' | head -n 1)

complain() {
    echo "$1: $2"
    sed 's/^/    /' "$dir/out" "$dir/err"
    failures=$((failures + 1))
}

# check NAME SPINS: of what was started just now
check() {
    grep -qx 'Guten Morgen!' "$dir/out" || complain "$1" 'no translation'
    [ "$openmp" = libgomp.so ] || return
    [ "$(grep -c GOMP_SPINCOUNT "$dir/err")" = 1 ] || complain "$1" 'expected one start'
    grep -q "GOMP_SPINCOUNT = '$2'" "$dir/err" || complain "$1" "expected threads that spin $2 times"
}

# start NAME COMMAND...
start() {
    local name=$1
    shift
    "$@" "${text[@]}" >"$dir/out" 2>"$dir/err" </dev/null
    check "$name" "${spins:-2000}"
}

start 'its path' "$heed"
own=$(dirname "$heed")
cd "$own/.." || exit 1
relative=./$(basename "$own")/heed
start 'a relative path' "$relative"
PATH=$own:$PATH start 'its name' heed
ln -s "$heed" "$dir/link"
start 'a link' "$dir/link"
# shellcheck disable=SC2016 # the dollars are the inner shell's
start 'another name for itself' bash -c 'exec -a something "$0" "$@"' "$heed"
start 'an empty environment' env -i OMP_DISPLAY_ENV=verbose "$heed"
spins=77 GOMP_SPINCOUNT=77 start 'a setting of the user' "$heed"
spins=0 OMP_WAIT_POLICY=passive start 'a policy of the user' "$heed"

# The loader is the program then, as far as the system knows.
loader=$(readelf -l "$heed" | sed -n 's/.*interpreter: \(.*\)].*/\1/p')
start 'the loader' "$loader" "$heed"
start 'the loader and a relative path' "$loader" "$relative"

cp "$heed" "$dir/heed"
ln -s "$own/models" "$dir/models"
exec 9<"$dir/heed"
rm "$dir/heed"
start 'a deleted file' /proc/self/fd/9
exec 9<&-

# A user who may not have a namespace of their own cannot try these.
if unshare --user --map-root-user --mount true 2>/dev/null; then
    # shellcheck disable=SC2016 # the dollars are the inner shell's
    without_proc='mount -t tmpfs none /proc && exec "$@"'
    alone=(unshare --user --map-root-user --mount sh -c "$without_proc" sh)
    start 'no /proc' "${alone[@]}" "$heed"
    start 'no /proc, a relative path' "${alone[@]}" "$relative"
    PATH=/nowhere:$own:$PATH start 'no /proc, its name' "${alone[@]}" heed
    start 'no /proc, the loader' "${alone[@]}" "$loader" "$heed"
else
    echo 'no namespaces here: not tried without /proc'
fi

[ "$failures" = 0 ] || echo "$failures failures"
[ "$failures" = 0 ]
