#!/bin/bash
# on_device.sh - packs what was built into one archive that runs on another machine with a GPU.
#
# usage: on_device.sh BUILD_DIRECTORY [BATCHES...] [MULTI30K] [LIBNCCL]
#
# BATCHES: files for bench_train, such as batches-4096.txt and batches-25000.txt. MULTI30K: a directory
# with its text, for variants-bleu and cluster. LIBNCCL: a libnccl.so.2, for cluster, which needs
# an Open MPI of the other machine's own. Writes
# BUILD_DIRECTORY/heed-device.tar.xz: programs, tests and benchmarks, as far as they are built, what they
# read, and the shared libraries they need besides those of the C library and of CUDA. There:
#
#     tar xf heed-device.tar.xz && heed-device/run.sh [tests] [bench] [cpu] [variants] [cluster] ...
#
# run.sh goes on after failures, prints what matters and leaves the rest in $OUT or heed-device/out.
set -eu
build=${1:?usage: on_device.sh BUILD_DIRECTORY [BATCHES...] [MULTI30K] [LIBNCCL]}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
top=$build/heed-device
rm -rf "$top"
mkdir -p "$top/lib" "$top/bin" "$top/data" "$top/tests"

take() {
    if [ -f "$1" ]; then cp "$1" "$top/bin"; else echo "left out, because it is not built: $1"; fi
}

cp "$build/heed" "$top/bin"
for name in ops extremes device golden golden_beam packed_forms search_forms train session lost_device layers amx packed gemm; do
    take "$build/tests/test_$name"
done
for name in train translate length attention_cuda choices_cuda packed gemm; do take "$build/benchmarks/bench_$name"; done
cp -r "$root/tests/golden" "$top/tests"
cp "$root/tests/on_device_run.sh" "$top/run.sh"
cp "$root/tests/on_device_cluster.sh" "$top/cluster.sh"
mkdir "$top/recipes"
cp -r "$root"/recipes/{multi30k,variants} "$top/recipes"
for file in "$@"; do
    if [ -d "$file" ]; then
        mkdir "$top/data/multi30k"
        cp "$file"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de} "$top/data/multi30k"
    elif [ "$(basename "$file")" = libnccl.so.2 ]; then
        cp -L "$file" "$top/lib"
    else
        cp "$file" "$top/data"
    fi
done
strip "$top"/bin/*
find "$top" -type f \( -perm -u+x -o -name '*.so*' \) ! -name '*.sh' ! -name libnccl.so.2 -print0 | xargs -0 ldd 2>/dev/null | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -v -E '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cublas|cublasLt|nccl)[.-]' | xargs -I LIB cp -L LIB "$top/lib"
tar -C "$build" -cf - heed-device | xz --lzma2=preset=3,dict=192MiB >"$build/heed-device.tar.xz"
rm -r "$top"
ls -l "$build/heed-device.tar.xz"
