//! The Rust programs in the project's pages, as doc tests: `cargo test -p ringway-docs --doc`.
//!
//! Pages outside of a crate's directory cannot be included by that crate, because its published
//! package does not contain them. The README of each crate is tested by the crate itself.

#![cfg(doctest)]

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/rust.md")]
struct Rust;

#[doc = include_str!("../../../docs/backends.md")]
struct Backends;
