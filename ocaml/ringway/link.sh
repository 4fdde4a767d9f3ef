#!/bin/sh
# Provides libringway.a, dllringway.so and ringway.h to dune. They come from RINGWAY_LIBDIR and
# RINGWAY_INCLUDEDIR or, without these, from the C library that pkg-config finds. Arguments: the C
# compiler.
set -eu

if [ -z "${RINGWAY_LIBDIR:-}" ] && ! pkg-config --exists ringway; then
	echo "the C library of ringway is missing: install it with \`make install-c\`, or build" \
		"with \`make ocaml\` in ringway's repository" >&2
	exit 1
fi
libdir=${RINGWAY_LIBDIR:-$(pkg-config --variable=libdir ringway)}
includedir=${RINGWAY_INCLUDEDIR:-$(pkg-config --variable=includedir ringway)}
cp "$libdir/libringway.a" libringway.a
chmod u+w libringway.a
cp "$includedir/ringway.h" ringway.h
chmod u+w ringway.h
"$@" -shared -Wl,-z,nodelete -o dllringway.so \
	-Wl,--whole-archive libringway.a -Wl,--no-whole-archive -lpthread -ldl -lm -lgcc_s
