#!/usr/bin/env bash
# What a training step of each form of recipes/variants/forms.txt takes, beside the paper's.
#
#   recipes/variants/steps.sh [OUT]
#
# Writes OUT/steps.md; OUT is build/variants by default. The model has the size of the recipe, and
# bench_train makes batches of 2,048 tokens; the best of ROUNDS rounds (5) through all forms counts, so
# that a busy moment does not hit one form alone. FORMS names some of the forms, BENCH the program
# (build/benchmarks/bench_train), DEVICE the device (cpu), PRECISION f32 or bf16 (f32), THREADS how many
# (all cores). A form that the program does not know is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/variants}
bench=${BENCH:-build/benchmarks/bench_train}
device=${DEVICE:-cpu}
list=recipes/variants/forms.txt
mkdir -p "$out"

# fields_of FORM: its options as --set FIELD=VALUE, with "true" for an option without a value
fields_of() {
    awk -v form="$1" '$1 == form {
        for (i = 2; i <= NF; i++)
            if (i == NF || $(i + 1) ~ /^--/) print "--set", substr($i, 3) "=true"
            else { print "--set", substr($i, 3) "=" $(i + 1); i++ }
    }' $list
}

size="--set d_model=256 --set vocab_size=6000"
for ((round = 0; round < ${ROUNDS:-5}; round++)); do
    for form in ${FORMS:-$(awk '/^[^#]/ { print $1 }' $list)}; do
        fields=$(fields_of "$form")
        case $fields in
        *d-ff=*) ;;
        *) fields="$fields --set d_ff=512" ;;
        esac
        # shellcheck disable=SC2086 # several words
        "$bench" --config tiny --device "$device" --threads "${THREADS:-0}" --precision "${PRECISION:-f32}" $size $fields |
            awk -v form="$form" '/: step/ {
                for (i = 1; i < NF; i++) { if ($i == "step") ms = $(i + 1); if ($i == "memory") mib = $(i + 1) }
                print form "\t" ms "\t" mib
            }' || echo "steps: $form is left out" >&2
    done
done >"$out/steps.tsv"
awk -F '\t' '
    !($1 in best) { form[++forms] = $1; best[$1] = $2 }
    { if ($2 < best[$1]) best[$1] = $2; mib[$1] = $3 }
    END {
        print "| form | ms a step | beside the paper'\''s | MiB |"
        print "|---|---|---|---|"
        for (k = 1; k <= forms; k++) {
            beside = form[k] == "paper" || !("paper" in best) ? "" : sprintf("%+.0f%%", 100 * (best[form[k]] / best["paper"] - 1))
            printf "| %s | %.1f | %s | %d |\n", form[k], best[form[k]], beside, mib[form[k]]
        }
    }' "$out/steps.tsv" >"$out/steps.md"
cat "$out/steps.md"
