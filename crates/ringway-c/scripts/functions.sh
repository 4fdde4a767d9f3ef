#!/bin/sh
# functions.sh HEADER: prints "extern NAME" or "static NAME" for each function that a header
# declares, according to the compiler.
set -eu
list=$(mktemp)
trap 'rm -f "$list"' EXIT
gcc -std=c11 -x c -fsyntax-only -aux-info "$list" "$1"
sed -n "s|^/\* $1:[0-9]*:N[CF] \*/ \([a-z]*\) |\1 |p" "$list" |
    sed 's/ (.*//; s/^\([a-z]*\) .*[ *]/\1 /' | sort -u
