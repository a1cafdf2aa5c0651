#!/bin/bash
# test_train_cli.sh - `heed train`, `average` and `quantize` as a user runs them: what is resumed,
# what is refused, and the sentence that says why.
#
# usage: test_train_cli.sh PROGRAM
set -u
# shellcheck source=tests/program.sh
. "$(dirname "$0")/program.sh"
export OMP_NUM_THREADS=1

# says PATTERN COMMAND...: succeeds, and a line on stderr matches
says() {
    local pattern=$1
    shift
    accepts "$@"
    grep -Eq -- "$pattern" "$dir/err" || fail "heed $*: no line with '$pattern'"
}

same() {
    cmp -s "$1" "$2" || fail "$1 and $2 differ"
}

for i in $(seq 1 300); do echo "the line number $i of many"; done >"$dir/a"
sed 's/the line/die Zeile/; s/of many/von vielen/' "$dir/a" >"$dir/b"
# every third line is short, the others are longer than 40 tokens
sed 'n;s/$/ and on and on and on and on and on and on and on and on and on and on and on and on/;n;s/$/ and on and on and on and on and on and on and on and on and on and on and on and on/' "$dir/a" >"$dir/mixed.a"
cp "$dir/b" "$dir/mixed.b"
head -n 30 "$dir/a" >"$dir/va"
head -n 30 "$dir/b" >"$dir/vb"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/a" "$dir/b" || exit 1
shape="--preset tiny --d-model 16 --d-ff 16 --heads 2 --encoder-layers 1 --decoder-layers 1
    --batch-tokens 256"
train="train --vocab $dir/vocab $shape --quiet"
text="--src $dir/a --tgt $dir/b"
valid="--valid-src $dir/va --valid-tgt $dir/vb"

# ---- resuming: the same run or none ----

run="$dir/run"
go_on="$train $text --out $run --resume"
accepts $train $text $valid --steps 4 --save-every 2 --out "$run"
for change in "--lr 0.5" "--warmup 77" "--beta1 0.8" "--beta2 0.9" "--epsilon 1e-08" "--clip 3" \
    "--label-smoothing 0.2" "--subword-dropout 0.1" "--accumulate 2" "--seed 9" \
    "--schedule constant" "--train-length 9" "--precision bf16"; do
    refuses 1 "$run was begun with ${change% *} .*, found ${change#* }" $go_on --steps 6 $change
done
refuses 1 "begun with --batch-tokens 256, found 128" ${go_on/256/128} --steps 6
refuses 1 "begun with --lr 0, found 0.5" $go_on --steps 6 --lr 0.5
refuses 1 "dropout is 0.1, expected 0.2" $go_on --steps 6 --dropout 0.2

# pairs with a sentence of more tokens are left out of the training text, and of it alone
says "100 pairs read \(0 with an empty side and 200 too long left out" \
    ${train/--quiet/} --src "$dir/mixed.a" --tgt "$dir/mixed.b" $valid --steps 1 --train-length 40 \
    --out "$dir/shorter"
grep -q '"target_tokens":[1-9][0-9]*,"flops":[1-9]' "$dir/shorter/log.jsonl" ||
    fail "log.jsonl has no tokens and operations of a step"
refuses 1 "train_length is 600, expected 0 to 512" $train $text --steps 1 --train-length 600 \
    --out "$dir/longer"

# data are known by their content
sed 's/number 7 of/number 8 of/' "$dir/a" >"$dir/a2"
refuses 1 "begun with training text of 2 files, .* bytes, crc32 .*, found 2 files" \
    $train --src "$dir/a2" --tgt "$dir/b" --out "$run" --resume --steps 6
refuses 1 "training text" $train --src "$dir/b" --tgt "$dir/a" --out "$run" --resume --steps 6
refuses 1 "validation text of 2 files" $go_on --steps 6 --valid-src "$dir/a" --valid-tgt "$dir/b"
refuses 1 "begun with --best-by nll, found chrf" $go_on --steps 6 $valid --best-by chrf
cp "$dir/a" "$dir/moved"
touch -d 2001-01-01 "$dir/moved"
accepts $train --src "$dir/moved" --tgt "$dir/b" --out "$run" --resume --steps 5

# what does not change the weights may change
accepts $go_on $valid --steps 6 --save-every 1 --keep 3 --valid-every 3 --patience 9 --threads 2
accepts $train $text --steps 6 --out "$dir/whole"
same "$run/model.safetensors" "$dir/whole/model.safetensors"

# ---- other forms of the model: trained, resumed and translated with ----

accepts $train $text --steps 4 --out "$dir/paper"
for n in 3 1 9 2 1 5; do head -n $n "$dir/a" | cut -d ' ' -f 2-4 | tr '\n' ' ' && echo; done >"$dir/lengths"
forms=(
    "--activation gelu"
    "--activation silu"
    "--activation swiglu"
    "--norm pre"
    "--norm pre --bias"
    --bias
    "--position none"
    "--tie decoder"
    "--tie none"
    "--position learned"
    "--position rope"
    "--norm pre --position rope --activation swiglu --kv-heads 1"
    "--position learned --tie none"
    "--kv-heads 1"
    "--d-k 6 --d-v 10"
    "--bias --kv-heads 1 --d-k 5 --d-v 7"
    "--norm pre --activation swiglu --bias --kv-heads 1 --d-k 6 --d-v 10"
    "--attention linear"
    "--attention linear --norm pre --position rope --kv-heads 1 --d-k 6 --d-v 5 --bias"
    "--ff moe --experts 4"
    "--ff moe --experts 3 --experts-per-token 1 --norm pre --activation swiglu"
    "--position alibi"
    "--position relative --kv-heads 1"
    "--attention window --window 3 --global 1"
    "--attention window --window 4 --position relative"
    "--attention additive"
)
for form in "${forms[@]}"; do
    out="$dir/${form//[- ]/}" whole="$dir/whole${form//[- ]/}"
    accepts $train $text $form --steps 2 --save-every 1 --out "$out"
    accepts $train $text $form --steps 4 --out "$out" --resume
    accepts $train $text $form --steps 4 --out "$whole"
    same "$out/model.safetensors" "$whole/model.safetensors"
    cmp -s "$out/model.safetensors" "$dir/paper/model.safetensors" && fail "$form: trains like the paper's"
    for weights in f32 bf16 int8; do accepts translate --model "$out" --weights $weights a; done
    "$(dirname "$0")/batch_invariance.sh" "$heed" "$out" "$dir/lengths" 2 >"$dir/out" 2>&1 ||
        fail "$form: lines meet: $(cat "$dir/out")"
    accepts attention --model "$out" --head 2 a
    accepts average --out "$out.mean" "$out" "$whole"
    same "$out/model.safetensors" "$out.mean/model.safetensors"
    for weights in bf16 int8; do
        accepts quantize --weights $weights --out "$out.$weights" "$out"
        "$heed" translate --quiet --model "$out" --weights $weights <"$dir/va" >"$dir/by_option"
        "$heed" translate --quiet --model "$out.$weights" <"$dir/va" >"$dir/by_file"
        same "$dir/by_option" "$dir/by_file"
    done
done
# experts: the shares of a layer add up to 1, in a list for each layer; a line says least and most
moe="$dir/ffmoeexperts4"
says "^step 20/20 .* left  experts [0-9]+-[0-9]+%, [0-9.]+% dropped$" ${train/--quiet/} $text --ff moe --experts 4 \
    --steps 20 --out "$dir/shares"
for step in 10 20; do
    grep "^{\"step\":$step,\"event\":\"step\"" "$dir/shares/log.jsonl" |
        grep -Eo '"expert_share":\[\[[0-9.,]*\],\[[0-9.,]*\]\],"expert_dropped":\[\[[0-9.,]*\],\[[0-9.,]*\]\]' |
        tr -c '0-9.\n' ' ' | awk '{ exit !(NF == 16 && ($1 + $2 + $3 + $4 - 1) ^ 2 < 1e-6 && ($5 + $6 + $7 + $8 - 1) ^ 2 < 1e-6) }' ||
        fail "step $step of the log has no shares of experts"
done
grep -q expert_share "$moe/log.jsonl" && fail "shares of experts in the log before the tenth step"
grep -q experts "$dir/paper/log.jsonl" && fail "experts in the log of a model without any"
# layers that backward computes again: the same weights
accepts $train $text --recompute layer --steps 4 --out "$dir/recompute"
same "$dir/recompute/model.safetensors" "$dir/paper/model.safetensors"
refuses 1 "activation is gelu, expected relu" $train $text --activation relu --steps 6 --out "$dir/activationgelu" --resume

# ---- config.json of format 1: without a format number and without kinds ----

grep -q '"format": 2' "$run/config.json" || fail "config.json names no format"
grep -q '"norm": "post"' "$run/config.json" || fail "config.json names no norm"
cp -r "$run" "$dir/old"
find "$dir/old" -name config.json -exec sed -i -E '/"(format|norm|activation|position|bias|tie|kv_heads|d_k|d_v|ff|experts|experts_per_token)":/d' {} + \
    -exec sed -i -z 's/,\n}/\n}/' {} +
# its size and checksum are in the record beside it
find "$dir/old" -name trainer.json -exec sed -i -E '/"(crc32|config.json)":/d' {} + \
    -exec sed -i -z 's/,\n}/\n}/' {} +
for model in run old; do
    "$heed" translate --quiet --model "$dir/$model" <"$dir/va" >"$dir/$model.out" || fail "cannot translate with $model"
done
same "$dir/run.out" "$dir/old.out"
accepts $train $text --out "$dir/old" --resume --steps 7 --norm post --activation relu --position sinusoid
grep -q "not usable" "$dir/old/log.jsonl" && fail "format 1: $(grep "not usable" "$dir/old/log.jsonl")"
accepts $train $text --steps 7 --out "$dir/seven"
same "$dir/old/model.safetensors" "$dir/seven/model.safetensors"
same "$dir/old/config.json" "$dir/seven/config.json"
sed -i 's/"norm": "post"/"norm": "pots"/' "$dir/seven/config.json"
refuses 1 "seven/config.json: norm is 'pots', expected post.*; did you mean post. .this program reads formats up to 2" \
    translate --model "$dir/seven" a

# ---- damage ----

# copy NAME: $run as it is, under another name
copy() {
    rm -rf "${dir:?}/$1"
    cp -r "$run" "$dir/$1"
}
last=checkpoints/step-00000006
for file in trainer.json config.json vocab.model model.safetensors state.safetensors; do
    for how in removed empty cut flipped; do
        copy hurt
        f="$dir/hurt/$last/$file"
        case $how in
        removed) rm "$f" ;;
        empty) : >"$f" ;;
        cut) truncate -s -3 "$f" ;;
        flipped) printf '\177' | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none ;;
        esac
        accepts $train $text --out "$dir/hurt" --resume --steps 6 --save-every 1
        grep -q "going on from step 5; checkpoint 6 is not usable and is now called damaged-step-00000006: .*$file" \
            "$dir/hurt/log.jsonl" || fail "$file $how: nothing in the log"
        same "$dir/hurt/model.safetensors" "$dir/whole/model.safetensors"
    done
done
# edited: still JSON, but not what was written
copy hurt
sed -i 's/"batch": [0-9]*/"batch": 1/' "$dir/hurt/$last/trainer.json"
accepts $train $text --out "$dir/hurt" --resume --steps 6
grep -q "trainer.json is damaged or was edited" "$dir/hurt/log.jsonl" || fail "edited: nothing in the log"
# without the checksum, as in older files: a count so large that adding one would overflow
copy hurt
sed -i -E 's/"stale": [0-9]*/"stale": 2147483647/; /"crc32":/d' "$dir/hurt/$last/trainer.json"
sed -i -z 's/,\n}/\n}/' "$dir/hurt/$last/trainer.json"
accepts $train $text --out "$dir/hurt" --resume --steps 6
grep -q 'stale.* is missing or not valid' "$dir/hurt/log.jsonl" || fail "stale: nothing in the log"
# files of another checkpoint
copy hurt
cp "$dir/hurt/checkpoints/step-00000005/state.safetensors" "$dir/hurt/$last"
accepts $train $text --out "$dir/hurt" --resume --steps 6
grep -q "state.safetensors is damaged or of another checkpoint" "$dir/hurt/log.jsonl" ||
    fail "another step's state: nothing in the log"
# another checkpoint as a whole
copy hurt
rm -r "${dir:?}/hurt/$last"
cp -r "$dir/hurt/checkpoints/step-00000005" "$dir/hurt/$last"
accepts $train $text --out "$dir/hurt" --resume --steps 6
grep -q "trainer.json is of step 5, expected 6" "$dir/hurt/log.jsonl" ||
    fail "another step's checkpoint: nothing in the log"
# no checkpoint is usable: the error is about the newest one, and none is renamed
copy hurt
for step in "$dir"/hurt/checkpoints/step-*; do : >"$step/state.safetensors"; done
refuses 1 "$dir/hurt/$last/state.safetensors" $train $text --out "$dir/hurt" --resume --steps 6
[ -d "$dir/hurt/$last" ] || fail "a checkpoint was moved though none is usable"

# a record without a checksum, as in older files, is resumed with the options given now; its best
# validation was by BLEU and does not count by nll
copy older
sed -i -E '/"(data|warmup|lr|beta1|beta2|epsilon|label_smoothing|clip|valid|best_by|valid_tokenize|crc32|[a-z]*\.(json|model|safetensors))":/d
    s/"best": [^,]*/"best": 99.0/; s/"best_step": [0-9]*/"best_step": 1/
    s/^\{/{"best_is_bleu": true,/' "$dir/older/$last/trainer.json"
sed -i -z 's/,\n}/\n}/' "$dir/older/$last/trainer.json"
accepts $train $text $valid --out "$dir/older" --resume --steps 7 --lr 0.1
grep -q '"step":7,.*"best":true' "$dir/older/log.jsonl" || fail "older record: no best by nll"

# ---- directories that must not be written to ----

weights_of_run() {
    cat "$run"/model.safetensors "$run"/best/model.safetensors "$run"/$last/*.safetensors | cksum
}
before=$(weights_of_run)
accepts average --quiet --out "$dir/mean" "$run"/checkpoints/step-*
ln -s "$dir/mean" "$dir/link"
refuses 1 "the output $dir/mean is the model $dir/mean itself" quantize --out "$dir/mean" "$dir/mean"
refuses 1 'is the model' quantize --out "$dir/link/." "$dir/mean"
refuses 1 'is the model' average --out "$run/$last" "$run"/checkpoints/step-*
refuses 1 "holds the checkpoints of a run" average --out "$run/checkpoints" "$run"/checkpoints/step-*
refuses 1 "$run belongs to a training run" average --out "$run" "$run"/checkpoints/step-*
refuses 1 "$run belongs to a training run" quantize --out "$run" "$dir/mean"
refuses 1 "$run/best belongs to a training run" average --out "$run/best" "$run"/checkpoints/step-*
refuses 1 "$run/best/. belongs to a training run" quantize --out "$run/best/." "$dir/mean"
accepts average --quiet --out "$run/mean" "$run"/checkpoints/step-*
refuses 1 "$dir/mean/model.safetensors is there already" $train $text --steps 1 --out "$dir/mean"
refuses 1 "$dir/mean/model.safetensors is there already" $train $text --steps 1 --out "$dir/mean" --resume
mkdir "$dir/begun"
"$heed" vocab --size 290 --quiet --out "$dir/begun/vocab.model" "$dir/a" "$dir/b"
refuses 1 "$dir/begun/vocab.model is another vocabulary than $dir/vocab" \
    $train $text --steps 1 --out "$dir/begun"
cp "$dir/vocab" "$dir/begun/vocab.model"
accepts ${train/$dir\/vocab/$dir/begun/vocab.model} $text --steps 1 --out "$dir/begun"
[ "$before" = "$(weights_of_run)" ] || fail "a run was overwritten"

# ---- what was done is said ----

rm -r "$dir/mean"
says "^$dir/mean: the mean of 3 models of steps 4 to 6, [0-9,]* bytes of weights$" \
    average --out "$dir/mean" "$run"/checkpoints/step-*
says "^$dir/small: [0-9,]* bytes of weights in int8, [0-9,]* before$" quantize --out "$dir/small" "$dir/mean"
for quiet in "average --quiet --out $dir/mean2 $dir/mean" "quantize --quiet --out $dir/small2 $dir/mean"; do
    accepts $quiet
    [ ! -s "$dir/err" ] || fail "heed $quiet is not quiet"
done

# ---- models that cannot be averaged or made smaller ----

small="$dir/small/model.safetensors: tensor embed.weight is I8, expected F32"
refuses 1 "$small" average --out "$dir/wrong" "$dir/small"
refuses 1 "$small" average --out "$dir/wrong" "$dir/mean" "$dir/small"
cp -r "$dir/mean" "$dir/odd"
rm "$dir/odd/vocab.model"
refuses 1 "$dir/odd is no model: it has no vocab.model" average --out "$dir/wrong" "$dir/odd"
refuses 1 "$dir/odd is no model: it has no vocab.model" quantize --out "$dir/wrong" "$dir/odd"
cp "$dir/a" "$dir/odd/vocab.model"
refuses 1 "$dir/odd/vocab.model is not a SentencePiece model" average --out "$dir/wrong" "$dir/odd"
refuses 1 "$dir/odd/vocab.model is not a SentencePiece model" quantize --out "$dir/wrong" "$dir/odd"
"$heed" vocab --size 290 --quiet --out "$dir/odd/vocab.model" "$dir/a" "$dir/b"
refuses 1 "$dir/odd/vocab.model has 290 pieces, expected 300" average --out "$dir/wrong" "$dir/odd"
refuses 1 "$dir/odd/vocab.model has 290 pieces, expected 300" quantize --out "$dir/wrong" "$dir/odd"
cp "$dir/vocab" "$dir/odd/vocab.model"
sed -i 's/"d_ff": 16/"d_ff": 32/' "$dir/odd/config.json"
for command in average quantize; do
    refuses 1 "$dir/odd/model.safetensors: tensor encoder.layers.0.ff.fc1.weight has shape .*, expected .* by config.json" \
        $command --out "$dir/wrong" "$dir/odd"
done
[ ! -e "$dir/wrong" ] || fail "a model that was refused left a directory"

# ---- options without an effect ----

for idle in "--valid-every 5" "--valid-tokenize zh" "--best-by nll" "--patience 3" "--no-bleu"; do
    refuses 2 "${idle% *} has no effect without validation text" $train $text --steps 1 --out "$dir/idle" $idle
done
refuses 2 "--no-bleu and --best-by bleu exclude" $train $text $valid --steps 1 --out "$dir/idle" --no-bleu --best-by bleu
refuses 2 "--valid-tokenize has no effect with --no-bleu" \
    $train $text $valid --steps 1 --out "$dir/idle" --no-bleu --valid-tokenize zh
refuses 2 "--patience has no effect with --valid-every 0" \
    $train $text $valid --steps 1 --out "$dir/idle" --patience 3 --valid-every 0

# ---- nothing is made where something is missing ----

refuses 1 "$dir/none" $train --src "$dir/a" --tgt "$dir/none" --steps 1 --out "$dir/idle"
refuses 1 "$dir/none" $train $text --valid-pairs "$dir/none" --steps 1 --out "$dir/idle"
[ ! -e "$dir/idle" ] || fail "a run that was refused left a directory"

[ "$failures" = 0 ] && echo "every run went on or was refused as it should"
exit "$((failures > 0))"
