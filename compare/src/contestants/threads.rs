//! A thread for each reader, and blocking calls: what there is without any library.

use super::sum::Check;
use super::{Contestant, blocking};
use crate::buffer::Buffer;
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Workload, Operation};
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::thread;

/// More threads than this serve no disk better.
const MOST: usize = 128;

pub struct Threads;

impl Contestant for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn about(&self) -> &'static str {
        "a thread for each reader, at most 128; pread and pwrite"
    }

    fn leaves_out(&self, workload: &Workload) -> Option<String> {
        match workload.operation {
            Operation::Ranges => Some("64 threads for one request are what spawn_blocking does".into()),
            _ if workload.readers >= 10_000 => {
                Some(format!("{} threads are no program", workload.readers))
            }
            _ => None,
        }
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        if job.workload.operation == Operation::Sum {
            for reader in job.readers() {
                let (file, check) = (job.open()?, Check::new(job)?);
                thread::spawn(move || sum(reader, file, check));
            }
        } else {
            let file = Arc::new(job.open()?);
            for reader in job.at_most(MOST) {
                let file = file.clone();
                thread::spawn(move || read(reader, &file));
            }
        }
        job.measure()
    }
}

fn read(mut reader: Reader, file: &File) {
    let workload = reader.job().workload;
    let mut buffer = Buffer::new(workload.block);
    while reader.begin() {
        let offset = reader.offset();
        reader.end(blocking::operate(file, workload.operation, &mut buffer, offset));
    }
}

fn sum(mut reader: Reader, mut file: File, mut check: Check) {
    let mut buffer = vec![0; reader.job().workload.block];
    while reader.begin() {
        let result = file.read(&mut buffer);
        let at_end = check.add(&buffer[..*result.as_ref().unwrap_or(&0)]);
        let result = if at_end { file.rewind().and(result) } else { result };
        reader.end(result);
    }
}
