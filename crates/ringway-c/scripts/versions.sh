#!/bin/sh
# versions.sh VERSION SOVERSION: checks that the header has the version and soname of the package.
set -eu
header=$(dirname "$0")/../include/ringway.h
macro() {
    sed -n "s/^#define RINGWAY_VERSION_$1 \([0-9]*\)$/\1/p" "$header"
}
found=$(macro MAJOR).$(macro MINOR).$(macro PATCH)
if [ "$found" != "$1" ]; then
    echo "ringway.h has version $found, but Cargo.toml has $1" >&2
    exit 1
fi
if ! grep -q "libringway\.so\.$2)" "$header"; then
    echo "ringway.h does not name the soname libringway.so.$2" >&2
    exit 1
fi
