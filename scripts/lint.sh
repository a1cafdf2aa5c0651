#!/bin/sh
# lint.sh - checks the sources: clang-format, shellcheck and cppcheck.
#
# usage: lint.sh [--format]
#
# --format formats them instead. The version of clang-format is fixed because each version formats
# in its own way.
set -eu
cd "$(dirname "$0")/.."
sources=$(find include src tests bench examples -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' -o -name '*.cu')
scripts="$(find scripts tests recipes bench -name '*.sh') .ci/run"

# shellcheck disable=SC2086 # one word a file
if [ "${1:-}" = --format ]; then
    exec clang-format-14 -i $sources
fi
# shellcheck disable=SC2086
{
    clang-format-14 --dry-run --Werror $sources
    shellcheck --severity=warning --external-sources $scripts
}
cppcheck --quiet --std=c11 --enable=warning,performance,portability --library=posix --inline-suppr \
    --suppressions-list=scripts/cppcheck.suppress --error-exitcode=1 --template=gcc \
    -I include -I src include src examples
