#!/bin/sh
# Tests that every place with the project's version has that of Cargo.toml. (The header's is tested
# where it is compiled: crates/ringway-c/scripts/versions.sh.)
set -eu
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
status=0

# versions FILE SCRIPT: compares what sed's SCRIPT prints of FILE, if anything.
versions() {
    for found in $(sed -n "$2" "$1"); do
        [ "$found" = "$version" ] || {
            echo "$1 has version $found, but Cargo.toml has $version" >&2
            status=1
        }
    done
}

# place FILE SCRIPT: the same, and FILE must have a version.
place() {
    [ -n "$(sed -n "$2" "$1")" ] || {
        echo "$1 has no version where this script looks for it" >&2
        status=1
    }
    versions "$1" "$2"
}

package='/^version = /{s/.*"\(.*\)"/\1/p;q}'
place datafusion/Cargo.toml "$package"
place integrations/Cargo.toml "$package"
place python/Cargo.toml "$package"
for manifest in crates/*/Cargo.toml; do
    versions "$manifest" 's/^ringway.*{ path = .* version = "\([^"]*\)".*/\1/p'
done
place ocaml/dune-project 's/^(version \(.*\))$/\1/p'
for package in ocaml/*.opam; do
    place "$package" 's/^version: "\(.*\)"$/\1/p'
done
place debian/changelog '1s/^ringway (\(.*\)-[^-]*) .*/\1/p'
place docs/go.md 's/.*ringway\/go@v\([0-9.]*[0-9]\).*/\1/p'
grep -qF "$version" CHANGELOG.md || {
    echo "CHANGELOG.md has no version $version" >&2
    status=1
}
exit $status
