#!/bin/sh
# Tests that `make dist` is reproducible: builds the last commit in two directories, whose names
# have different lengths, and compares all files. It takes some minutes, so `make test` does not run
# it; `make reproducible` does. Arguments are passed to scripts/dist.sh.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The same commit for both, whatever is committed meanwhile.
other=another-directory-with-a-longer-name
git clone -q . "$work/a"
git clone -q "$work/a" "$work/$other"
for directory in a $other; do
    (cd "$work/$directory" && unset CARGO_TARGET_DIR && scripts/dist.sh "$@")
done
cd "$work"
failed=0
for file in a/target/dist/*.tar.gz; do
    name=$(basename "$file")
    cmp "$file" "$other/target/dist/$name" && continue
    failed=1
    # Names the files that differ.
    mkdir one two
    tar -C one -xzf "$file"
    tar -C two -xzf "$other/target/dist/$name"
    diff -rq one two || true
    rm -rf one two
done
[ $failed -ne 0 ] || echo "dist: both directories gave the same bytes"
exit $failed
