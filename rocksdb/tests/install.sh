#!/bin/sh
# Installs below a directory of its own, and builds and runs a program against what is there, as a stranger would.
#
#	tests/install.sh MAKE CXX
set -eu

make=$1 cxx=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/ringway-install-XXXXXX")
trap 'rm -rf "$dir"' EXIT

"$make" --no-print-directory install DESTDIR="$dir" PREFIX=/usr >"$dir/log" || {
	cat "$dir/log"
	exit 1
}
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -I"$dir/usr/include" -o "$dir/program" tests/install.cc \
	-L"$dir/usr/lib" -lringway_rocksdb $(pkg-config --cflags --libs rocksdb)
LD_LIBRARY_PATH=$dir/usr/lib "$dir/program" "$dir/db"
# A second copy, preloaded beside the one that is linked.
cp "$dir/usr/lib/libringway_rocksdb.so.0" "$dir/copy.so"
LD_LIBRARY_PATH=$dir/usr/lib LD_PRELOAD=$dir/copy.so "$dir/program" "$dir/db"
shown=$(nm -DC --defined-only "$dir/copy.so" | grep -v ' ringway::' || true)
if [ -n "$shown" ]; then
	printf 'install: FAILED: the shared object shows more than its header:\n%s\n' "$shown"
	exit 1
fi
# A relative directory is taken from where make runs: here, or the project's root.
for from in . ..; do
	target=install
	[ "$from" = . ] || target=install-rocksdb
	relative=$(realpath -m --relative-to="$from" "$dir/relative")
	"$make" --no-print-directory -C "$from" $target PREFIX="$relative" DESTDIR= >"$dir/log" || {
		cat "$dir/log"
		exit 1
	}
	for file in include/ringway_rocksdb.h lib/libringway_rocksdb.so.0; do
		test -f "$dir/relative/$file" || {
			echo "install: FAILED: make -C $from $target PREFIX=$relative does not install $file there"
			exit 1
		}
	done
	rm -rf "$dir/relative"
done
echo "install: passed"
