#!/bin/sh
# Checks that the programs a make target needs are installed, and installs what Debian packages:
#
#     scripts/setup.sh rust cc ...
#
# Everything missing is collected first, so that one apt-get command installs all of it. The command
# is printed before it runs. It runs as root, or through sudo if sudo asks for no password;
# otherwise it is only printed, and the exit status is 1. With SETUP=list it is always only printed.
# Nothing is printed, and no network is used, when nothing is missing.
#
# Rust, Go and their tools are never installed: their users choose where these come from. They are
# reported with the version that is needed.
set -eu
cd "$(dirname "$0")/.."

packages= # Debian packages to install
missing=  # what they provide, for the message
components= # rustup components to add
manual=   # what has to be installed in another way, one sentence a line

has() {
    command -v "$1" >/dev/null 2>&1
}

# package WHAT NAME...: WHAT is missing, and these Debian packages provide it.
package() {
    missing="$missing${missing:+, }$1"
    shift
    packages="$packages${packages:+ }$*"
}

manual() {
    manual="$manual$1
"
}

# Cross-compiling needs the standard library of the target.
need_rust_target() {
    libraries=$(rustc --print target-libdir --target "$1" 2>/dev/null)
    [ -d "$libraries" ] ||
        manual "Rust's library for $1 is missing. Install it with: rustup target add $1"
}

# The C compiler also links Rust programs. Linking needs the C library's start files.
cc_works() {
    has cc && echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null
}

# at_least FOUND WANTED: compares versions.
at_least() {
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]
}

# need_rust WORKSPACE: the release that a workspace needs.
need_rust() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$1")
    if ! has cargo || ! has rustc; then
        manual "Rust $wanted or newer is missing. Install it with rustup (https://rustup.rs)."
        return
    fi
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
    if [ -z "$found" ]; then
        manual "Rust $wanted or newer is missing: rustc does not run. Try: rustup default stable"
    elif ! at_least "$found" "$wanted"; then
        manual "Rust $found is too old: $wanted or newer is needed. Try: rustup update stable"
    fi
}

need_go() {
    wanted=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go/go.mod)
    how="Install it from https://go.dev/dl (Debian's own is older)."
    if ! has go; then
        manual "Go $wanted or newer is missing. $how"
        return
    fi
    # Go 1.21 and newer fetch the version a module asks for, unless GOTOOLCHAIN forbids it.
    found=$(cd go && go env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9]*\.[0-9]*\).*/\1/p')
    [ -n "$found" ] && at_least "$found" "$wanted" ||
        manual "Go ${found:-(it does not run)} is too old: $wanted or newer is needed. $how"
}

# cargo_tool NAME CRATE: a subcommand of cargo that is installed with cargo.
cargo_tool() {
    cargo "$1" --version >/dev/null 2>&1 ||
        manual "$2 is missing. Install it with: cargo install --locked $2"
}

need_rust_source() {
    [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]
}

need_rocksdb() {
    [ -e /usr/include/rocksdb/db.h ] && has db_bench
}

# The library that bindgen loads.
has_libclang() {
    for library in /usr/lib/llvm-*/lib/libclang.so*; do
        [ -e "$library" ] && return
    done
    return 1
}

need_libaio() {
    echo '#include <libaio.h>' | cc -x c -E -o /dev/null - 2>/dev/null
}

# The compiler, dune, and the libraries (findlib's names) that are given.
has_ocaml() {
    has ocamlopt && has dune && has ocamlfind && ocamlfind query "$@" >/dev/null 2>&1
}

# Some programs of the administrator are outside an ordinary user's PATH.
has_admin() {
    PATH=$PATH:/usr/sbin:/sbin has "$1"
}

has_mkfs() {
    has_admin "mkfs.$1"
}

need_mkfs() {
    has_mkfs ext4 || package mkfs.ext4 e2fsprogs mount
    has_mkfs xfs || package mkfs.xfs xfsprogs
    has_mkfs btrfs || package mkfs.btrfs btrfs-progs
    has_mkfs erofs || package mkfs.erofs erofs-utils
    has mksquashfs || package mksquashfs squashfs-tools
}

checked=" "
for need in "$@"; do
    case $checked in *" $need "*) continue ;; esac
    checked="$checked$need "
    case $need in
        rust)
            case " $* " in
                *" rust-current "*) ;;
                *) need_rust Cargo.toml ;;
            esac
            ;;
        # For tests, and for programs that compare and measure. They may use newer releases than the
        # libraries and the command.
        rust-current) need_rust datafusion/Cargo.toml ;;
        fmt) cargo fmt --version >/dev/null 2>&1 || components="$components rustfmt" ;;
        clippy) cargo clippy --version >/dev/null 2>&1 || components="$components clippy" ;;
        rust-src) need_rust_source || components="$components rust-src" ;;
        fuzz) cargo_tool fuzz cargo-fuzz ;;
        semver) cargo_tool semver-checks cargo-semver-checks ;;
        go) need_go ;;
        cc) cc_works || package "a C compiler" gcc libc6-dev ;;
        cc-arm64)
            has aarch64-linux-gnu-gcc ||
                package "a C compiler for arm64" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
            ;;
        c++) has c++ || package "a C++ compiler" g++ ;;
        libclang) has_libclang || package libclang libclang-dev ;;
        git) has git || package git git ;;
        python3) has python3 || package python3 python3 ;;
        # Debian's python3 cannot make environments without it.
        python3-venv)
            python3 -c 'import ensurepip' 2>/dev/null || package "Python's venv" python3-venv
            ;;
        # Only tests that run as root make file systems.
        mkfs) [ "$(id -u)" -ne 0 ] || need_mkfs ;;
        valgrind) has valgrind || package valgrind valgrind ;;
        mandoc) has mandoc || package mandoc mandoc ;;
        man) has man || package man man-db ;;
        pkg-config) has pkg-config || package pkg-config pkg-config ;;
        cmake) has cmake || package cmake cmake ;;
        libaio) need_libaio || package libaio libaio-dev ;;
        rocksdb) need_rocksdb || package RocksDB librocksdb-dev rocksdb-tools ;;
        ocaml)
            has_ocaml lwt.unix ||
                package OCaml ocaml ocaml-findlib ocaml-dune liblwt-ocaml-dev
            ;;
        ocaml-test)
            has_ocaml alcotest qcheck cohttp-lwt-unix bigstringaf ||
                package "OCaml's libraries for tests" libalcotest-ocaml-dev libqcheck-ocaml-dev \
                    libcohttp-lwt-unix-ocaml-dev libbigstringaf-ocaml-dev
            ;;
        # cohttp looks up the port of http in it.
        services) getent services http >/dev/null 2>&1 || package /etc/services netbase ;;
        binutils) has objdump && has nm || package binutils binutils ;;
        mmdebstrap) has mmdebstrap || package mmdebstrap mmdebstrap ;;
        # For the guests of tests/kernels, which have programs of this machine.
        guests)
            has qemu-system-x86_64 || package QEMU qemu-system-x86
            has busybox || package busybox busybox-static
            has setpriv || package setpriv util-linux
            need_mkfs
            has_mkfs f2fs || package mkfs.f2fs f2fs-tools
            has_admin dmsetup || package dmsetup dmsetup
            has_admin integritysetup || package integritysetup cryptsetup-bin
            has_admin mdadm || package mdadm mdadm
            # (Up to Debian 12, QEMU's package has it, and there is no other.)
            [ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] ||
                ! apt-cache show virtiofsd >/dev/null 2>&1 || package virtiofsd virtiofsd
            has dpkg-deb || manual "dpkg is missing: kernels are fetched as Debian's packages."
            ;;
        # Programs for guests of another architecture: cross-compiled, and the system's.
        guests-arm64)
            has qemu-system-aarch64 || package "QEMU for arm64" qemu-system-arm
            has aarch64-linux-gnu-gcc ||
                package "an arm64 compiler" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
            need_rust_target aarch64-unknown-linux-gnu
            ;;
        # Programs for Windows: compiled here, and run by Wine.
        windows)
            need_rust_target x86_64-pc-windows-gnu
            has x86_64-w64-mingw32-gcc ||
                package "a C compiler for Windows" gcc-mingw-w64-x86-64
            has wine || package Wine wine wine64
            ;;
        dpkg-source) has dpkg-source || package dpkg-source dpkg-dev ;;
        deb) has dpkg-buildpackage && has dh || package dpkg-buildpackage dpkg-dev debhelper ;;
        *)
            echo "ringway: setup.sh does not know \"$need\"; add it to scripts/setup.sh" >&2
            exit 2
            ;;
    esac
done

[ -z "$components" ] || manual "Missing parts of Rust:$components. Install them with: \
rustup component add$components"

if [ -z "$packages$manual" ]; then
    [ "${SETUP:-}" != list ] || echo "ringway: nothing is missing"
    exit 0
fi

# Who may run apt-get: root itself, or this user with sudo. (`sudo -n` asks for no password.)
prefix="sudo "
may_install=no
if [ "$(id -u)" -eq 0 ]; then
    prefix=
    may_install=yes
elif has sudo && sudo -n true 2>/dev/null; then
    may_install=yes
fi
command="${prefix}apt-get install -y --no-install-recommends $packages"

# Rust and Go come first: without them nothing can be built, and nothing is installed in vain.
printf '%s' "$manual" | sed 's/^/ringway: /' >&2
[ -z "$packages" ] || echo "ringway: missing: $missing" >&2
if [ "${SETUP:-}" = list ]; then
    [ -z "$packages" ] || echo "$command"
    exit 1
fi
if ! has apt-get && [ -n "$packages" ]; then
    echo "ringway: there is no apt-get here. On Debian the command is: $command" >&2
    exit 1
fi
if [ -n "$manual" ] || [ "$may_install" = no ]; then
    [ -z "$packages" ] || echo "ringway: install it with: $command" >&2
    exit 1
fi

echo "ringway: installing it with: $command" >&2
install="${prefix}env DEBIAN_FRONTEND=noninteractive ${command#"$prefix"}"
# A fresh machine may have no package lists yet.
$install >&2 && exit 0
echo "ringway: that failed; trying again after: ${prefix}apt-get update" >&2
${prefix}apt-get update >&2 || true
if ! $install >&2; then
    echo "ringway: could not install the packages with: $command" >&2
    exit 1
fi
