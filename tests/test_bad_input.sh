#!/bin/bash
# test_bad_input.sh - mistakes of a user: each gives one sentence that names its cause and an exit
# code of 1 or 2, without a crash or incomplete output.
#
# usage: test_bad_input.sh PROGRAM
# shellcheck disable=SC2046,SC2086 # options are one word each
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
trap 'umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT

for i in $(seq 1 300); do echo "the line number $i of many"; done >"$dir/a"
sed 's/the line/die Zeile/; s/of many/von vielen/' "$dir/a" >"$dir/b"
accepts vocab --size 300 --quiet --out "$dir/vocab" "$dir/a" "$dir/b"
small="--preset tiny --d-model 16 --d-ff 16 --heads 2 --encoder-layers 1 --decoder-layers 1
    --batch-tokens 256 --steps 3 --quiet"
train="train --vocab $dir/vocab $small"

# but OPTION VALUE: $train with another value of one option
but() {
    echo "$train" | sed "s/--$1 [^ ]*/--$1 $2/"
}

# missing and unequal files
refuses 1 "$dir/none.*No such file" vocab --size 300 --out "$dir/v" "$dir/none"
refuses 1 "$dir/none.*No such file" $train --src "$dir/none" --tgt "$dir/b" --out "$dir/o1"
refuses 1 "$dir/none.*No such file" $train --src "$dir/a" --tgt "$dir/none" --out "$dir/o1"
refuses 1 "$dir/none" train --vocab "$dir/none" $small --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"
refuses 1 "$dir/none" translate --model "$dir/none"
refuses 1 "$dir/none" average --out "$dir/o1" "$dir/none"
head -n 299 "$dir/b" >"$dir/short"
refuses 1 "300.*299|299.*300" $train --src "$dir/a" --tgt "$dir/short" --out "$dir/o1"
refuses 1 "300.*299|299.*300" $train --src "$dir/short" --tgt "$dir/a" --out "$dir/o1"

# a pipe can be read only once
mkfifo "$dir/pipe"
cat "$dir/a" >"$dir/pipe" &
refuses 1 "$dir/pipe is a pipe" vocab --size 300 --out "$dir/v" "$dir/pipe"
kill $! 2>/dev/null
cat "$dir/a" >"$dir/pipe" &
refuses 1 "$dir/pipe is a pipe" $train --pairs "$dir/pipe" --out "$dir/o1"
kill $! 2>/dev/null

# empty
: >"$dir/empty"
refuses 1 "empty" vocab --size 300 --out "$dir/v" "$dir/empty"
refuses 1 "empty|no usable" $train --src "$dir/empty" --tgt "$dir/empty" --out "$dir/o1"
refuses 1 "empty|no usable" $train --pairs "$dir/empty" --out "$dir/o1"

# no tab in a file of pairs: the line is named
refuses 1 "$dir/a.*line 1|$dir/a:1" $train --pairs "$dir/a" --out "$dir/o1"

# a line of 1 MB is left out, invalid UTF-8 and NUL bytes are replaced, and training goes on
{ cat "$dir/a"; head -c 1000000 /dev/zero | tr '\0' x; echo; } >"$dir/long.src"
{ cat "$dir/b"; echo "a long line"; } >"$dir/long.tgt"
accepts $train --src "$dir/long.src" --tgt "$dir/long.tgt" --out "$dir/o2"
{ cat "$dir/a"; printf 'caf\351 \377\376 ok\n'; printf 'a\0b\n'; } >"$dir/odd.src"
{ cat "$dir/b"; printf 'Caf\351\n'; printf 'a\0b\n'; } >"$dir/odd.tgt"
accepts $train --src "$dir/odd.src" --tgt "$dir/odd.tgt" --out "$dir/o3"
accepts vocab --size 300 --quiet --out "$dir/v" "$dir/odd.src" "$dir/long.src"
printf 'caf\351 \377\376\n\nplain\na\0b\n%03000d\n' 0 |
    "$heed" translate --model "$dir/o3" --quiet >"$dir/out" 2>"$dir/err"
code=$?
if [ "$code" != 0 ] || [ "$(wc -l <"$dir/out")" != 5 ]; then
    echo "translate: $(wc -l <"$dir/out") lines for 5, exit code $code"
    failures=$((failures + 1))
fi

# shapes and vocabularies that make no sense
refuses 2 "16.*3|3.*16" $(but heads 3) --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"

# forms of the model that make no sense: the options and the sentence
forms=(
    "--norm per: --norm is 'per', expected post or pre; did you mean pre\?"
    "--activation gleu: --activation is 'gleu', .*; did you mean gelu\?"
    "--activation swigul: --activation is 'swigul', .*; did you mean swiglu\?"
    "--activation tanh: --activation is 'tanh', expected relu, gelu, silu or swiglu$"
    "--position rop: --position is 'rop', .*; did you mean rope\?"
    "--tie decodr: --tie is 'decodr', .*; did you mean decoder\?"
    "--recompute layers: --recompute is 'layers', .*; did you mean layer\?"
    "--kv-heads 3: heads is 2, expected a multiple of kv_heads, 3"
    "--position rope --d-k 5: position is rope and d_k is 5, expected an even number"
    "--d-k 2000: d-k is '2000', expected a whole number from 0 to 1024"
    "--d-v -1: d-v is '-1', expected a whole number from 0 to 1024"
    "--attention windwo: --attention is 'windwo', .*; did you mean window\?"
    "--attention window --window 0: window is 0 and attention is window, expected at least 1"
    "--attention window --window -1: window is '-1', expected a whole number from 0 to"
    "--window 4: window is 4 and attention is full, expected attention window"
    "--attention linear --global 2: global is 2 and attention is linear, expected attention window"
    "--attention linear --position alibi: position is alibi and attention is linear, expected"
    "--attention additive --position relative: position is relative and attention is additive, expected"
    "--position alibii: --position is 'alibii', .*; did you mean alibi\?"
    "--ff sparse: --ff is 'sparse', expected dense or moe"
    "--ff moe --experts 2 --experts-per-token 3: experts_per_token is 3, expected at most experts, 2"
    "--ff moe --experts 100: experts is '100', expected a whole number from 0 to 64"
    "--experts 4: experts is 4 and ff is dense, expected ff moe"
    "--bias=yes: --bias takes no value, found 'yes'"
)
for form in "${forms[@]}"; do
    refuses 2 "${form#*: }" $train ${form%%: *} --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"
done
# an odd width is the sinusoid's trouble alone
odd="$(but d-model 15 | sed 's/--heads 2/--heads 3/') --src $dir/a --tgt $dir/b --out $dir/odd"
refuses 2 "position is sinusoid and d_model is 15, expected an even number" $odd
accepts $odd --position learned
accepts translate --model "$dir/odd" hello
refuses 2 "beta1" $train --beta1 1 --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"
refuses 2 "200.*128" $(but encoder-layers 200) --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"
refuses 1 "100000" vocab --size 100000 --out "$dir/v" "$dir/a"
refuses 1 "$dir/a" train --vocab "$dir/a" $small --src "$dir/a" --tgt "$dir/b" --out "$dir/o1"
accepts vocab --size 310 --quiet --out "$dir/vocab2" "$dir/a" "$dir/b"
refuses 1 "310" train --vocab "$dir/vocab2" $small --src "$dir/odd.src" --tgt "$dir/odd.tgt" \
    --out "$dir/o3" --resume
cp -r "$dir/o3" "$dir/o4"
cp "$dir/vocab2" "$dir/o4/vocab.model"
refuses 1 "310 pieces, expected 300" translate --model "$dir/o4"
# where vocabulary and weights are both wrong, which two threads find, the error is about the
# vocabulary
head -c 4 "$dir/o3/model.safetensors" >"$dir/o4/model.safetensors"
refuses 1 "310 pieces, expected 300" translate --model "$dir/o4"

# a configuration that int8 weights do not support is refused before anything is written
accepts $(but d-ff 24) --src "$dir/a" --tgt "$dir/b" --out "$dir/uneven"
for weights in bf16 int8; do
    refuses 1 "inner width of the feed-forward is 24, expected multiples of 16" quantize --weights $weights --out "$dir/o5" "$dir/uneven"
done
accepts $(but d-model 24) --activation swiglu --src "$dir/a" --tgt "$dir/b" --out "$dir/gated"
refuses 1 "d_model is 24 and the inner width of the feed-forward is 16" quantize --out "$dir/o5" "$dir/gated"

# damaged models
accepts quantize --out "$dir/int8" "$dir/o3"
cp "$dir/vocab" "$dir/o4/vocab.model"
for model in o3 int8; do
    for cut in 0 4 100 5000; do
        head -c "$cut" "$dir/$model/model.safetensors" >"$dir/o4/model.safetensors"
        refuses 1 "$dir/o4/model.safetensors" translate --model "$dir/o4"
    done
done
sed 's/"d_ff": 16/"d_ff": 32/' "$dir/int8/config.json" >"$dir/o4/config.json"
cp "$dir/int8/model.safetensors" "$dir/o4"
refuses 1 "tensor encoder.layers.0.ff.fc1.weight has shape \\[1, [0-9]*], expected \\[2, " translate --model "$dir/o4"
echo '{}' >"$dir/o4/config.json"
refuses 1 "$dir/o4/config.json" translate --model "$dir/o4"

# nowhere to write
echo >"$dir/file"
refuses 1 "$dir/file" $train --src "$dir/a" --tgt "$dir/b" --out "$dir/file/o"
refuses 1 "$dir/file" vocab --size 300 --out "$dir/file/v" "$dir/a"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 500 "$dir/locked"
    refuses 1 "$dir/locked.*Permission denied" $train --src "$dir/a" --tgt "$dir/b" \
        --out "$dir/locked/o"
fi

# options
refuses 2 "--sead.*--seed" $train --sead 3
refuses 2 "steps" $(but steps many)
refuses 2 "steps" $(but steps -5)

# a full disk leaves the last good checkpoint, and training goes on from it when there is room
if [ "$(id -u)" = 0 ] && mkdir "$dir/small" && mount -t tmpfs -o size=700k tmpfs "$dir/small" 2>/dev/null
then
    full="$(but steps 40) --src $dir/a --tgt $dir/b --save-every 5 --keep 50 --out $dir/small/o"
    refuses 1 "$dir/small/o.*No space left" $full
    last=$(ls "$dir/small/o/checkpoints" | tail -n 1)
    case $last in
    step-*[0-9]) ;;
    *)
        echo "full disk: no whole checkpoint is left: $last"
        failures=$((failures + 1))
        ;;
    esac
    accepts translate --model "$dir/small/o/checkpoints/$last" hello
    mount -o remount,size=20m "$dir/small"
    accepts $full --resume
    accepts $(but steps 40) --src "$dir/a" --tgt "$dir/b" --out "$dir/o5"
    cmp "$dir/small/o/model.safetensors" "$dir/o5/model.safetensors" || failures=$((failures + 1))
else
    echo "skipped: a full disk (needs root and mount)"
fi

[ "$failures" = 0 ] && echo "every mistake got its sentence"
exit "$((failures > 0))"
