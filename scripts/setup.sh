#!/bin/sh
# Sees to it that the programs are there that a make target needs: `scripts/setup.sh rust cc ...`.
#
# What Debian's packages have is installed, where this user may do that; else the command is named. Rust and Go are named
# with the version that is wanted: it is for their users to choose where they come from. Says nothing when all is there.
set -eu
cd "$(dirname "$0")/.."

stop() {
    echo "ringway: $1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# package WHAT NAME...: installs Debian packages, since WHAT is missing.
package() {
    what=$1
    shift
    command="apt-get install -y --no-install-recommends $*"
    has apt-get || stop "$what is missing. On Debian it comes with: $command"
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif has sudo && sudo -n true 2>/dev/null; then
        as_root=sudo
    else
        stop "$what is missing. Install it with: sudo $command"
    fi
    echo "ringway: $what is missing: $command" >&2
    # A fresh machine may have no lists of packages yet.
    $as_root env DEBIAN_FRONTEND=noninteractive $command >&2 && return
    $as_root apt-get update >&2 || true
    $as_root env DEBIAN_FRONTEND=noninteractive $command >&2 || stop "could not be installed: $command"
}

# The C compiler links Rust's programs, and needs the C library's start files for it.
cc_works() {
    has cc && echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null
}

need_rust() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    how="Install it with rustup (https://rustup.rs; Debian 13 and newer: apt-get install rustup, then rustup default stable) and run this again."
    has cargo && has rustc || stop "Rust $wanted or newer is missing. $how"
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
    [ -n "$found" ] || stop "Rust $wanted or newer is missing: rustc is there and does not run. Try: rustup default stable"
    newest=$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | tail -n 1)
    [ "$newest" = "$found" ] || stop "Rust $wanted or newer is wanted, and this is $found. Try: rustup update stable"
}

need_go() {
    wanted=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go/go.mod)
    how="Install it from https://go.dev/dl (Debian's own is older)."
    has go || stop "Go $wanted or newer is missing. $how"
    found=$(go env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9]*\.[0-9]*\).*/\1/p')
    newest=$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | tail -n 1)
    # (A Go from 1.21 on fetches the version that a module wants, unless GOTOOLCHAIN forbids it.)
    [ "$newest" = "$found" ] || stop "Go $wanted or newer is wanted, and this is ${found:-unknown}. $how"
}

for need in "$@"; do
    case $need in
        rust) need_rust ;;
        go) need_go ;;
        cc) cc_works || package "a C compiler (as the linker)" gcc libc6-dev ;;
        # Only root's tests make file systems. Its programs may be outside of the path.
        mkfs) [ "$(id -u)" -ne 0 ] || PATH=$PATH:/usr/sbin:/sbin has mkfs.ext4 || package mkfs.ext4 e2fsprogs mount ;;
        c++) has c++ || package "a C++ compiler" g++ ;;
        python3) has python3 || package python3 python3 ;;
        valgrind) has valgrind || package valgrind valgrind ;;
        mandoc) has mandoc || package "mandoc (it checks the manual pages)" mandoc ;;
        man) has man || package man man-db ;;
        pkg-config) has pkg-config || package pkg-config pkg-config ;;
        mmdebstrap) has mmdebstrap || package mmdebstrap mmdebstrap ;;
        cmake) has cmake || package cmake cmake ;;
        libaio) [ -e /usr/include/libaio.h ] || package "libaio (the benchmark beside ioqueue's uses it)" libaio-dev ;;
        rocksdb) { [ -e /usr/include/rocksdb/db.h ] && has db_bench; } || package RocksDB librocksdb-dev rocksdb-tools ;;
        fmt) cargo fmt --version >/dev/null 2>&1 || stop "rustfmt is missing. Install it with: rustup component add rustfmt" ;;
        clippy) cargo clippy --version >/dev/null 2>&1 || stop "clippy is missing. Install it with: rustup component add clippy" ;;
        fuzz) cargo fuzz --version >/dev/null 2>&1 || stop "cargo-fuzz is missing. Install it with: cargo install cargo-fuzz" ;;
        rust-src) [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] ||
            stop "the standard library's source is missing. Install it with: rustup component add rust-src" ;;
        *) stop "setup.sh knows no $need" ;;
    esac
done
