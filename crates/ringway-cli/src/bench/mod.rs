//! `ringway bench`: compares backends and their options on this machine.

mod interrupt;
mod job;
pub mod job_file;
mod memory;
pub mod options;
mod plan;
pub mod report;
pub mod result;
mod run;
mod schedule;
mod session;
mod target;
pub mod workload;

pub use session::run;
