#!/bin/sh
# static.sh FROM TO: converts cargo's static library to one that can be linked with other Rust
# libraries.
#
# Cargo's archive contains all dependencies and Rust's standard library with global symbols, so two
# such archives in one program collide. The result is one object whose only global symbols are the
# functions of the header. Unused code, debugging information (most of the size) and the compiler's
# intermediate code are removed.
set -eu
from=$1 to=$2
header=$(dirname "$0")/../include/ringway.h
scratch=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

"$(dirname "$0")/functions.sh" "$header" | sed -n 's/^extern //p' >"$scratch/names"
# Section groups are dissolved: a Rust program has groups of the same names, so its linker would
# discard ours, to which our local symbols refer.
# shellcheck disable=SC2046 # one word for each name
"${CROSS_COMPILE:-}ld" -r --gc-sections --force-group-allocation \
    $(sed 's/^/--undefined=/' "$scratch/names") -o "$scratch/all.o" "$from"
"${CROSS_COMPILE:-}objcopy" --strip-debug --keep-global-symbols="$scratch/names" \
    --remove-section=.llvmbc --remove-section=.llvmcmd "$scratch/all.o" "$scratch/ringway.o"
rm -f "$to"
"${CROSS_COMPILE:-}ar" rcsD "$to" "$scratch/ringway.o"
