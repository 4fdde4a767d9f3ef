//! `ringway bench`: which way of doing I/O suits this machine, and what does each cost?

mod clock;
mod job;
pub mod job_file;
mod memory;
mod offsets;
pub mod options;
mod pattern;
mod plan;
mod random;
pub mod report;
pub mod result;
mod run;
mod schedule;
mod scratch;
mod session;
mod target;
mod usage;
pub mod workload;

pub use session::run;
