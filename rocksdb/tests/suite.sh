#!/bin/sh
# Runs a command in a root file system of a Debian release, with that release's compiler, RocksDB
# and db_bench. The project's directory and TARGET, where it is built, have the same names there.
# All mounts are in a mount namespace of the command's own.
#
#	tests/suite.sh SUITE ROOT TARGET COMMAND...
#
# The root file system is created once, with the mirror and the settings of this machine's apt.
set -eu

suite=$1 root=$2 target=$3
shift 3
project=$(realpath ../)
if [ "$(id -u)" -ne 0 ]; then
	echo "suite: mounting a root file system needs root: run this as root" >&2
	exit 1
fi
if ! [ -e "$root.complete" ]; then
	rm -rf "$root" "$root.apt"
	mkdir -p "$(dirname "$root")"
	files="/etc/apt/sources.list /etc/apt/sources.list.d/debian.sources"
	sources=$(ls $files 2>/dev/null || true)
	mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' \
		$sources </dev/null | head -n 1)
	apt-config dump Acquire >"$root.apt"
	mmdebstrap --quiet --variant=apt --aptopt="$root.apt" \
		--include=g++,make,pkg-config,librocksdb-dev,rocksdb-tools,python3 \
		"$suite" "$root" ${mirror:+"$mirror"}
	touch "$root.complete"
fi
mkdir -p "$root$project"
echo "suite: Debian $suite, RocksDB $(chroot "$root" dpkg-query -W -f '${Version}' librocksdb-dev)"
exec unshare --mount --propagation private sh -eu -c '
	root=$1 project=$2 target=$3
	shift 3
	mount --bind "$project" "$root$project"
	mkdir -p "$root$target"
	mount --bind "$target" "$root$target"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	exec chroot "$root" "$@"
' sh "$root" "$project" "$target" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	HOME=/root LANG=C.UTF-8 ${CI:+CI="$CI"} "$@"
