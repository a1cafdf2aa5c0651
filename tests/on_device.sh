#!/bin/bash
# on_device.sh - packs what was built into one archive that runs on another machine with a GPU.
#
# usage: on_device.sh BUILD_DIRECTORY [BATCHES...] [MULTI30K]
#
# BATCHES: files for bench_train, such as batches-4096.txt and batches-25000.txt. MULTI30K: a directory
# with its text, for variants-bleu. Writes
# BUILD_DIRECTORY/heed-device.tar.xz: programs, tests, benchmarks, what they read, and the shared
# libraries they need besides those of the C library and of CUDA. There:
#
#     tar xf heed-device.tar.xz && heed-device/run.sh [tests] [bench] [choices] [variants] ...
#
# run.sh goes on after failures, prints what matters and leaves the rest in $OUT or heed-device/out.
set -eu
build=${1:?usage: on_device.sh BUILD_DIRECTORY [BATCHES...] [MULTI30K]}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
top=$build/heed-device
rm -rf "$top"
mkdir -p "$top/lib" "$top/bin" "$top/data" "$top/tests"
cp "$build/heed" "$top/bin"
for name in ops extremes device golden golden_beam packed_forms search_forms train session lost_device layers; do cp "$build/tests/test_$name" "$top/bin"; done
cp "$build"/benchmarks/bench_{train,translate,length,attention_cuda,choices_cuda} "$top/bin"
cp -r "$root/tests/golden" "$top/tests"
cp "$root/tests/on_device_run.sh" "$top/run.sh"
mkdir "$top/recipes"
cp -r "$root"/recipes/{multi30k,variants} "$top/recipes"
for file in "$@"; do
    if [ -d "$file" ]; then
        mkdir "$top/data/multi30k"
        cp "$file"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de} "$top/data/multi30k"
    else
        cp "$file" "$top/data"
    fi
done
strip "$top"/bin/*
ldd "$top"/bin/* | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -v -E '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cublas|cublasLt)[.-]' | xargs -I LIB cp -L LIB "$top/lib"
tar -C "$build" -cf - heed-device | xz --lzma2=preset=3,dict=192MiB >"$build/heed-device.tar.xz"
rm -r "$top"
ls -l "$build/heed-device.tar.xz"
