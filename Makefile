# The commands people type. CMake and Ninja do the work; see CMakeLists.txt.
#
#   make             build build/heed                make test-cuda  those that need a GPU
#   make demo        translate with it               make asan tsan  the tests under a sanitizer
#   make demo-train  train a small model with it     make bench      measure
#   make test        build and run every test        make fuzz       fuzz the file formats (clang)
#   make check       that, and all other checks      make lint       of the sources as they stand
#   make install     to PREFIX, /usr/local           make format clean
#
# Missing packages are installed first, with an announcement (scripts/setup.sh).

PREFIX ?= /usr/local
WERROR ?= OFF
FUZZ_SECONDS ?= 60

# configure,DIRECTORY,FLAGS and build,DIRECTORY,TARGETS; silent except for what matters
configure = scripts/setup.sh && cmake -S . -B $(1) -G Ninja --log-level=NOTICE \
	-DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DHEED_WERROR=$(WERROR) $(2) >/dev/null
build = cmake --build $(1) --target $(2) -- $$([ -t 2 ] || echo --quiet)
check = ctest --test-dir $(1) --output-on-failure --parallel 2
clang = -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++

.PHONY: all demo demo-train test check lint test-cuda asan tsan bench fuzz install format clean

all:
	@$(call configure,build)
	@$(call build,build,all)

demo: all
	@scripts/demo.sh build/heed build/demo

demo-train: all
	@scripts/demo_train.sh build/heed build/demo-train

test:
	@$(call configure,build)
	@$(call build,build,all heed_tests)
	@$(call check,build)

# All tests; the sources; then the other compiler, whose warnings are errors, and the tests that are
# quick under the sanitizers, in one build.
check: test lint
	@scripts/setup.sh clang
	@$(call configure,build/check,-DHEED_SANITIZE=address -DHEED_WERROR=ON -DHEED_CUDA=OFF $(clang))
	@$(call build,build/check,all heed_tests bench)
	@$(call check,build/check) --label-exclude plain_build

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

test-cuda:
	@$(call configure,build)
	@$(call build,build,all heed_tests)
	@ctest --test-dir build --output-on-failure --label-regex cuda --no-tests=error

asan:
	@$(call configure,build/asan,-DHEED_SANITIZE=address)
	@$(call build,build/asan,all heed_tests)
	@$(call check,build/asan)

tsan:
	@$(call configure,build/tsan,-DHEED_SANITIZE=thread)
	@$(call build,build/tsan,all heed_tests)
	@$(call check,build/tsan)

bench:
	@$(call configure,build)
	@$(call build,build,bench)
	@for program in build/benchmarks/bench_*; do echo "$${program##*/}"; $$program || exit 1; done

fuzz:
	@scripts/setup.sh clang
	@$(call configure,build/fuzz,-DHEED_SANITIZE=address -DHEED_FUZZ=ON $(clang))
	@$(call build,build/fuzz,fuzz)
	@for source in tests/fuzz_*.c; do name=$$(basename $$source .c); \
		build/fuzz/fuzzers/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
			-print_final_stats=1 -artifact_prefix=build/fuzz/$$name- || exit 1; done

install: all
	@cmake --install build
	@if [ -z "$$DESTDIR" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

format:
	@scripts/setup.sh lint
	@scripts/lint.sh --format

clean:
	rm -rf build
