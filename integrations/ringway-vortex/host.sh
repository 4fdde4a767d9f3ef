#!/usr/bin/env bash
# Runs Vortex's own tests with ringway's reader and file system: those of the crates vortex-file and
# vortex-io, from their sources as cargo fetches them, in integrations/target/vortex-file. There
#
# - tests of vortex-file that open a buffer or a path open a file with the reader
#   (host/on_ringway.rs);
# - tests of readers and file systems, which vortex-io has in its modules, are a test of their own,
#   with a directory instead of a store in memory (host/io.rs).
#
# host.sh [arguments of `cargo test`]
set -euo pipefail
cd "$(dirname "$0")"
target=../target/vortex-file
sources=$(cargo metadata --quiet --locked --format-version 1 |
    grep -o '"manifest_path":"[^"]*/vortex-\(file\|io\)-[^"]*"' | cut -d'"' -f4)
file=$(dirname "$(grep vortex-file <<<"$sources")")
io=$(dirname "$(grep vortex-io <<<"$sources")")
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cp -r "$file/." "$new"
chmod -R u+w "$new"
cp ../Cargo.lock "$new"

# What stands between a pair of parentheses, with up to two pairs in it.
argument='(([^()]|\(([^()]|\([^()]*\))*\))*)'
for tested in tests open; do
    sed -E -i "s/\.open_buffer\($argument\)/.open_buffer_on_ringway(\1).await/
        s/\.open_path\(/.open_path_on_ringway(/" "$new/src/$tested.rs"
    grep -q '_on_ringway(' "$new/src/$tested.rs"
    printf '\n#[cfg(test)]\nuse crate::on_ringway::OnRingway;\n' >>"$new/src/$tested.rs"
done
cp host/on_ringway.rs "$new/src"
printf '\n#[cfg(test)]\nmod on_ringway;\n' >>"$new/src/lib.rs"

mkdir -p "$new/tests/io/file_systems"
cp host/io.rs "$new/tests/io/main.rs"
sed 's/crate::std_file/super::std_file/; s/crate::/vortex_io::/' \
    "$io/src/runtime/tests.rs" >"$new/tests/io/readers.rs"
sed -n '/^mod tests {/,/^}/p' "$io/src/object_store/filesystem.rs" | sed '1d; $d
    /async fn memory_fs/,/^    }/d
    s/crate::/vortex_io::/' >"$new/tests/io/file_systems/tests.rs"

here=$(pwd)
cat >>"$new/Cargo.toml" <<CARGO

[workspace]

[dev-dependencies.anyhow]
version = "1"

[dev-dependencies.ringway]
path = "$here/../../crates/ringway"

[dev-dependencies.ringway-vortex]
path = "$here"

[[test]]
name = "io"
path = "tests/io/main.rs"

[profile.dev]
debug = false
CARGO

# A copy that is up to date is not compiled again.
if ! diff -qr --exclude Cargo.lock "$new" "$target" >/dev/null 2>&1; then
    rm -rf "$target"
    mkdir -p "$target"
    cp -r "$new/." "$target"
fi
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../target}
cargo test --manifest-path "$target/Cargo.toml" --features object_store --lib --test io "$@"
