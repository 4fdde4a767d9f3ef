#!/bin/sh
# Runs a program for Windows under Wine: the runner of Cargo in `make test-windows`. Its prefix and
# the library that older versions of Wine lack are in the target directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=${CARGO_TARGET_DIR:-$here/../../target}/wine
mkdir -p "$place"
place=$(cd "$place" && pwd)

library=$place/bcryptprimitives.dll
if ! test "$library" -nt "$here/bcryptprimitives.c"; then
	x86_64-w64-mingw32-gcc -O1 -Wall -Wextra -Werror -shared -o "$library.new" \
		"$here/bcryptprimitives.c" -ladvapi32
	mv "$library.new" "$library"
fi

export WINEPREFIX="$place/prefix" WINEDEBUG="${WINEDEBUG--all}"
export WINEPATH="Z:$(printf '%s' "$place" | tr / '\\')"
exec wine "$@" 2>&1
