#!/bin/sh
# run.sh - the tests and benchmarks of the archive that on_device.sh made, on a machine with a GPU.
#
# usage: run.sh [tests] [bench] [cpu] [choices] [variants] [variants-bleu] [length] [translate] [cluster]
#              [memcheck] [racecheck]
#        run.sh part memcheck|racecheck PROGRAM [TESTS]     (default: tests bench)
#
# variants-bleu is recipes/variants/run.sh, which has the variables FORMS, SEEDS and STEPS. JOBS runs, 4
# unless set, share the device. After LIMIT seconds, 560 unless set, it stops; called again it goes on.
#
# cpu are the tests and benchmarks of the matrix products of the machine's processor.
#
# cluster is on_device_cluster.sh, in an archive with NCCL, where mpirun is installed; CLUSTER are its parts.
#
# DEVICE is the device, cuda:0 unless set. Exit status: the number of programs that failed.
set -u
cd "$(dirname "$0")" || exit 1
out=${OUT:-$PWD/out}
mkdir -p "$out"
export LD_LIBRARY_PATH="$PWD/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
export HEED_TEST_DEVICE="${DEVICE:-cuda:0}"
export PATH="$PATH:/usr/local/cuda/bin"
ops='embed linear gate rotate attend add_norm add norm embed_bwd linear_bwd gate_bwd attend_bwd
    add_norm_bwd add_bwd norm_bwd bias_bwd xent sqnorm adam cast cache_put topk
    attend_widths attend_bwd_widths attend_linear attend_linear_bwd linear_state attend_state
    route dispatch experts_linear combine experts_linear_bwd route_bwd'

# run NAME SECONDS COMMAND...: its output goes to NAME.log
run() {
    name=$1
    seconds=$2
    shift 2
    began=$(date +%s)
    timeout "$seconds" "$@" >"$out/$name.log" 2>&1
    status=$?
    took=$(($(date +%s) - began))
    grep -q 'Running 0 test' "$out/$name.log" && status="0, of no tests"
    if [ "$status" = 0 ]; then
        echo "good    $name, $took s"
    else
        echo "FAILED  $name, $took s, status $status"
        echo "$name" >>"$out/failed"
    fi
}

# What failed, or came nearest to it.
complaints() {
    grep -E '^FAILED|FAILED  \]|says:|beside|ERROR|expected|went astray|off by|skipped' "$out/$1.log" |
        grep -v -E '^(good|packed)' | cut -c1-260 | head -"$2"
}

tests() {
    run device 120 bin/test_device
    complaints device 20
    # each op in a process of its own, because after an invalid access the device fails for the rest
    # of the process
    for op in $ops test_model_as_reference test_recompute test_branches 'cached*'; do
        name="op_${op%\*}"
        run "$name" 120 bin/test_ops "$op"
        complaints "$name" 6
        awk '$1 == "good" { for (i = 1; i < NF; i++) if ($i == "most" && $(i + 1) > worst)
                 worst = $(i + 1); seen++ }
             END { if (seen) print "        " seen " shapes, at most " worst + 0 " of the tolerance" }' \
            "$out/$name.log"
    done
    for name in extremes golden golden_beam packed_forms search_forms train session lost_device layers; do
        run $name 180 bin/test_$name
        complaints $name 12
    done
}

bench() {
    for config in small base big; do
        batches=data/batches-25000.txt
        [ $config = small ] && batches=data/batches-4096.txt
        [ -f $batches ] || batches=
        # shellcheck disable=SC2086 # no word without batches
        run train_$config 100 bin/bench_train --device "$HEED_TEST_DEVICE" --precision bf16 \
            --config $config --rounds 3 --trace $batches
        cut -c1-120 "$out/train_$config.log"
    done
}

cpu() {
    lscpu | grep -E '^(Model name|CPU\(s\))'
    bin/heed --version
    for program in test_amx test_packed test_gemm; do
        run $program 180 bin/$program
        complaints $program 12
    done
    for program in bench_packed bench_gemm; do
        run $program 120 bin/$program 2
        cat "$out/$program.log"
    done
}

# what cuBLASLt proposes for the products of a step of base
choices() {
    run choices 60 bin/bench_choices_cuda
    cat "$out/choices.log"
}

# a step of base in other forms; the paper's first and last
variants() {
    [ -f data/batches-25000.txt ] || return
    for form in '' norm=pre activation=gelu activation=silu activation=swiglu position=learned \
        position=rope position=relative position=alibi position=none 'attention=window window=16' \
        attention=linear attention=additive d_k=32 d_v=128 bias=true kv_heads=2 kv_heads=1 tie=decoder tie=none recompute=layer \
        'ff=moe experts=8 experts_per_token=2 d_ff=1024' 'norm=pre position=rope' \
        'norm=pre position=rope activation=swiglu kv_heads=2' \
        'norm=pre position=rope kv_heads=2 ff=moe experts=8 experts_per_token=2 d_ff=1024' ''; do
        set --
        for field in $form; do set -- "$@" --set "$field"; done
        name="form_$(echo "$form" | tr ' =' '__')"
        run "$name" 60 bin/bench_train --device "$HEED_TEST_DEVICE" \
            --precision bf16 --rounds 2 "$@" data/batches-25000.txt
        tail -n 1 "$out/$name.log" | cut -c1-160
    done
}

variants_bleu() {
    export HEED=bin/heed DEVICE="$HEED_TEST_DEVICE" JOBS="${JOBS:-4}"
    run variants_bleu "${LIMIT:-560}" recipes/variants/run.sh data/multi30k variants
    cat "$out/variants_bleu.log"
    mkdir -p "$out/variants"
    cp variants/*.log variants/*.tsv variants/table.md "$out/variants" 2>/dev/null
}

# recipes/variants/length.sh
length() {
    BENCH=bin/bench_length DEVICE="$HEED_TEST_DEVICE" run length 300 recipes/variants/length.sh "$out"
    cat "$out/length.log"
}

translate() {
    for weights in f32 bf16; do
        for batch in 1 32 256; do
            run translate_${weights}_$batch 60 bin/bench_translate --device "$HEED_TEST_DEVICE" \
                --weights $weights --beam 4 --batch $batch --trace
            cut -c1-120 "$out/translate_${weights}_$batch.log" | head -14
        done
    done
}

cluster() {
    # shellcheck disable=SC2086 # one word a part
    timeout -k 10 "${LIMIT:-570}" ./cluster.sh ${CLUSTER:-} || echo cluster >>"$out/failed"
}

# part TOOL PROGRAM [TESTS]: those of its tests under compute-sanitizer, kernel by kernel
part() {
    name=$1_$2_$(echo "${3:-all}" | tr -d '*')
    case $1 in
    memcheck) how='--report-api-errors no' ;;           # some tests ask for too much on purpose
    racecheck) how='--kernel-name-exclude kns=nvjet' ;; # cuBLASLt's own: see docs/reliability.md
    *) how= ;;
    esac
    # shellcheck disable=SC2086 # two words or none
    run "$name" 500 compute-sanitizer --tool "$1" $how --error-exitcode 9 "bin/test_$2" ${3:+"$3"}
    grep -E '=========' "$out/$name.log" | tail -n +2 | head -8
}

# Every program in parts of a minute or two, the longest first. Each takes a core, racecheck the GPU
# as well: a few at the same time.
sanitizer() {
    export HEED_CUDA_PLAIN=1 HEED_TEST_FEW=1
    {
        for program in golden_beam golden device; do echo "$program"; done
        for test in averaged exact curve ends damaged vocabulary patience older wrong directory saves \
            matter skip; do
            echo "train *_$test*"
        done
        for test in threads attention lengths alignment nothing; do echo "session *_$test"; done
        for op in $ops test_model_as_reference test_recompute test_branches 'cached*'; do echo "ops $op"; done
    } | xargs -P "$2" -L 1 ./run.sh part "$1"
}

if [ "${1:-}" = part ]; then
    shift
    part "$@"
    [ "$status" = 0 ]
    exit
fi
: >"$out/failed"
[ $# -gt 0 ] || set -- tests bench
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,memory.used --format=csv,noheader
for what in "$@"; do
    case $what in
    tests | bench | cpu | choices | variants | length | translate | cluster) $what ;;
    variants-bleu) variants_bleu ;;
    memcheck) sanitizer memcheck 16 ;;
    racecheck) sanitizer racecheck 3 ;;
    *) echo "no $what here" ;;
    esac
done
failed=$(wc -l <"$out/failed")
echo "$failed programs failed; everything they said is in $out"
exit $failed
