//! The `ringway` command as a library, for its tests and the fuzzer. It has no stable API.

pub mod bench;
pub mod cli;
pub mod probe;
pub mod sum;
