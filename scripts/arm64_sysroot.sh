#!/bin/sh
# arm64_sysroot.sh - makes a directory with the arm64 packages that heed is built and tested with.
#
# usage: arm64_sysroot.sh DIRECTORY
#
# For cmake/aarch64.cmake. The packages come from the sources that apt-get of this machine has, but
# are only unpacked: lists, state and downloads of apt-get are in DIRECTORY, so that the packages
# installed on this machine stay as they are. Debian and Ubuntu; needs no root. Silent and quick
# when the directory is complete.
set -eu
sysroot=${1:?usage: arm64_sysroot.sh DIRECTORY}

packages='libc6-dev libstdc++6 libgomp1 libsentencepiece-dev libicu-dev libjansson-dev
    libmicrohttpd-dev zlib1g-dev liblzma-dev libcmocka-dev'
stamp=$sysroot/complete
# shellcheck disable=SC2086 # one word a package
packages=$(echo $packages)
if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$packages" ]; then exit 0; fi

rm -rf "$sysroot"
mkdir -p "$sysroot/apt/state/lists/partial" "$sysroot/apt/cache/archives/partial"
sysroot=$(cd "$sysroot" && pwd)
: >"$sysroot/apt/state/status"
cat >"$sysroot/apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Dir::State "$sysroot/apt/state";
Dir::State::status "$sysroot/apt/state/status";
Dir::Cache "$sysroot/apt/cache";
END
echo "heed unpacks packages for arm64 in $sysroot: $packages."
failed() {
    echo "heed: apt-get could not fetch packages for arm64; its own words are above." >&2
    exit 1
}
APT_CONFIG=$sysroot/apt/apt.conf
export APT_CONFIG
apt-get -qq update || failed
# shellcheck disable=SC2086
apt-get -qq -y --download-only install $packages >/dev/null || failed
for package in "$sysroot"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$sysroot"
done
rm -rf "$sysroot/apt"
# Links to absolute paths would lead out of the directory.
find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -snfr "$sysroot$(readlink "$link")" "$link"
done
echo "$packages" >"$stamp"
