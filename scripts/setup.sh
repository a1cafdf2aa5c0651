#!/bin/sh
# setup.sh - installs the packages that the build needs and this machine lacks, and says so.
#
# usage: setup.sh [build|clang|lint|web|slurm|arm64]
#
# build: all that is built and tested; clang: the second compiler; lint: the checks of the sources;
# web: the browser that tests the pages, and what drives it; slurm: a scheduler for make slurm;
# arm64: a cross compiler and an emulator, and in build/arm64-sysroot the libraries for make test-arm64.
# Silent and quick when nothing is missing. Debian and Ubuntu: apt-get as root or through sudo;
# without root, and on other systems, it prints one sentence that says what to install, and exits
# with 1.
set -u

missing=

# need PACKAGE TEST...: PACKAGE is missing when the test fails
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

compilers() {
    command -v "${CC:-cc}" && command -v "${CXX:-c++}"
}

header() {
    echo "#include <$1>" | "${CC:-cc}" -E -
}

# clang_with FLAG: clang compiles and links a program with it
clang_with() {
    echo 'int main(void) { return 0; }' | clang "$1" -x c - -o /dev/null
}

case ${1:-build} in
build)
    need g++ compilers
    need cmake command -v cmake
    need ninja-build command -v ninja
    need pkg-config command -v pkg-config
    [ "$(uname -m)" = aarch64 ] || need libdnnl-dev header oneapi/dnnl/dnnl.h
    need libsentencepiece-dev pkg-config --exists sentencepiece
    need libicu-dev pkg-config --exists icu-i18n icu-uc
    need libjansson-dev pkg-config --exists jansson
    need libmicrohttpd-dev pkg-config --exists libmicrohttpd
    need zlib1g-dev pkg-config --exists zlib
    need liblzma-dev pkg-config --exists liblzma
    need libopenmpi-dev pkg-config --exists ompi-c
    need openmpi-bin command -v mpirun
    need libcmocka-dev pkg-config --exists cmocka
    need curl command -v curl
    ;;
clang)
    need clang command -v clang
    need libomp-dev clang_with -fopenmp
    need libclang-rt-dev clang_with -fsanitize=address
    ;;
lint)
    need clang-format-14 command -v clang-format-14
    need shellcheck command -v shellcheck
    need cppcheck command -v cppcheck
    ;;
web)
    need chromium command -v chromium
    need python3 command -v python3
    ;;
slurm)
    PATH=$PATH:/usr/sbin
    need slurmctld command -v slurmctld
    need slurmd command -v slurmd
    need slurm-client command -v sbatch
    need munge command -v munged
    ;;
arm64)
    need g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++
    need qemu-user command -v qemu-aarch64
    need cmake command -v cmake
    need ninja-build command -v ninja
    need pkg-config command -v pkg-config
    ;;
*)
    echo "usage: setup.sh [build|clang|lint|web|slurm|arm64]" >&2
    exit 2
    ;;
esac

# What is done when all packages are installed.
finish() {
    [ "$1" != arm64 ] || exec "$(dirname "$0")/arm64_sysroot.sh" build/arm64-sysroot
    exit 0
}

[ -n "$missing" ] || finish "${1:-build}"
missing=${missing# }

if ! command -v apt-get >/dev/null; then
    echo "heed needs packages that are not installed (by their Debian names): $missing." >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    root=sudo
else
    echo "heed needs packages that only root can install:" \
        "apt-get update && apt-get install -y $missing" >&2
    exit 1
fi

echo "heed needs packages that are not installed yet, so apt-get installs them now: $missing."
apt() {
    $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >/dev/null
}
# shellcheck disable=SC2086 # one word a package
if ! { apt update && apt install -y --no-install-recommends $missing; }; then
    echo "heed: apt-get could not install $missing; its own words are above." >&2
    exit 1
fi
finish "${1:-build}"
