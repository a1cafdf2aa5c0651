#!/usr/bin/env bash
# Forms of the model under one budget: each is trained on Multi30k with the steps and settings of
# recipes/multi30k/gpu.sh, by two seeds. OUT/table.md compares them; the best one is named by its
# BLEU on the validation set.
#
#   recipes/variants/run.sh [DATA] [OUT]
#
# DATA is as for recipes/multi30k/gpu.sh, with test_2017_flickr.en and .de (by default
# ../shared/data/multi30k), OUT is build/variants by default. Forms are in recipes/variants/forms.txt;
# FORMS names some of them (FORMS="paper pre"), SEEDS the seeds (by default "1 2"), JOBS how many runs
# share the device (1), HEED the program (build/heed), DEVICE the device (cuda:0), STEPS fewer steps.
#
# What is finished is not done again, and a run that was stopped goes on from its last checkpoint, so
# that the same command can be given again. A form that the program does not know is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-../shared/data/multi30k}
out=${2:-build/variants}
heed=${HEED:-build/heed}
device=${DEVICE:-cuda:0}
jobs=${JOBS:-1}
seeds=${SEEDS:-1 2}
list=recipes/variants/forms.txt
for file in train val test_2016_flickr test_2017_flickr; do
    if [ ! -f "$data/$file.en" ]; then
        echo "variants: no $file.en in $data; give the directory of Multi30k as the first argument" >&2
        exit 1
    fi
done
# shellcheck source=recipes/multi30k/gpu_settings.sh
. recipes/multi30k/gpu_settings.sh
mkdir -p "$out"
[ -f "$out/vocab.model" ] || learn_vocab "$out/vocab.model"

say() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$*"
}

# options_of FORM: its options; fails where there is no such form
options_of() {
    awk -v form="$1" '$1 == form { $1 = ""; print; found = 1 } END { exit !found }' $list
}

# What the program logged: the number of parameters, and the seconds of training. Of a run that was
# stopped, the seconds of each part count.
parameters_of() {
    sed -n 's/.*"text":"\([0-9]*\) parameters.*/\1/p' "$1" | tail -n 1
}
seconds_of() {
    sed -n '/"event":"done"/s/.*"seconds":\([0-9.]*\).*/\1/p' "$1" | awk '{ s += $1 } END { printf "%.0f", s }'
}

# What part of the tokens' choices the least chosen expert of any layer got in the last thousand steps,
# of which every tenth is logged; nothing without experts.
least_share_of() {
    sed -n 's/.*"expert_share":\([^a-z]*\).*/\1/p' "$1" | tail -n 100 | awk '
        { gsub(/[^0-9.,e-]/, ""); n = split($0, x, ","); for (i = 1; i <= n; i++) if (x[i] != "") sum[i] += x[i] }
        END { for (i in sum) if (least == "" || sum[i] / NR < least) least = sum[i] / NR; print least }'
}

# run_one FORM SEED: trains, averages and evaluates; its figures become OUT/FORM-SEED.tsv
run_one() {
    local form=$1 seed=$2 run="$out/$1-$2" figures=() code=0
    [ ! -f "$run.tsv" ] || return 0
    mkdir -p "$run"
    # shellcheck disable=SC2046 # several options
    train_model "$out/vocab.model" "$run/model" $(options_of "$form") --seed "$seed" --resume \
        >>"$run.log" 2>&1 || code=$?
    if [ $code != 0 ]; then
        say "$form, seed $seed: $(tail -n 1 "$run.log")"
        return $((code != 2)) # 2: the program does not know this form
    fi
    rm -rf "$run/average"
    "$heed" average --quiet --out "$run/average" "$run"/model/checkpoints/step-* >>"$run.log" 2>&1
    for set in test_2016_flickr test_2017_flickr val; do
        evaluate_model "$run/average" $set >"$run/$set.score" 2>>"$run.log"
        figures+=("$(sed -n 's/^BLEU \([0-9.]*\).*/\1/p' "$run/$set.score")")
    done
    local log="$run/model/log.jsonl"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$form" "$seed" "$(parameters_of "$log")" "${figures[@]}" \
        "$(seconds_of "$log")" "$(least_share_of "$log")" >"$run.tmp"
    mv "$run.tmp" "$run.tsv"
    rm -r "$run/model/checkpoints"
    say "$form, seed $seed: BLEU ${figures[0]} (2016), ${figures[1]} (2017), ${figures[2]} (validation)"
}

# The means of all runs that are finished, in the order of the list.
write_table() {
    awk -F '\t' -v steps="${STEPS:-20000}" -v list=$list '
        {
            form = $1; runs[form]++; parameters[form] = $3
            a[form] += $4; b[form] += $5; v[form] += $6; s[form] += $7
            if ($8 != "" && (!(form in share) || $8 < share[form])) share[form] = $8
        }
        function thousands(n) {
            for (text = ""; n >= 1000; n = int(n / 1000)) text = sprintf(",%03d%s", n % 1000, text)
            return n text
        }
        END {
            print "Multi30k English to German, " thousands(steps) " steps, ten checkpoints averaged; figures are means over the seeds.\n"
            print "| form | options | parameters | seeds | BLEU 2016 | BLEU 2017 | BLEU validation | seconds |"
            print "|---|---|---|---|---|---|---|---|"
            while ((getline line < list) > 0) {
                if (line ~ /^#/ || line == "") continue
                split(line, word, " "); form = word[1]
                if (!(form in runs)) continue
                options = substr(line, length(form) + 1); sub(/^ +/, "", options)
                n = runs[form]
                printf "| %s | %s | %s | %d | %.2f | %.2f | %.2f | %.0f |\n", form, options ? "`" options "`" : "",
                    thousands(parameters[form]), n, a[form] / n, b[form] / n, v[form] / n, s[form] / n
                if (best == "" || v[form] / n > v[best] / runs[best]) best = form
            }
            for (form in share)
                printf "\n%s: the least chosen expert of a layer got %.1f%% of the choices in the last 1,000 steps.\n", form, 100 * share[form]
            printf "\nBest on the validation set: %s, %.2f BLEU.\n", best, v[best] / runs[best]
        }' "$out"/*-[0-9]*.tsv >"$out/table.md"
}

# Each run is a process group of its own, so that what it has started ends with it.
set -m
trap 'for run in $(jobs -p); do kill -- "-$run" 2>/dev/null || true; done; wait' EXIT
trap 'exit 143' INT TERM
failed=0 running=0
for form in ${FORMS:-$(awk '/^[^#]/ { print $1 }' $list)}; do
    options_of "$form" >/dev/null || { echo "variants: $list has no form $form" >&2; exit 2; }
    for seed in $seeds; do
        [ ! -f "$out/$form-$seed.tsv" ] || continue
        if [ $running = "$jobs" ]; then
            wait -n || failed=$((failed + 1))
            running=$((running - 1))
        fi
        say "$form, seed $seed: begins"
        run_one "$form" "$seed" &
        running=$((running + 1))
    done
done
while [ $running -gt 0 ]; do
    wait -n || failed=$((failed + 1))
    running=$((running - 1))
done
write_table
cat "$out/table.md"
[ $failed = 0 ] || say "$failed runs failed; their logs are in $out"
exit $((failed > 0))
