//! foyer's own test of its storage, with this engine instead of the default one: host.sh makes it.

#[rustfmt::skip]
#[path = "../../target/foyer-storage/tests/on_ringway.rs"]
mod on_ringway;
