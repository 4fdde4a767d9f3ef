#!/bin/sh
# Tests that `make dist` is reproducible: builds the last commit in two directories, whose names
# have different lengths, and compares all files. It takes some minutes, so `make test` does not run
# it; `make reproducible` does. Arguments are passed to scripts/dist.sh.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for directory in a another-directory-with-a-longer-name; do
    git clone -q . "$work/$directory"
    (cd "$work/$directory" && unset CARGO_TARGET_DIR && scripts/dist.sh "$@")
done
cd "$work"
for file in a/target/dist/*.tar.gz; do
    cmp "$file" "another-directory-with-a-longer-name/target/dist/$(basename "$file")"
done
echo "dist: both directories gave the same bytes"
