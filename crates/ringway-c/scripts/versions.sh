#!/bin/sh
# versions.sh VERSION SOVERSION: what the header says of versions is what the package says.
set -eu
header=$(dirname "$0")/../include/ringway.h
macro() {
    sed -n "s/^#define RINGWAY_VERSION_$1 \([0-9]*\)$/\1/p" "$header"
}
found=$(macro MAJOR).$(macro MINOR).$(macro PATCH)
if [ "$found" != "$1" ]; then
    echo "ringway.h says that it is version $found, and Cargo.toml $1" >&2
    exit 1
fi
if ! grep -q "libringway\.so\.$2)" "$header"; then
    echo "ringway.h names another soname than libringway.so.$2" >&2
    exit 1
fi
