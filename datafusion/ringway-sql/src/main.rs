//! The library of the benchmarks.
fn main() {}
