#!/bin/sh
# headers.sh CC CXX FLAGS HEADER...: checks that each header compiles by itself, included once and
# twice, as C11 and C++17, and that objects of both languages that include it can be linked
# together.
set -eu
cc=$1 cxx=$2 flags=$3
shift 3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for header in "$@"; do
    echo "#include <$header>" >"$scratch/once.c"
    cp "$scratch/once.c" "$scratch/another.c"
    cp "$scratch/once.c" "$scratch/once.cc"
    { cat "$scratch/once.c" "$scratch/once.c"; echo "int twice;"; } >"$scratch/twice.c"
    cp "$scratch/twice.c" "$scratch/twice.cc"
    sed -i 's/twice/twice_more/' "$scratch/twice.cc"
    for unit in once.c another.c twice.c once.cc twice.cc; do
        # shellcheck disable=SC2086 # split into words
        case $unit in
            *.c) $cc -std=c11 $flags -c "$scratch/$unit" -o "$scratch/$unit.o" ;;
            *) $cxx -std=c++17 $flags -c "$scratch/$unit" -o "$scratch/$unit.o" ;;
        esac
    done
    ld -r -o "$scratch/all.o" "$scratch"/*.o
    rm "$scratch"/*
done
