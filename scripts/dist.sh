#!/bin/sh
# Makes reproducible tarballs in target/dist: the source, and for each target the command and
# libringway, prebuilt. The same commit and the same tools give the same bytes in any directory.
#
#     scripts/dist.sh [TARGET...]
#
# Without arguments the targets are x86-64, and arm64 where its cross compiler and Rust's standard
# library for it are installed. A target that is named and cannot be built is an error.
#
# A prebuilt library runs with the C library it was built with and newer ones; the script prints
# which glibc that is. SOURCE_DATE_EPOCH is the time of the last commit unless it is set.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
export PATH="$PATH:$HOME/.cargo/bin"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
# Absolute: the Makefiles of subdirectories get it.
out=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/dist
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022

stop() {
    echo "dist: $1" >&2
    exit 1
}

# cross_prefix TARGET: the prefix of the binutils and the compiler for it.
cross_prefix() {
    case $1 in
        "$host") ;;
        x86_64-unknown-linux-gnu) echo x86_64-linux-gnu- ;;
        aarch64-unknown-linux-gnu) echo aarch64-linux-gnu- ;;
        *) stop "$1 is not a target of this script" ;;
    esac
}

# lacks TARGET: prints how to install what building for it needs, or nothing.
lacks() {
    prefix=$(cross_prefix "$1")
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ] || echo "rustup target add $1"
    [ -z "$prefix" ] || command -v "${prefix}gcc" >/dev/null || case $1 in
        x86_64-*) echo "apt-get install gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;;
        aarch64-*) echo "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
    esac
}

# pack DIRECTORY: archives it next to itself, with nothing of this machine or this moment.
pack() {
    tar -C "$(dirname "$1")" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
        --numeric-owner --format=gnu -cf - "$(basename "$1")" | gzip -n -9 >"$1.tar.gz"
    rm -rf "$1"
    echo "dist: $1.tar.gz"
}

# build TARGET
build() {
    target=$1
    name=ringway-$version-${target%%-*}-linux-gnu
    stage=$out/$name
    rm -rf "$stage" "$stage.staged" "$out/c-$target"
    prefix=$(cross_prefix "$target")
    linker=$(echo "CARGO_TARGET_${target}_LINKER" | tr a-z- A-Z_)
    (
        export CARGO_BUILD_TARGET="$target" CARGO_TARGET_DIR="$out/build" CARGO_INCREMENTAL=0
        export CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_STRIP=symbols
        [ -z "$prefix" ] || export CROSS_COMPILE="$prefix" "$linker=${prefix}gcc"
        # No path of this machine gets into the libraries.
        home=${CARGO_HOME:-$HOME/.cargo}
        export RUSTFLAGS="--remap-path-prefix=$home=/cargo --remap-path-prefix=$out=/build \
--remap-path-prefix=$root=/ringway"
        export CFLAGS="-O2 -ffile-prefix-map=$home=/cargo -ffile-prefix-map=$out=/build \
-ffile-prefix-map=$root=/ringway"
        # Man pages and completions are written by the host's command; the target's cannot run here.
        if [ -n "$prefix" ] && ! [ -x "$out/build/$host/release/ringway" ]; then
            CARGO_BUILD_TARGET=$host cargo build --release -p ringway-cli --bin ringway
        fi
        make -s --no-print-directory install GENERATOR="$out/build/$host/release/ringway" \
            BUILD="$out/c-$target" PREFIX=/usr/local DESTDIR="$stage.staged"
        make --no-print-directory -C crates/ringway-c exports BUILD="$out/c-$target"
    )
    mv "$stage.staged/usr/local" "$stage"
    rm -rf "$stage.staged"
    cp LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$stage"
    # The tarball may be unpacked anywhere: pkg-config finds the files relative to its own.
    sed -i -e 's|^prefix=.*|prefix=${pcfiledir}/../..|' -e 's|^libdir=.*|libdir=${prefix}/lib|' \
        -e 's|^includedir=.*|includedir=${prefix}/include|' "$stage"/lib/pkgconfig/*.pc
    cat >"$stage/README" <<END
ringway $version for Linux on ${target%%-*}, with glibc $(glibc "$stage") or newer.

Use it from any directory (PKG_CONFIG_PATH=\$PWD/lib/pkgconfig), or install it:

    cp -a bin include lib share /usr/local/ && ldconfig

https://github.com/ringway-io/ringway has the documentation.
END
    verify "$stage" "$target"
    pack "$stage"
}

# glibc DIRECTORY: the newest version of the C library that the programs and libraries in it need.
glibc() {
    "${prefix}objdump" -T "$1"/bin/ringway "$1"/lib/*.so | grep -o 'GLIBC_[0-9.]*' |
        sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

# verify DIRECTORY TARGET: sonames, what the libraries need, the machine, and that no path of the
# build is in a file. (`make exports` has compared the symbols with the header.)
verify() {
    soname=libringway.so.0
    for library in "$1"/lib/*.so; do
        facts=$("${prefix}objdump" -p "$library")
        wanted=$(basename "$library").0
        echo "$facts" | grep -q "SONAME  *$wanted$" || stop "$library has not the soname $wanted"
        echo "$facts" | awk '$1 == "NEEDED" { print $2 }' | while read -r needed; do
            case $needed in
                libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-*.so.* | "$soname") ;;
                *) stop "$library needs $needed" ;;
            esac
        done
    done
    found=$("${prefix}readelf" -h "$1/lib/$soname" | sed -n 's/ *Machine: *//p')
    case $2:$found in
        x86_64-*:*X86-64 | aarch64-*:AArch64) ;;
        *) stop "$1/lib/$soname is for $found" ;;
    esac
    ! grep -rlF -e "$root" -e "$HOME/" "$1" >&2 || stop "these files have a path of this machine"
    [ "$2" = "$host" ] || return 0
    echo '#include <ringway.h>
int main(void) { return ringway_version()[0] == 0; }' >"$out/program.c"
    # shellcheck disable=SC2046 # several words
    PKG_CONFIG_PATH=$1/lib/pkgconfig cc "$out/program.c" -o "$out/program" \
        $(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --cflags --libs ringway)
    LD_LIBRARY_PATH=$1/lib "$out/program" || stop "a program with $1/lib/$soname does not run"
    "$1/bin/ringway" --version >/dev/null || stop "the command does not run"
    rm "$out/program" "$out/program.c"
}

host=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$out"

source=$out/ringway-$version.tar.gz
git archive --format=tar --prefix="ringway-$version/" HEAD | gzip -n -9 >"$source"
echo "dist: $source"

if [ $# -gt 0 ]; then
    for target in "$@"; do
        how=$(lacks "$target")
        [ -z "$how" ] || stop "cannot build for $target; install what is missing with: $how"
        build "$target"
    done
else
    for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu; do
        how=$(lacks "$target")
        if [ -z "$how" ]; then
            build "$target"
        else
            echo "dist: nothing is built for $target; that needs: $how" >&2
        fi
    done
fi
(cd "$out" && sha256sum ringway-"$version"*.tar.gz >SHA256SUMS && cat SHA256SUMS)
