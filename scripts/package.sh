#!/bin/sh
# Packages every crate that would be published, as `cargo publish` would, and builds each from its
# package alone: a file that the package lacks is an error. Options are passed to `cargo package`
# (`--allow-dirty`, `--offline`).
#
# It does not upload anything. The crates depend on one another, so they are packaged together.
set -eu
cd "$(dirname "$0")/.."

# published: the names of the workspace's crates without `publish = false`.
published() {
    for manifest in crates/*/Cargo.toml; do
        grep -q '^publish = false' "$manifest" ||
            sed -n '/^name = /{s/.*"\(.*\)"/\1/p;q}' "$manifest"
    done
}

set -- "$@" $(published | sed 's/^/--package=/')
cargo package "$@"

directory=${CARGO_TARGET_DIR:-target}/package
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
for crate in $(published); do
    files=$(tar -tzf "$directory/$crate-$version.crate")
    for file in Cargo.toml README.md LICENSE-APACHE LICENSE-MIT; do
        echo "$files" | grep -qx "$crate-$version/$file" || {
            echo "package: $crate lacks $file; add it to \"include\" in its Cargo.toml" >&2
            exit 1
        }
    done
    echo "package: $crate $version: $(echo "$files" | wc -l) files," \
        "$(wc -c <"$directory/$crate-$version.crate") bytes"
done
