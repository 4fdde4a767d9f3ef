#!/bin/sh
# exports.sh HEADER STATIC SHARED SONAME: checks that both libraries export exactly the functions
# that the header declares, and the flags of the shared one.
set -eu
header=$1 static=$2 shared=$3 soname=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$(dirname "$0")/functions.sh" "$header" | sed -n 's/^extern //p' >"$scratch/header"
test -s "$scratch/header"
"${CROSS_COMPILE:-}nm" -D --defined-only "$shared" | awk '{ print $3 }' | sed 's/@.*//' |
    sort -u >"$scratch/shared"
"${CROSS_COMPILE:-}nm" -g --defined-only "$static" | awk 'NF == 3 { print $3 }' |
    sort -u >"$scratch/static"

failed=0
for library in shared static; do
    if ! diff "$scratch/header" "$scratch/$library" >"$scratch/diff"; then
        echo "the $library library differs from the header (< only header, > only library):" >&2
        cat "$scratch/diff" >&2
        failed=1
    fi
done
# The null backend and fault injection are for tests only.
if "${CROSS_COMPILE:-}nm" "$static" |
    grep -E 'ringway_core7backend(4null|6faulty)' >"$scratch/testing"; then
    echo "the static library contains code for tests:" >&2
    cat "$scratch/testing" >&2
    failed=1
fi
# The linker of a Rust program would discard a group that the program has too; see static.sh.
if "${CROSS_COMPILE:-}objdump" -h "$static" | grep -q LINK_ONCE; then
    echo "the static library has section groups, so a Rust program cannot link it" >&2
    failed=1
fi
found=$("${CROSS_COMPILE:-}objdump" -p "$shared" | awk '$1 == "SONAME" { print $2 }')
if [ "$found" != "$soname" ]; then
    echo "the soname is ${found:-missing}, not $soname" >&2
    failed=1
fi
if ! "${CROSS_COMPILE:-}readelf" -d "$shared" | grep -q NODELETE; then
    echo "dlclose(3) would unmap the code of the library's threads" >&2
    failed=1
fi
[ $failed -ne 0 ] || echo "exports: $(wc -l <"$scratch/header") functions in both libraries"
exit $failed
