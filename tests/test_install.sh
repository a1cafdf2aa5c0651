#!/bin/sh
# test_install.sh - the installed files are complete: the example is compiled with them as a user
# would do it, as C and as C++, with libheed.so and with libheed.a, and translates like the program;
# neither library exports more than the functions of heed.h.
#
# usage: test_install.sh PROGRAM
set -eu
heed=${1:?usage: test_install.sh PROGRAM}
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(dirname "$heed")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ -n "${HEED_TEST_EMULATED:-}" ]; then
    echo "skipped: what is compiled here does not run on this machine"
    exit 0
fi

fail() {
    echo "$*"
    exit 1
}

cmake --install "$build" --prefix "$dir/prefix" >"$dir/log" || fail "$(cat "$dir/log")"
lib=$(dirname "$(find "$dir/prefix" -name libheed.a)")
export PKG_CONFIG_PATH="$lib/pkgconfig"
[ "$(find "$dir/prefix" -name '*.h')" = "$dir/prefix/include/heed.h" ]

# ---- names ----

awk -v RS=';' '/HEED_API [^"]/ && match($0, /heed_[a-z0-9_]+\(/) {
    print substr($0, RSTART, RLENGTH - 1)
}' "$dir/prefix/include/heed.h" | sort >"$dir/declared"
[ "$(wc -l <"$dir/declared")" -ge 30 ] || fail "too few functions in heed.h: $(cat "$dir/declared")"
# Symbols of the sanitizers and of clang's OpenMP are allowed, and those of C++ templates ("u"),
# which the linker merges.
names() {
    awk 'NF == 3 && $2 != "u" && $3 !~ /^(__(odr_)?[at]san|\.gomp_)/ { print $3 }' | sort
}
nm -D --defined-only "$lib/libheed.so" | names >"$dir/shared"
diff "$dir/declared" "$dir/shared" || fail "heed.h (<) and libheed.so (>) differ"
nm --defined-only --extern-only "$lib/libheed.a" | names >"$dir/static"
diff "$dir/declared" "$dir/static" || fail "heed.h (<) and libheed.a (>) differ"
version=$(pkg-config --modversion heed)
[ "$(readlink "$lib/libheed.so")" = "libheed.so.${version%%.*}" ]
readelf -d "$lib/libheed.so" | grep -q "SONAME.*\[libheed\.so\.${version%%.*}\]"

# ---- a model, and what the program says with it ----

heed=$dir/prefix/bin/heed
"$heed" translate --quiet --to de 'Good morning!' | grep -q -x 'Guten Morgen!' # with the default model
for i in $(seq 1 300); do printf 'the line number %d of many\tdie Zeile %d von vielen\n' "$i" "$i"; done \
    >"$dir/pairs"
"$heed" vocab --size 300 --quiet --out "$dir/vocab" "$dir/pairs"
"$heed" train --pairs "$dir/pairs" --vocab "$dir/vocab" --preset tiny --d-model 32 --d-ff 32 \
    --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512 --steps 60 --warmup 20 \
    --lr 0.005 --quiet --out "$dir/model"
cut -f 1 "$dir/pairs" | head -n 5 >"$dir/in"
"$heed" translate --model "$dir/model" --quiet <"$dir/in" >"$dir/want"
grep -q . "$dir/want"

# ---- the example ----

# example LANGUAGE COMPILER...: compiles it and links it with either library; it must print the same
example() {
    language=$1
    shift
    # C++ has designated initializers since 2020, and warns of the members that they leave out
    flags=
    if [ "$language" = c++ ]; then flags="-std=c++20 -Wno-missing-field-initializers"; fi
    # shellcheck disable=SC2046,SC2086 # one word a flag
    "$@" -Wall -Wextra -Wpedantic -Werror $flags -x "$language" "$source/examples/translate.c" -x none \
        $(pkg-config --cflags --libs heed) -o "$dir/shared"
    # shellcheck disable=SC2046,SC2086
    "$@" -Wall -Wextra -Wpedantic -Werror $flags -x "$language" "$source/examples/translate.c" -x none \
        -l:libheed.a -Wl,--as-needed $(pkg-config --static --cflags --libs heed) -o "$dir/static"
    readelf -d "$dir/shared" | grep -q 'NEEDED.*\[libheed\.so'
    if readelf -d "$dir/static" | grep -q 'NEEDED.*\[libheed\.so'; then
        fail "libheed.a was meant, libheed.so was linked"
    fi
    LD_LIBRARY_PATH=$lib "$dir/shared" "$dir/model" <"$dir/in" | cmp - "$dir/want"
    "$dir/static" "$dir/model" <"$dir/in" | cmp - "$dir/want"
    echo "$1 ($language): the example says what the program says"
}

# of CMake's settings of this build
setting() {
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
example c "$(setting CMAKE_C_COMPILER)"
example c++ "$(setting CMAKE_CXX_COMPILER)"
if [ -z "$(setting HEED_SANITIZE)" ]; then # of which each compiler has its own
    for compiler in gcc clang; do
        if command -v "$compiler" >/dev/null; then example c "$compiler"; fi
    done
    for compiler in g++ clang++; do
        if command -v "$compiler" >/dev/null; then example c++ "$compiler"; fi
    done
fi

"$dir/static" "$dir/model" "the line number 1 of many" >"$dir/out"
head -n 1 "$dir/want" | cmp - "$dir/out"
if "$dir/static" "$dir/none" 2>"$dir/log"; then exit 1; fi
grep -q '^translate: .*none' "$dir/log"
