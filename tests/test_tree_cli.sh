#!/bin/bash
# test_tree_cli.sh - `heed tree` as a user types it: drawings, training text and back, bad trees.
#
# usage: test_tree_cli.sh PROGRAM
set -u
heed=${1:?usage: test_tree_cli.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
fail() {
    echo "$1"
    failures=$((failures + 1))
}
# refused CODE SENTENCE ARGUMENTS...: with standard input from $dir/in
refused() {
    local code=$1 sentence=$2
    shift 2
    "$heed" "$@" <"$dir/in" >"$dir/out" 2>"$dir/err"
    [ $? = "$code" ] || fail "heed $*: not exit code $code"
    grep -qF -- "$sentence" "$dir/err" || fail "heed $*: no '$sentence' in '$(cat "$dir/err")'"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "heed $*: not one sentence"
}

cat >"$dir/trees" <<'TREES'
( (S (NP-SBJ (DT The) (NN dog))
     (VP (VBZ runs) (NP (-NONE- *)))
     (. .)))

(IP (NP (NR 上海)) (VP (VV 同步)) (PU 。))
TREES
"$heed" tree --clean "$dir/trees" | cmp - <(cat <<'DRAWN'
S
├─ NP
│  ├─ DT  The
│  └─ NN  dog
├─ VP
│  └─ VBZ  runs
└─ .  .

IP
├─ NP
│  └─ NR  上海
├─ VP
│  └─ VV  同步
└─ PU  。
DRAWN
) || fail 'drawing'
"$heed" tree --print linear <"$dir/trees" >"$dir/linear"
printf '(S (NP DT NN ) (VP VBZ ) . )\n(IP (NP NR ) (VP VV ) PU )\n' | cmp - "$dir/linear" || fail linear
"$heed" tree --print words "$dir/trees" >"$dir/words"
printf 'The dog runs .\n上海 同步 。\n' | cmp - "$dir/words" || fail words
"$heed" tree --restore "$dir/words" "$dir/linear" >"$dir/restored"
"$heed" tree --clean --print brackets "$dir/trees" >"$dir/clean"
"$heed" score --metric parseval --ref "$dir/clean" "$dir/restored" | grep -q '^F1 100.00 ' || fail restored
# any text becomes a tree over the words, and one line stays one line
printf ')))((( NN ,\n\n' | "$heed" tree --restore "$dir/words" | "$heed" tree --print words - |
    cmp - "$dir/words" || fail 'restored from anything'
{
    printf 'x'
    head -c 30000 "$heed" | tr -d '\n'
    echo
} >"$dir/noise"
head -n 1 "$dir/words" >"$dir/first"
"$heed" tree --restore "$dir/first" "$dir/noise" | "$heed" tree --print words | cmp - "$dir/first" ||
    fail 'restored from noise'

"$heed" tree --number 2 --out "$dir/tree.svg" "$dir/trees" || fail svg
grep -q '>上海</text>' "$dir/tree.svg" || fail 'no words in the SVG'
if command -v xmllint >/dev/null; then xmllint --noout "$dir/tree.svg" || fail 'not XML'; fi

: >"$dir/in"
refused 1 'standard input has no trees' tree
printf '(S (NP a)\n' >"$dir/in"
refused 1 'standard input: line 1, column 1: the tree that begins here lacks 1 closing bracket' tree
printf '(S a)\n(S b))\n' >"$dir/in"
refused 1 "standard input: line 2, column 6: ')' without a '(' before it" tree
printf '\001\377\000 binary' >"$dir/in"
refused 1 "is outside of brackets, expected '('" tree
refused 1 'cannot open' tree "$dir/missing"
refused 1 'trees has 2 trees; choose the one to draw with --number N' tree --out "$dir/x.svg" "$dir/trees"
refused 1 'trees has 2 trees, and no tree 3' tree --number 3 "$dir/trees"
refused 1 'has 2 lines' tree --restore "$dir/first" "$dir/linear"
refused 2 'tree takes one FILE, found 2' tree a b
refused 2 '.svg' tree --out "$dir/x.gif" "$dir/trees"
refused 2 '--restore prints trees in brackets' tree --restore "$dir/words" --print words
refused 2 '--print and --out are given' tree --print words --out "$dir/x.svg"
refused 2 'expected one of brackets|words|linear' tree --print wrods
# a hundred thousand brackets in each other
{
    yes '(X' | head -n 100000
    echo '(NN a)'
    yes ')' | head -n 100000
} | tr '\n' ' ' >"$dir/deep"
[ "$("$heed" tree --print words "$dir/deep")" = a ] || fail 'deep tree'
refused 1 'tree 1 is 100002 brackets deep; at most 1000 can be drawn' tree "$dir/deep"

[ $failures = 0 ] || echo "$failures failures"
exit $((failures > 0))
