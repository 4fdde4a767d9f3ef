#!/bin/sh
# check-install.sh SCRATCH: installs below a temporary DESTDIR, builds and runs programs against the
# installation with pkg-config and CMake, and uninstalls. SCRATCH is an absolute path.
set -eu
scratch=$1
here=$(cd "$(dirname "$0")/.." && pwd)
destdir=$scratch/destdir
prefix=/opt/ringway
libdir=$prefix/lib/here
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

run_make() {
    ${MAKE:-make} --no-print-directory -C "$here" "$1" \
        DESTDIR="$destdir" PREFIX=$prefix LIBDIR=$libdir >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        exit 1
    }
}
run_make install

cat >program.c <<'END'
#include <ringway.h>
#include <stdio.h>

int main(void)
{
	struct ringway_queue *queue;

	if (ringway_create(NULL, &queue) < 0) {
		fprintf(stderr, "%s\n", ringway_last_error());
		return 1;
	}
	printf("%s %s\n", ringway_version(), ringway_backend_name(ringway_get_backend(queue)));
	return ringway_destroy(&queue);
}
END

cat >queue.c <<'END'
#include <ioqueue.h>

int main(void)
{
	if (ioqueue_init(1) < 0)
		return 1;
	ioqueue_destroy();
	return 0;
}
END

# is_linked shared|static PROGRAM: checks how the program is linked, and runs it.
is_linked() {
    found=static
    if objdump -p "$2" | grep -q 'NEEDED.*lib\(ringway\|ioqueue\)'; then found=shared; fi
    [ $found = "$1" ] || { echo "$2 was linked with the $found library" >&2; exit 1; }
    LD_LIBRARY_PATH="$destdir$libdir" "$2" >"$2.output" || { echo "$2 failed" >&2; exit 1; }
}

export PKG_CONFIG_PATH="$destdir$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$destdir"
# shellcheck disable=SC2046 # split into words
cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags ringway) program.c \
    $(pkg-config --libs ringway) -o by-pkg-config
is_linked shared ./by-pkg-config
# shellcheck disable=SC2046 # split into words
cc -std=c11 $(pkg-config --cflags ringway) program.c \
    -Wl,-Bstatic $(pkg-config --libs ringway) -Wl,-Bdynamic \
    $(pkg-config --libs --static ringway | sed 's/-lringway//') -o by-pkg-config-static
is_linked static ./by-pkg-config-static
# shellcheck disable=SC2046 # split into words
cc -std=c11 -static $(pkg-config --cflags ringway) program.c \
    $(pkg-config --libs --static ringway) -o by-pkg-config-all-static
is_linked static ./by-pkg-config-all-static
# shellcheck disable=SC2046 # split into words
cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags ioqueue) queue.c \
    $(pkg-config --libs ioqueue) -o queue
is_linked shared ./queue
# shellcheck disable=SC2046 # split into words
cc -std=c11 -static $(pkg-config --cflags ioqueue) queue.c \
    $(pkg-config --libs --static ioqueue) -o queue-static
is_linked static ./queue-static
unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR

cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.13)
project(program C)
find_package(ringway 0.1 REQUIRED)
add_executable(by-cmake program.c)
target_link_libraries(by-cmake ringway::ringway)
add_executable(by-cmake-static program.c)
target_link_libraries(by-cmake-static ringway::ringway_static)
find_package(ringway 0.2 QUIET)
if(ringway_FOUND)
  message(FATAL_ERROR "version 0.1 was accepted as 0.2")
endif()
END
{
    cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$destdir$prefix" \
        -Dringway_DIR="$destdir$libdir/cmake/ringway" && cmake --build cmake
} >cmake.log 2>&1 || {
    cat cmake.log >&2
    exit 1
}
is_linked shared cmake/by-cmake
is_linked static cmake/by-cmake-static

for page in $("$here/scripts/page-names.sh" "$here"/man/*.3 | sed 's/.* //'); do
    man -M "$destdir$prefix/share/man" -w 3 "$page" >/dev/null || exit 1
done
man -M "$destdir$prefix/share/man" -w 7 ringway >/dev/null

run_make uninstall
left=$(find "$destdir" ! -type d)
[ -z "$left" ] || { echo "uninstall left these files: $left" >&2; exit 1; }

# Relative directories start where make runs: the root of the project, or here.
root=$(cd "$here/../.." && pwd)
for from in "$root" "$here"; do
    target=install-c
    [ "$from" = "$root" ] || target=install
    relative=$(realpath -m --relative-to="$from" "$scratch/relative")
    ${MAKE:-make} --no-print-directory -C "$from" $target \
        PREFIX="$relative" LIBDIR="$relative/lib/here" DESTDIR= >relative.log 2>&1 || {
        cat relative.log >&2
        exit 1
    }
    for file in include/ringway.h lib/here/libringway.a lib/here/libioqueue.a; do
        [ -f "$scratch/relative/$file" ] || {
            echo "make -C $from $target PREFIX=$relative did not install $file" >&2
            exit 1
        }
    done
    grep -qx "libdir=$scratch/relative/lib/here" \
        "$scratch/relative/lib/here/pkgconfig/ringway.pc"
    rm -rf "$scratch/relative"
    # With a space in a name, make would install to and remove from two other directories.
    for target in $target uninstall; do
        [ "$from$target" != "${root}uninstall" ] || continue
        mkdir "$scratch/two"
        touch "$scratch/two/precious"
        if ${MAKE:-make} --no-print-directory -C "$from" "$target" \
            PREFIX="$scratch/two words" DESTDIR= >space.log 2>&1; then
            echo "make -C $from $target accepted a directory with a space" >&2
            exit 1
        fi
        [ "$(find "$scratch/two"* -type f)" = "$scratch/two/precious" ] || {
            echo "make $target changed another directory" >&2
            exit 1
        }
        rm -rf "$scratch/two"
    done
done
cd / && rm -rf "$scratch"
echo "check-install: passed"
