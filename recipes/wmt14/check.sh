#!/usr/bin/env bash
# check.sh - compares archives with a list of checksums.
#
#   recipes/wmt14/check.sh DATA SUMS ARCHIVE...
#
# SUMS has lines as sha256sum and md5sum write them, told apart by their length. The first archive that
# differs ends the check. One that the list does not name is compared with DATA/SHA256SUMS, where its
# checksum is recorded the first time.
set -euo pipefail
data=$1 sums=$2
shift 2

# expected LIST ARCHIVE: the checksum that a list has
expected() { [ ! -f "$1" ] || awk -v name="$2" '$2 == name { print $1; exit }' "$1"; }

for archive; do
    list=$sums
    want=$(expected "$list" "$archive")
    if [ -z "$want" ]; then
        list=$data/SHA256SUMS
        want=$(expected "$list" "$archive")
    fi
    kind=$([ "${#want}" = 32 ] && echo md5 || echo sha256)
    found=$("${kind}sum" <"$data/$archive" | cut -d ' ' -f 1)
    if [ -z "$want" ]; then
        echo "$found  $archive" | tee -a "$data/SHA256SUMS"
        echo "wmt14: no checksum of $archive is known; the one above was recorded in $data/SHA256SUMS"
    elif [ "$found" != "$want" ]; then
        echo "wmt14: $data/$archive has the $kind sum $found, expected $want as in $list" >&2
        exit 1
    fi
done
