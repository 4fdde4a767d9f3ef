#!/bin/sh
# static.sh FROM TO: makes of cargo's static library one that a C program can have beside other Rust libraries.
#
# Cargo's is an archive of everything that the library rests on, Rust's standard library included, with all its names global: two such
# archives in one program collide. Here they become one object with nothing global but ringway_*. What no function of the
# header needs is left out, and so are debugging information (most of the size) and the compiler's intermediate code.
set -eu
from=$1 to=$2
header=$(dirname "$0")/../include/ringway.h
scratch=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

"$(dirname "$0")/functions.sh" "$header" | sed -n 's/^extern //p' >"$scratch/names"
# shellcheck disable=SC2046 # one word a name
"${CROSS_COMPILE:-}ld" -r --gc-sections $(sed 's/^/--undefined=/' "$scratch/names") -o "$scratch/all.o" "$from"
"${CROSS_COMPILE:-}objcopy" --strip-debug --keep-global-symbols="$scratch/names" --remove-section=.llvmbc --remove-section=.llvmcmd \
    "$scratch/all.o" "$scratch/ringway.o"
rm -f "$to"
"${CROSS_COMPILE:-}ar" rcsD "$to" "$scratch/ringway.o"
