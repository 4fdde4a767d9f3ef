#!/bin/sh
# functions.sh HEADER: what a header declares, "extern NAME" or "static NAME" each, as the compiler understood it.
set -eu
list=$(mktemp)
trap 'rm -f "$list"' EXIT
gcc -std=c11 -x c -fsyntax-only -aux-info "$list" "$1"
sed -n "s|^/\* $1:[0-9]*:N[CF] \*/ \([a-z]*\) |\1 |p" "$list" | sed 's/ (.*//; s/^\([a-z]*\) .*[ *]/\1 /' | sort -u
