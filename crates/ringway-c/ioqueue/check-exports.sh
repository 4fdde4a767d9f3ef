#!/bin/sh
# check-exports.sh SOVERSION SHARED...: the shared libraries have the functions of ioqueue.h, all of them and nothing else, and the right names.
set -eu
soversion=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
wanted=$("$here/scripts/functions.sh" "$here/include/ioqueue.h" | sed -n 's/^extern //p')
for library in "$@"; do
    found=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
    [ "$found" = "$wanted" ] || { printf '%s has\n%s\nand ioqueue.h\n%s\n' "$library" "$found" "$wanted" >&2; exit 1; }
    soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
    [ "$soname" = "$(basename "$library").$soversion" ] || { echo "$library: the soname is ${soname:-missing}" >&2; exit 1; }
done
echo "ioqueue-exports: passed"
