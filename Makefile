# The commands people type. CMake and Ninja do the work; see CMakeLists.txt.
#
#   make             build build/heed
#   make demo        translate with it
#   make demo-train  train a small model with it
#   make install     install to PREFIX, which is /usr/local by default
#   make bench       measure
#   make format      format the sources; make lint only checks them; make clean removes build/
#
# Tests, in tiers:
#
#   make check       the quick tests: after every change, about 30 seconds once built
#   make test        everything: all tests, lint, and a build by clang with warnings as errors
#                    and sanitizers, with most of the tests
#   make asan tsan   long: all tests under AddressSanitizer or ThreadSanitizer
#   make faults      long: each allocation and each call to the disk fails once
#   make kills       long: kill -9 at 200 random moments, and of 20 ranks of a cluster
#   make large       long: training on 2 GB of text with 1 GB of address space
#   make slurm       the batch file of docs/cluster.md under a Slurm of its own; as root
#   make fuzz        long: fuzz each file format for FUZZ_SECONDS (clang)
#   make test-web    the pages in headless Chromium, which is installed where there is none
#   make test-cuda   the tests of the CUDA backend, on a machine with a GPU
#   make test-arm64  long: cross-compiles for ARM64, and runs tests under QEMU's emulation
#
# Missing packages are installed first, with an announcement (scripts/setup.sh).

PREFIX ?= /usr/local
WERROR ?= OFF
FUZZ_SECONDS ?= 60

# configure,DIRECTORY,FLAGS and build,DIRECTORY,TARGETS; silent except for what matters
configure = scripts/setup.sh && cmake -S . -B $(1) -G Ninja --log-level=NOTICE \
	-DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DHEED_WERROR=$(WERROR) $(2) >/dev/null
build = cmake --build $(1) --target $(2) -- $$([ -t 2 ] || echo --quiet)
ctest = ctest --test-dir $(1) --output-on-failure --parallel 2
clang = -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++

.PHONY: all tests demo demo-train check test lint asan tsan faults kills large slurm fuzz test-web test-cuda \
	test-arm64 bench \
	install format clean

all:
	@$(call configure,build)
	@$(call build,build,all)

demo: all
	@scripts/demo.sh build/heed build/demo

demo-train: all
	@scripts/demo_train.sh build/heed build/demo-train

# ---- tests ----

tests:
	@$(call configure,build)
	@$(call build,build,all heed_tests)

check: tests
	@$(call ctest,build) --label-regex quick

test: tests
	@$(call ctest,build)
	@$(MAKE) --no-print-directory lint
	@scripts/setup.sh clang
	@$(call configure,build/check,-DHEED_SANITIZE=address -DHEED_FUZZ=ON -DHEED_WERROR=ON -DHEED_CUDA=OFF $(clang))
	@$(call build,build/check,all heed_tests bench)
	@$(call ctest,build/check) --label-exclude plain_build

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

asan:
	@$(call configure,build/asan,-DHEED_SANITIZE=address)
	@$(call build,build/asan,all heed_tests)
	@$(call ctest,build/asan)

tsan:
	@$(call configure,build/tsan,-DHEED_SANITIZE=thread)
	@$(call build,build/tsan,all heed_tests)
	@$(call ctest,build/tsan)

faults: tests
	HEED_TEST_ALL=1 build/tests/test_no_memory
	HEED_TEST_ALL=1 build/tests/test_io_faults

kills: all
	tests/test_kill.sh build/heed 200
	tests/test_cluster.sh build/heed 20

large: all
	tests/large_corpus.sh build/heed

slurm: all
	@scripts/setup.sh slurm
	tests/slurm.sh build/heed

fuzz:
	@scripts/setup.sh clang
	@$(call configure,build/fuzz,-DHEED_SANITIZE=address -DHEED_FUZZ=ON $(clang))
	@$(call build,build/fuzz,fuzz)
	@for source in tests/fuzz_*.c; do name=$$(basename $$source .c); \
		build/fuzz/fuzzers/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
			-print_final_stats=1 -artifact_prefix=build/fuzz/$$name- || exit 1; done

test-web: all
	@scripts/setup.sh web
	tests/test_page.sh build/heed
	tests/test_web.sh build/heed

test-cuda: tests
	@ctest --test-dir build --output-on-failure --label-regex cuda --no-tests=error

# The processor that QEMU emulates by default has all that heed uses; a Cortex-A57 has NEON alone.
test-arm64:
	@scripts/setup.sh arm64
	@$(call configure,build/arm64,--toolchain cmake/aarch64.cmake)
	@$(call build,build/arm64,all heed_tests)
	@$(call ctest,build/arm64) --label-regex arm64 --no-tests=error
	@QEMU_CPU=cortex-a57 $(call ctest,build/arm64) --label-regex kernels --no-tests=error

# ---- the rest ----

bench:
	@$(call configure,build)
	@$(call build,build,bench)
	@for program in build/benchmarks/bench_*; do echo "$${program##*/}"; $$program || exit 1; done

install: all
	@cmake --install build
	@if [ -z "$$DESTDIR" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

format:
	@scripts/setup.sh lint
	@scripts/lint.sh --format

clean:
	rm -rf build
