#!/usr/bin/env bash
# Makes integrations/target/foyer-storage: the sources of foyer-storage as cargo fetches them, and
# one statement more. The trait IoEngine is public, but the types in its methods are not (0.22.6),
# so that no other crate can implement it. The statement exports them.
#
# foyer's own test of its storage, which its package contains, is copied beside the original with
# this engine instead of the default one: tests/host.rs runs it.
set -euo pipefail
cd "$(dirname "$0")"
exports='bytes::{IoB, IoBuf, IoBufMut, IoSliceMut}, device::Partition, engine::IoEngineBuildContext'
statement="pub use crate::io::{$exports};"
target=../target/foyer-storage
manifest=$(cargo metadata --quiet --locked --format-version 1 --manifest-path host/Cargo.toml |
    grep -o '"manifest_path":"[^"]*/foyer-storage-[^"]*"' | head -1 | cut -d'"' -f4)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cp -r "$(dirname "$manifest")/." "$new"
chmod -R u+w "$new"
printf '\n%s\n' "$statement" >>"$new/src/prelude.rs"
sed 's/\.with_engine_config(/.with_io_engine_config(ringway_foyer::RingwayIoEngineConfig::new())&/' \
    "$new/tests/storage_fuzzy_test.rs" >"$new/tests/on_ringway.rs"
grep -q RingwayIoEngineConfig "$new/tests/on_ringway.rs"
# A copy that is up to date is not compiled again.
if ! diff -qr "$new" "$target" >/dev/null 2>&1; then
    rm -rf "$target"
    mkdir -p "$target"
    cp -r "$new/." "$target"
fi
