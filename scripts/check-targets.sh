#!/bin/sh
# Checks that the library crates, the tests of the lowest two, and Python's extension module compile
# without a warning for the processors and systems that docs/platforms.md names, and that the crates
# and the command compile with the oldest supported Rust:
#
#     scripts/check-targets.sh [TARGET|RELEASE ...]
#
# What rustup lacks for that is installed. Where Rust did not come from rustup, a target or release
# that is not there is skipped, with the reason. Nothing is linked or run.
set -eu
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
TARGETS="aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-gnu
    x86_64-unknown-freebsd"
OLDEST=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
LIBRARIES="-p ringway-core -p ringway"
STORE="-p ringway-object-store --features object_store_0_13"

has_rustup() {
    command -v rustup >/dev/null 2>&1 && rustup show active-toolchain >/dev/null 2>&1
}

skip() {
    echo "skipped: $1"
}

# Whether Rust's standard library for a target is there, after it was installed if possible.
has_target() {
    libraries=$(rustc --print sysroot)/lib/rustlib/$1/lib
    [ ! -d "$libraries" ] || return 0
    if ! has_rustup; then
        skip "$1: this Rust has no standard library for it, and did not come from rustup"
        return 1
    fi
    echo "rustup target add $1"
    rustup target add "$1" || exit 1
}

# lint TARGET ARGUMENT...: clippy for a target.
lint() {
    target=$1
    shift
    $CARGO clippy --target "$target" "$@" -- -D warnings
}

# The object store's Parquet reader has nothing of its own system, and takes long to compile.
check_target() {
    has_target "$1" || return 0
    # shellcheck disable=SC2086 # The crates are words.
    lint "$1" $LIBRARIES --lib --tests --examples --all-features
    # shellcheck disable=SC2086
    lint "$1" $STORE
    # Without an interpreter of that system, and in the directory of `make python`.
    PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 lint "$1" --manifest-path python/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/python/cargo"
    case $1 in
        *-linux-*) lint "$1" -p ringway-c -p ringway-cli ;;
    esac
}

# Lints are those of the current release, which `incompatible_msrv` is one of.
check_release() {
    if ! has_rustup; then
        skip "Rust $1: Rust did not come from rustup; clippy's incompatible_msrv was checked"
        return
    fi
    if ! rustup run "$1" rustc --version >/dev/null 2>&1; then
        echo "rustup toolchain install $1 --profile minimal"
        rustup toolchain install "$1" --profile minimal --no-self-update || exit 1
    fi
    # shellcheck disable=SC2086 # The crates are words.
    rustup run "$1" cargo check $LIBRARIES --all-features
    # shellcheck disable=SC2086
    rustup run "$1" cargo check $STORE
    rustup run "$1" cargo check -p ringway-c -p ringway-cli
}

# shellcheck disable=SC2086 # The targets are words.
[ $# -gt 0 ] || set -- $TARGETS "$OLDEST"
for name in "$@"; do
    case $name in
        [0-9]*) check_release "$name" ;;
        *) check_target "$name" ;;
    esac
done
