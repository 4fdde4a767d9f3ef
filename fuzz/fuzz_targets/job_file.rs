//! Fuzzes the parser of job files, which are often pasted from elsewhere. It must return jobs that
//! can run, or an error that names a line of the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_cli::bench::job_file;
use std::path::Path;

fuzz_target!(|text: &str| {
    // `include` yields the same text again, which may start with a section.
    let mut include = |_: Option<&Path>, name: &str| Ok((name.into(), text.to_owned()));
    match job_file::parse(text, &mut include) {
        Ok(file) => {
            assert!(!file.workloads.is_empty());
            for job in &file.workloads {
                assert!(!job.name.is_empty());
                assert!(job.block_size > 0 && job.depth > 0 && job.jobs > 0);
                assert!(job.batch.is_some_and(|batch| (1..=job.depth).contains(&batch)));
                assert!(job.complete_min <= job.depth);
                assert!(job.read_percent <= 100);
            }
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
            assert!(!error.to_string().is_empty());
        }
    }
});
