//! Tests; see `all.rs`.
