#!/bin/sh
# test_cli.sh - the program as a user types it: help, mistakes, exit codes, scores.
#
# usage: test_cli.sh PROGRAM
set -u
heed=${1:?usage: test_cli.sh PROGRAM}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

# run ARGUMENTS...: the program with standard input from $dir/in, if there is one; what it printed
# is in $dir/out and $dir/err, its exit code in $code
run() {
    [ -f "$dir/in" ] || : >"$dir/in"
    "$heed" "$@" <"$dir/in" >"$dir/out" 2>"$dir/err"
    code=$?
    command="heed $*"
}

complain() {
    echo "$command: $1"
    sed 's/^/    stdout: /' "$dir/out"
    sed 's/^/    stderr: /' "$dir/err"
    failures=$((failures + 1))
}

# expect CODE [STREAM PATTERN]: of the last run
expect() {
    if [ "$code" != "$1" ]; then
        complain "exit code $code, expected $1"
    elif [ $# = 3 ] && ! grep -Eq -- "$3" "$dir/$2"; then
        complain "no '$3' in std$2"
    elif [ "$code" != 0 ] && { [ "$(wc -l <"$dir/err")" != 1 ] || ! grep -q '^heed: ' "$dir/err"; }
    then
        complain "expected one sentence on stderr that starts with 'heed: '"
    fi
}

commands='vocab train translate attention score tree evaluate average quantize'

# ---- help and version ----

run --version
expect 0 out '^heed [0-9]+\.[0-9]+\.[0-9]+$'
expect 0 out '^CPU kernels: ([a-z0-9]+) \(of .*baseline\)$'
[ -n "${HEED_DEVICE:-}" ] || expect 0 out '^CPU kernels: ([a-z0-9]+) \(of \1[,)]'
HEED_DEVICE='' HEED_ISA=baseline run --version
expect 0 out '^CPU kernels: baseline \(of '
run --help
for c in $commands; do expect 0 out "^  $c  "; done
run help
expect 0 out '^example:'
for c in $commands; do
    run "$c" --help
    expect 0 out '^example:'
    expect 0 out "^  heed .*$c"
    cp "$dir/out" "$dir/help"
    run help "$c"
    expect 0
    cmp -s "$dir/out" "$dir/help" || complain "differs from heed $c --help"
    # every number says its range
    awk '/^  --[a-z0-9-]+ (N|X|P|T|RATE|NORM)( |$)/ && !/\([^(]*( to |at least )/ {
        number = $0
        getline
        if (!/\([^(]*( to |at least )/) { print number; bad = 1 }
    }
    length($0) > 100 { print "too long: " $0; bad = 1 }
    END { exit bad }' "$dir/out" >"$dir/err" || complain "a number without its range, or a line that is too long"
done
run translate --help
expect 0 out '--beam N .* \(1 to 64, default 4\)$'
expect 0 out '--ban TEXT .* \(repeatable\)$'
run train --help
expect 0 out '--steps N .* \(at least 1, default 100000\)$'
expect 0 out '--d-model N .* \(1 to 16384\)$'
expect 0 out '--dropout RATE .* \(at least 0, less than 1\)$'
expect 0 out '--norm post\|pre'
expect 0 out '\(default post\)$'
expect 0 out '--activation relu\|gelu\|silu\|swiglu'
expect 0 out '\(default relu\)$'
expect 0 out '--position sinusoid'
expect 0 out '\(default sinusoid\)$'
expect 0 out '--vocab FILE .* \(required\)$'
run vocab --help
expect 0 out '\(1 to 1000000, required\)$'

# ---- mistakes in the command and its options ----

run
expect 2 err 'no command'
run trian
expect 2 err 'no command trian; did you mean train\?'
run xyzzy
expect 2 err 'no command xyzzy; see heed --help'
run help trainslate
expect 2 err 'did you mean translate\?'
run train --stepz 5
expect 2 err 'no option --stepz; did you mean --steps\?'
run train --batch=5
expect 2 err 'no option --batch; did you mean --batch-tokens\?'
run train --xyzzy
expect 2 err 'no option --xyzzy; see heed train --help'
run score -x
expect 2 err 'no option -x'
run train --steps
expect 2 err '--steps needs a value \(N\), found nothing'
run train --vocab --out x
expect 2 err '--vocab needs a value \(FILE\), found --out'
run train --steps 12x
expect 2 err "--steps is '12x', expected a whole number from 1 to"
run train --steps=0
expect 2 err "--steps is '0', expected a whole number from 1 to"
run train --steps 1000000000000001
expect 2 err "--steps is '1000000000000001', expected a whole number from 1 to 1000000000000000"
run train --threads 99999999999999999999
expect 2 err "--threads is '99999999999999999999', expected a whole number from 0 to 4096"
run train --dropout 1.5
expect 2 err "--dropout is '1.5', expected a number of at least 0 and less than 1"
run train --dropout nan
expect 2 err "--dropout is 'nan', expected a number"
run train --heads=0
expect 2 err "--heads is '0', expected a whole number from 1 to 1024"
run train --max-length 12x
expect 2 err "--max-length is '12x', expected a whole number from 2 to 1048576"
run train --norm sandwich
expect 2 err "--norm is 'sandwich', expected post"
run train --activation rleu
expect 2 err "--activation is 'rleu', expected relu.*; did you mean relu\?"
run train --position
expect 2 err '--position needs a value \(sinusoid.*\), found nothing'
run train --vocab-size 8000
expect 2 err 'no option --vocab-size'
run train --pairs p --vocab v --out o --heads 7
expect 2 err 'd_model is 512, expected a multiple of the 7 heads'
run train --preset huge
expect 2 err "--preset is 'huge', expected one of tiny\|small\|base\|big"
run translate -beam 3
expect 2 err 'no option -beam; did you mean --beam\?'
run translate -x
expect 2 err 'no option -x; put -- before a TEXT that begins with -'
run score --ref one --tokenize 13a --tokenize=zh
expect 2 err "--tokenize is given twice, '13a' and 'zh', expected once"
run train --steps 10 --steps 10
expect 2 err "--steps is given twice, '10' and '10', expected once"
run train --dropout 0.1 --dropout 0.2
expect 2 err "--dropout is given twice"
run train --quiet --quiet --pairs a --pairs b --vocab v
expect 2 err 'train needs --out DIR'
run train --resume=yes
expect 2 err "--resume takes no value, found 'yes'"
run train --vocab v
expect 2 err 'train needs --out DIR'
run train --vocab v --out o
expect 2 err 'train needs --pairs FILE, or --src FILE and --tgt FILE'
run train --vocab v --out o --pairs p --src s --tgt t
expect 2 err '--pairs and --src exclude each other'
run train --vocab v --out o --src s --src s --tgt t
expect 2 err '--src is given 2 times and --tgt 1 times'
run train --vocab v --out o --pairs p --valid-src s
expect 2 err '--valid-src is given 1 times and --valid-tgt 0 times'
run vocab --size 100 --out "$dir/v"
expect 2 err 'vocab needs at least 1 TEXT file'
if [ -z "${HEED_TEST_EMULATED:-}" ]; then # else $heed is a script that knows where the program lies
    there=$heed heed=$dir/alone # where no model lies beside it
    cp "$there" "$heed"
    run translate
    expect 2 err '--model is missing, and no model came with heed'
    heed=$there
fi
run translate --model m --beam 3 --nbest 4 hello
expect 2 err '--nbest is 4, expected at most --beam, which is 3'
run evaluate --model m --src s
expect 2 err 'evaluate needs --ref FILE'
run evaluate --model m --src s --ref r --nbest 2
expect 2 err 'evaluate has no option --nbest'
run attention --ref x y
expect 2 err 'attention has no option --ref'
run score --metric bleu
expect 2 err 'score needs --ref FILE'
run score --ref x --metric belu
expect 2 err "--metric is 'belu', expected bleu, chrf, chrf\+\+, ter or parseval; did you mean bleu\?"
run score --ref x --metric rouge
expect 2 err "--metric is 'rouge', expected bleu, chrf, chrf\+\+, ter or parseval$"
run score --ref x --metric ter --metric ter
expect 2 err '--metric ter is given twice'
run score --ref x --metric ter --tokenize zh
expect 2 err '--tokenize is for BLEU'
run score --ref x --metric parseval --metric bleu
expect 2 err '--metric parseval compares trees with one --ref, and takes no other metric'
run score --ref x --ref -
expect 2 err '--ref is -, expected a file'
run score --ref x - -
expect 2 err '- is given twice'
run score --ref x --sentences a b
expect 2 err '--sentences scores one translation, found 2'
run score --ref x --samples 10 a
expect 2 err '--samples is for comparing two or more translations, found 1'
run average --out x
expect 2 err 'average needs at least 1 CHECKPOINT'

# ---- files that are not there ----

run vocab --size 500 --out "$dir/v" "$dir/missing.txt"
expect 1 err 'missing\.txt'
run train --pairs "$dir/missing.tsv" --vocab "$dir/missing.model" --out "$dir/m" --preset tiny
expect 1 err 'missing\.'
run translate --model "$dir/missing" hello
expect 1 err 'missing'
run translate --model "$dir/missing" --device abacus hello
expect 1 err 'abacus'
run score --ref "$dir/missing.txt"
expect 1 err 'cannot open .*missing\.txt: No such file'
run score --ref "$dir"
expect 1 err 'is a directory, expected'
run evaluate --model "$dir/missing" --src "$dir/missing.txt" --ref "$dir/in"
expect 1 err 'cannot open .*missing\.txt: No such file'
run average --out "$dir/a" "$dir/missing"
expect 1 err 'missing'

# ---- scores, as sacreBLEU 2 computes them ----

printf 'The dog runs over the green field.\nA little cat sleeps on the red mat.\n' >"$dir/ref"
printf 'The dog runs across the green field.\nA small cat sleeps on the mat.' >"$dir/in"
run score --ref "$dir/ref"
expect 0 out '^BLEU 43\.71  87\.5/64\.3/41\.7/20\.0  BP 0\.939  \(hyp 16, ref 17\)  nrefs:1\|case:mixed'
expect 0 out '^chrF 64\.48  '
run score --ref "$dir/ref" --json
expect 0 out '"score": 43\.71'
printf 'The dog runs across the green field.\r\nA small cat sleeps on the mat.\r\n' >"$dir/in"
run score --ref "$dir/ref" --tokenize=13a
expect 0 out '^BLEU 43\.71 '
printf '我很喜欢吃苹果。\n' >"$dir/ref.zh"
printf '我喜欢吃苹果。\n' >"$dir/in"
run score --ref "$dir/ref.zh" --tokenize zh
expect 0 out '^BLEU 72\.90 '
echo 'one line' >"$dir/in"
run score --ref "$dir/ref"
expect 1 err 'standard input has 1 line, .*ref has 2'
run evaluate --model "$dir/missing" --src "$dir/in" --ref "$dir/ref"
expect 1 err 'in has 1 line, .*ref has 2'
run score --ref "$dir/ref" --ref "$dir/in" "$dir/ref"
expect 1 err 'in has 1 line, .*ref has 2'
run score --ref "$dir/ref" "$dir/ref" "$dir/in"
expect 1 err 'in has 1 line, .*ref has 2'
run score --ref "$dir/ref" "$dir/missing.txt"
expect 1 err 'cannot open .*missing\.txt: No such file'
run score --ref "$dir/ref" --tokenize martian
expect 2 err "--tokenize is 'martian', expected one of 13a"
: >"$dir/in"
: >"$dir/empty"
run score --ref "$dir/empty"
expect 1 err 'nothing to score'

golden=tests/golden/score/german
run score --ref $golden.ref1 --ref $golden.ref2 --metric ter --metric chrf++ --lowercase $golden.spoiled
expect 0 out '^TER 54\.99  \(edits 124, ref 225\.5\)  nrefs:2\|case:lc\|tok:tercom'
expect 0 out '^chrF\+\+ 69\.77  nrefs:2\|case:lc\|eff:yes\|nc:6\|nw:2'
cp $golden.spoiled "$dir/in"
run score --ref $golden.ref1 --ref $golden.ref2 --metric ter --sentences
expect 0
[ "$(sed -n '2p;20p' "$dir/out" | tr '\n' ' ')" = '94.74 0.00 ' ] || complain 'sentence scores'
[ "$(wc -l <"$dir/out")" = 22 ] || complain 'not one score a line'
run score --ref $golden.ref1 --sentences
expect 0
awk -F '\t' 'NF != 2 { exit 1 }' "$dir/out" || complain 'not two columns'
run score --ref $golden.ref1 --sentences --json
expect 0 out '^\{"bleu": \{"score": 100.*\|eff:yes\|.*\}, "chrf": \{"score": 100.*\}\}$'
run score --ref $golden.ref1 --ref $golden.ref2 $golden.beam - $golden.sampled
expect 0 out "^BLEU 71\.82  mean 71\.72 ± 7\.00  baseline    $golden\.beam$"
expect 0 out '^BLEU 49\.99  mean 49\.05 ± 15\.74  p 0\.0060 \*  standard input$'
expect 0 out "^chrF 72\.85  mean 72\.74 ± 5\.09  p 0\.0120 \*  $golden\.sampled$"
expect 0 out '^     nrefs:2\|bs:1000\|seed:12345\|case:mixed'
run score --ref $golden.ref1 --json --samples 100 --seed 1 --metric ter $golden.beam $golden.sampled
expect 0 out '"name": "tests/golden/score/german\.sampled", "score": .*"p": 0\.'
expect 0 out '"ter": \{"signature": "nrefs:1\|bs:100\|seed:1\|'

golden=tests/golden/score/parseval
run score --ref $golden.gold --metric parseval $golden.found
expect 0 out '^F1 81\.63  precision 77\.92  recall 85\.71  exact 30\.23  tags 94\.43  \(found 308, gold 280\)  48 lines, 5 errors  '
printf '(S (NN a))\n(S (NN b)\n' >"$dir/in"
run score --ref "$dir/in" --metric parseval
expect 1 err 'in: line 2, column 1: the tree that begins here lacks 1 closing bracket$'

# ---- output that cannot be written ----

command='heed --help >/dev/full'
"$heed" --help >/dev/full 2>"$dir/err"
code=$?
: >"$dir/out"
expect 1 err 'cannot write to standard output: No space left'
command='heed --help >&-'
"$heed" --help >&- 2>"$dir/err"
code=$?
expect 1 err 'cannot write to standard output'
command='heed --help | true'
{ sleep 0.1; "$heed" --help 2>"$dir/err"; echo $? >"$dir/code"; } | true
code=$(cat "$dir/code")
expect 1 err 'cannot write to standard output: Broken pipe'

[ "$failures" = 0 ] || echo "$failures failures"
[ "$failures" = 0 ]
