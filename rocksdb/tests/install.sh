#!/bin/sh
# Installs into a temporary directory, then builds and runs a program against the installed files.
#
#	tests/install.sh MAKE CXX
set -eu

make=$1 cxx=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/ringway-install-XXXXXX")
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "install: FAILED: $1"
	exit 1
}

"$make" --no-print-directory install DESTDIR="$dir" PREFIX=/usr >"$dir/log" 2>&1 || {
	cat "$dir/log"
	fail "make install"
}
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -I"$dir/usr/include" -o "$dir/program" \
	tests/install.cc -L"$dir/usr/lib" -lringway_rocksdb $(pkg-config --cflags --libs rocksdb)
LD_LIBRARY_PATH=$dir/usr/lib "$dir/program" "$dir/db"
# With a second copy preloaded.
cp "$dir/usr/lib/libringway_rocksdb.so.0" "$dir/copy.so"
LD_LIBRARY_PATH=$dir/usr/lib LD_PRELOAD=$dir/copy.so "$dir/program" "$dir/db"
exported=$(nm -DC --defined-only "$dir/copy.so" |
	grep -v -e ' ringway::' -e ' ringway_rocksdb_create_env$' || true)
[ -z "$exported" ] || fail "the shared object exports more than its header declares: $exported"
# The header is also one for C.
echo '#include <ringway_rocksdb.h>' | ${CC:-cc} -x c -std=c11 -Wall -Wextra -Werror -pedantic \
	-I"$dir/usr/include" -fsyntax-only - || fail "the header does not compile as C"
# A relative directory is relative to the directory of the Makefile, here and in the project's root.
for from in . ..; do
	target=install
	[ "$from" = . ] || target=install-rocksdb
	relative=$(realpath -m --relative-to="$from" "$dir/relative")
	"$make" --no-print-directory -C "$from" $target PREFIX="$relative" DESTDIR= >"$dir/log" || {
		cat "$dir/log"
		fail "make -C $from $target"
	}
	for file in include/ringway_rocksdb.h lib/libringway_rocksdb.so.0; do
		test -f "$dir/relative/$file" ||
			fail "make -C $from $target PREFIX=$relative does not install $file"
	done
	rm -rf "$dir/relative"
done
echo "install: passed"
