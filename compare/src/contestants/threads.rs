//! A thread with blocking calls for each reader, without a library.

use super::sum::Check;
use super::{Contestant, blocking};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, Workload};
use ringway_measure::rounds::Turn;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::thread;

/// The most threads: no disk needs more.
const MOST: usize = 128;

pub const THREADS: Contestant = Contestant {
    leaves_out,
    ..Contestant::new("threads", "a thread for each reader, at most 128; pread and pwrite", run)
};

fn leaves_out(workload: &Workload) -> Option<String> {
    match workload.operation {
        Operation::Ranges => {
            Some("spawn_blocking already reads with a thread for each range".into())
        }
        _ if workload.readers >= 10_000 => {
            Some(format!("a program would not start {} threads", workload.readers))
        }
        _ => None,
    }
}

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    if job.workload.operation == Operation::Sum {
        for reader in Reader::all(job) {
            let (file, check) = (job.open()?, Check::new(job)?);
            thread::spawn(move || sum(reader, file, check));
        }
    } else {
        let file = Arc::new(job.open()?);
        for reader in Reader::at_most(job, MOST) {
            let file = file.clone();
            thread::spawn(move || read(reader, &file));
        }
    }
    job.measure()
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
