//! `ringway bench`: which way of doing I/O suits this machine, and what does each cost?

pub mod job_file;
pub mod report;
pub mod result;
pub mod workload;
