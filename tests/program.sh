# shellcheck shell=bash
# program.sh - sourced by tests that run the program, with its path as the first argument. Sets heed,
# the program; dir, a directory that is removed at the end; and failures, which `fail` counts. What the
# program printed last is in $dir/out and $dir/err.
heed=${1:?usage: $(basename "$0") PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "$*"
    [ ! -s "$dir/err" ] || sed 's/^/    /' "$dir/err"
    failures=$((failures + 1))
}

# refuses CODE PATTERN ARGUMENTS...: the program exits with CODE after one sentence that PATTERN, an
# extended regular expression, matches. Its standard input is $input, or nothing.
refuses() {
    local want=$1 pattern=$2 code=0
    shift 2
    timeout -k 5 60 "$heed" "$@" <"${input:-/dev/null}" >"$dir/out" 2>"$dir/err" || code=$?
    if [ "$code" != "$want" ] || ! grep -Eq -- "$pattern" "$dir/err" ||
        [ "$(grep -c '^heed: ' "$dir/err")" != 1 ]; then
        fail "heed $* <${input:-/dev/null}: exit $code, expected $want and a sentence with '$pattern'"
    fi
}

# accepts ARGUMENTS...: the program succeeds
accepts() {
    timeout -k 5 60 "$heed" "$@" </dev/null >"$dir/out" 2>"$dir/err" || fail "heed $*: failed"
}
