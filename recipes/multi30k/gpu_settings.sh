# shellcheck shell=bash disable=SC2154 # the recipe sets data, heed and device
# gpu_settings.sh - what the recipes for Multi30k on one GPU share; sourced by gpu.sh and by
# ../variants/run.sh. Expects `data`, `heed` and `device`; STEPS shortens the training.
vocab_size=6000
# Twice the width of the CPU's recipe, and dropout to match: there is time for it.
settings=(--preset tiny --d-model 256 --d-ff 512 --precision bf16
    --dropout 0.35 --attention-dropout 0.1 --ff-dropout 0.1 --max-length 128
    --batch-tokens 4096 --lr 0.002 --warmup 2000 --steps "${STEPS:-20000}" --save-every 500 --keep 10)

# learn_vocab FILE
learn_vocab() {
    "$heed" vocab --size $vocab_size --quiet --out "$1" "$data/train.en" "$data/train.de"
}

# train_model VOCAB OUT [OPTION...]: trains with the settings, but those that the options give
train_model() {
    local vocab=$1 out=$2 rest=()
    shift 2
    for ((i = 0; i < ${#settings[@]}; i += 2)); do
        case " $* " in
        *" ${settings[i]} "*) ;;
        *) rest+=("${settings[@]:i:2}") ;;
        esac
    done
    "$heed" train --device "$device" --src "$data/train.en" --tgt "$data/train.de" --vocab "$vocab" \
        --out "$out" "${rest[@]}" "$@"
}

# evaluate_model MODEL SET: translates DATA/SET.en and scores it
evaluate_model() {
    "$heed" evaluate --device "$device" --model "$1" --weights bf16 --src "$data/$2.en" --ref "$data/$2.de"
}
