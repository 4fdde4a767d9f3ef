#!/bin/sh
# check-exports.sh SOVERSION SHARED...: checks that each shared library exports exactly the
# functions of ioqueue.h and has the right soname.
set -eu
soversion=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
wanted=$("$here/scripts/functions.sh" "$here/include/ioqueue.h" | sed -n 's/^extern //p')
for library in "$@"; do
    found=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
    [ "$found" = "$wanted" ] || {
        printf '%s exports\n%s\nbut ioqueue.h declares\n%s\n' "$library" "$found" "$wanted" >&2
        exit 1
    }
    soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
    [ "$soname" = "$(basename "$library").$soversion" ] || {
        echo "$library: the soname is ${soname:-missing}" >&2
        exit 1
    }
done
echo "ioqueue-exports: passed"
