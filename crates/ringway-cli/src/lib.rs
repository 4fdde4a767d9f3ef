//! The parts of the `ringway` command, as a library so that tests and the fuzzer can reach them.

pub mod bench;
pub mod probe;
pub mod sum;
