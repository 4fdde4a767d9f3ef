//! `ringway bench`: compares backends and their options on this machine.

mod input;
mod interrupt;
mod job;
pub mod job_file;
mod machine;
mod memory;
pub mod options;
mod outputs;
pub mod plan;
mod prepare;
mod progress;
pub mod report;
pub mod result;
mod run;
mod schedule;
mod session;
mod status;
mod target;
pub mod workload;

pub use session::run;
