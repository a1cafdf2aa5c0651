#!/bin/bash
# test_reproduce.sh - `heed reproduce` as a user runs it: rows, reports, resuming, bad input.
#
# usage: test_reproduce.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
heed=$(realpath "$heed")
export OMP_NUM_THREADS=1

for i in $(seq 1 200); do echo "the line number $i of many"; done >"$dir/a"
sed 's/the line/die Zeile/; s/of many/von vielen/' "$dir/a" >"$dir/b"
head -n 20 "$dir/a" >"$dir/va"
head -n 20 "$dir/b" >"$dir/vb"
text="--src $dir/a --tgt $dir/b --valid-src $dir/va --valid-tgt $dir/vb"
shape="--vocab-size 300 --preset tiny --d-model 16 --d-ff 32 --heads 2 --encoder-layers 1
    --decoder-layers 1 --batch-tokens 256"
tiny="$text $shape --steps 12 --warmup 4"

# number FILE KEY: a number of a row
number() {
    sed -n "s/.*\"$2\": \([-0-9.e+]*\).*/\1/p" "$1" | head -n 1
}

# cell FILE ROW COLUMN: a cell of a table of a report
cell() {
    awk -F ' *\\| *' -v row="$2" -v column="$3" '$2 == row { print $(column + 1); exit }' "$1"
}

# same_number A B DECIMALS: the report's A is B with so many decimals
same_number() {
    [ "$1" = "$(LC_ALL=C printf "%.$3f" "$2")" ] || fail "the report says '$1', the row $2"
}

# ---- a study without training ----

accepts reproduce scaling --out "$dir/s"
[ -f "$dir/s/scaling.svg" ] || fail "no picture"
[ "$(ls "$dir/s/rows" | wc -l)" = 9 ] || fail "not nine rows"
same_number "$(cell "$dir/s/report.md" 64 2)" "$(number "$dir/s/rows/dk64.json" score_variance)" 2
same_number "$(cell "$dir/s/report.md" 64 3)" "$(number "$dir/s/rows/dk64.json" entropy)" 3
grep -q "The paper's claim is confirmed" "$dir/s/report.md" || fail "1/sqrt(d_k) is not needed"
cp "$dir/s/report.md" "$dir/before"
sed -i 's/"entropy": [0-9.]*/"entropy": 1.25/' "$dir/s/rows/dk64.json" # a report is made of the rows
accepts reproduce scaling --out "$dir/s"
same_number "$(cell "$dir/s/report.md" 64 3)" 1.25 3
rm "$dir/s/rows/dk64.json"
accepts reproduce scaling --out "$dir/s"
cmp -s "$dir/before" "$dir/s/report.md" || fail "a row that is computed again has other numbers"

# ---- one layer of each kind ----

accepts reproduce table1 --out "$dir/t1" --longest 32 --widest 64
grep -q '^| 32 | 1 | 33 | 32 | 8 |$' "$dir/t1/report.md" || fail "table1: path lengths of distance 32"
ms=$(awk '/"forward_ms"/ { f = $2 + 0 } /"backward_ms"/ { printf "%.9f\n", f + $2; exit }' "$dir/t1/rows/recurrent-d64.json")
cell=$(awk -F ' *\\| *' '/^Milliseconds/ { on = 1 } on && $2 == 16 { print $4; exit }' "$dir/t1/report.md")
digits=${cell%% *}
digits=${digits#*.}
same_number "${cell%% *}" "$ms" ${#digits}
for picture in time path; do
    [ -f "$dir/t1/$picture.svg" ] || fail "table1: no $picture.svg"
done

# ---- trainings: every number comes from the rows, and these from the log ----

mkdir "$dir/whole" "$dir/cut"
cd "$dir/whole" || exit 1
accepts reproduce table3 --out o --rows base,D3,seed $tiny --quiet
row=o/rows/D3.json
same_number "$(cell o/report.md D3 6)" "$(number $row perplexity)" 2
same_number "$(cell o/report.md D3 8)" "$(number $row bleu)" 2
[ "$(cell o/report.md D3 4 | tr -d ,)" = "$(number $row parameters)" ] || fail "parameters of D3"
tokens=$(sed -n 's/.*"target_tokens":\([0-9]*\).*/\1/p' o/runs/D3/model/log.jsonl | awk '{ n += $1 } END { print n }')
same_number "$tokens" "$(number $row target_tokens)" 0
[ ! -e o/runs/D3/model/checkpoints ] || fail "checkpoints of a finished row are left"
grep -q "^3 of 21 rows are finished" o/report.md || fail "the report does not say what is missing"
# What counts as alike is what the base model differs by with another seed.
noise=$(awk "BEGIN { x = $(number o/rows/seed.json nll) - $(number o/rows/base.json nll); print 100 * (exp(x < 0 ? -x : x) - 1) }")
awk "BEGIN { exit !($noise > 1) }" || fail "two seeds of the base model differ by $noise% only"
grep -q "^or $(printf %.1f "$noise")% of perplexity: two seeds" o/report.md || fail "the report does not know two seeds"
accepts translate --model o/runs/D3/model "the line number 3 of many"
"$heed" reproduce table3 --out o $tiny --list >"$dir/out"
grep -Eq '^D3 +finished +no label smoothing: --label-smoothing 0$' "$dir/out" || fail "--list: D3"
grep -Eq '^A4 +waiting ' "$dir/out" || fail "--list: A4"

# ---- killed and resumed: the same report ----

accepts reproduce schedule --out s $tiny --quiet
cd "$dir/cut" || exit 1
"$heed" reproduce schedule --out s $tiny --quiet >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1 600); do
    [ -e s/rows/constant.json ] && break
    sleep 0.05
done
kill -9 $pid
wait $pid 2>/dev/null
[ ! -e s/rows/none-pre.json ] || fail "killed too late"
accepts reproduce schedule --out s $tiny --quiet --minutes 0.00001
[ ! -e s/rows/none-pre.json ] || fail "--minutes did not stop"
accepts reproduce schedule --out s $tiny --quiet
for file in report.md loss.svg; do
    cmp -s s/$file "$dir/whole/s/$file" || fail "$file differs after a kill"
done

# a training that is killed goes on from its last checkpoint
half="--out half ${tiny/--steps 12/--steps 400} --rows base --quiet"
(cd "$dir/whole" && accepts reproduce table3 $half)
"$heed" reproduce table3 $half >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1 6000); do
    ls half/runs/base/model/checkpoints/step-*/trainer.json >/dev/null 2>&1 && break
    sleep 0.01
done
kill -9 $pid
wait $pid 2>/dev/null
[ ! -e half/rows/base.json ] || fail "the row was finished before it was killed"
accepts reproduce table3 $half
grep -q '"event":"start".*going on from step' half/runs/base/model/log.jsonl || fail "training began anew"
cmp -s half/report.md "$dir/whole/half/report.md" || fail "the report differs after a kill"

# a signal saves the trainings of all processes
long="--out long ${tiny/--steps 12/--steps 100000}"
"$heed" reproduce table3 $long --rows base,A1 --jobs 2 >/dev/null 2>"$dir/err" &
pid=$!
for _ in $(seq 1 600); do
    grep -q "^step " "$dir/err" && [ -s long/runs/A1/model/log.jsonl ] && [ -s long/runs/base/model/log.jsonl ] && break
    sleep 0.05
done
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 143 ] || fail "SIGTERM: exit $code"
grep -q "reproduce table3 --out long .*--rows base,A1" "$dir/err" || fail "not said how to go on"
"$heed" reproduce table3 $long --list >"$dir/out"
for row in base A1; do
    grep -Eq "^$row +begun " "$dir/out" || fail "--list: row $row was stopped"
    [ -d long/runs/$row/model/checkpoints ] || fail "SIGTERM: nothing of $row is saved"
done

# several processes share the rows
accepts reproduce schedule --out jobs $tiny --quiet --jobs 3
sed 's/--out jobs/--out s/; s/ --jobs 3//' jobs/report.md | cmp -s - s/report.md || fail "--jobs 3: another report"

accepts reproduce length --out l $tiny --quiet --train-length 20 --rows sinusoid,none
[ -f l/length.svg ] || fail "length: no picture"
accepts reproduce table2 --out t $tiny --quiet
same_number "$(cell t/report.md base 10)" "$(number t/rows/base.json bleu)" 2

# ---- bad input ----

cd "$dir" || exit 1
refuses 2 "there is no study \"tabel3\"; did you mean table3\?" reproduce tabel3 --out x
refuses 2 "there is no study \"figures\"; expected " reproduce figures --out x
refuses 2 "there is no study" reproduce tabel3 --out x --jobs 4
refuses 2 "reproduce needs at least 1 STUDY" reproduce --out x
refuses 2 "takes one study, found table3 and table2" reproduce table3 table2 --out x
refuses 2 "needs --out DIR" reproduce scaling
refuses 2 "table3 needs training text" reproduce table3 --out x
refuses 2 "table3 needs validation text" reproduce table3 --out x --src a --tgt b
refuses 2 "table3 has no row \"A9\"; did you mean A" reproduce table3 --out x $tiny --rows base,A9
refuses 1 "missing" reproduce table3 --out x $tiny --src "$dir/missing" --tgt "$dir/b"
refuses 1 "cannot create directory" reproduce scaling --out "$dir/a/x"
refuses 2 "was begun with steps 12, found 13" reproduce schedule --out cut/s ${tiny/--steps 12/--steps 13}
refuses 2 "was begun with study \"schedule\", found \"scaling\"" reproduce scaling --out cut/s
refuses 2 "was begun with longest 32, found 64" reproduce table1 --out t1 --longest 64 --widest 64
refuses 2 "train-length is 70, expected at most 50" reproduce length --out x $tiny --train-length 70
printf '{"row": ' >"$dir/s/rows/dk64.json"
refuses 1 "rows/dk64.json is not a JSON object" reproduce scaling --out "$dir/s"

[ $failures = 0 ] && echo "reproduce: all as expected"
exit $((failures > 0))
