//! The model of a file of fixed length with concurrent operations: a log of writes, and for each
//! read the writes whose content it may have seen.

use crate::content::{ZEROES, fill, first_unexplained};
use crate::order::Order;
use ringway_core::File;
use std::ops::Range;
use std::path::PathBuf;

/// The mark of the initial content.
const INITIAL: u32 = u32::MAX;

pub(crate) struct SharedFile {
    pub file: File,
    pub path: PathBuf,
    pub direct: bool,
    pub len: u64,
    log: Vec<Write>,
}

/// A write or a hole.
struct Write {
    /// The operation; `None` is the initial content.
    by: Option<usize>,
    range: Range<u64>,
    mark: u32,
    /// It is known to be done in full. Otherwise each of its bytes may be in the file or not.
    certain: bool,
}

impl SharedFile {
    pub fn new(file: File, path: PathBuf, direct: bool, len: u64) -> Self {
        let first = Write { by: None, range: 0..len, mark: INITIAL, certain: true };
        Self { file, path, direct, len, log: vec![first] }
    }

    pub fn initial_content(len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        fill(INITIAL, 0, &mut bytes);
        bytes
    }

    /// Logs a pushed write. Its mark is unique.
    pub fn begin_write(&mut self, by: usize, range: Range<u64>, hole: bool) -> u32 {
        let mark = if hole { ZEROES } else { by as u32 + 1 };
        self.log.push(Write { by: Some(by), range, mark, certain: false });
        mark
    }

    /// The first `done` bytes are written; the others may be.
    pub fn wrote(&mut self, by: usize, done: u64) {
        let Some(at) = self.log.iter().position(|write| write.by == Some(by)) else { return };
        let write = &mut self.log[at];
        write.certain = true;
        let middle = write.range.start + done;
        if middle < write.range.end {
            let rest = Write {
                by: Some(by),
                range: middle..write.range.end,
                mark: write.mark,
                certain: false,
            };
            write.range.end = middle;
            self.log.push(rest);
        }
    }

    /// The write never began.
    pub fn never_wrote(&mut self, by: usize) {
        self.log.retain(|write| write.by != Some(by));
    }

    /// Checks that `reader` may have read these bytes from `start` on; with `None`, that they may
    /// be in the file at the end.
    pub fn check(
        &self,
        order: &Order,
        reader: Option<usize>,
        start: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        let end = start + bytes.len() as u64;
        let overlaps = |write: &&Write| write.range.start < end && write.range.end > start;
        let before_reader = |write: &Write| match (write.by, reader) {
            (Some(by), Some(reader)) => order.precedes(by, reader),
            _ => true,
        };
        let after_reader = |write: &Write| match (write.by, reader) {
            (Some(by), Some(reader)) => order.precedes(reader, by),
            _ => false,
        };
        let hidden_by = |write: &Write, other: &Write| match (write.by, other.by) {
            (None, Some(_)) => true,
            (Some(one), Some(other)) => order.precedes(one, other),
            _ => false,
        };
        let log: Vec<&Write> =
            self.log.iter().filter(overlaps).filter(|write| !after_reader(write)).collect();
        let hiding: Vec<&Write> =
            log.iter().copied().filter(|write| write.certain && before_reader(write)).collect();
        let mut edges: Vec<u64> = log
            .iter()
            .flat_map(|write| [write.range.start, write.range.end])
            .filter(|at| (start..end).contains(at))
            .collect();
        edges.extend([start, end]);
        edges.sort_unstable();
        edges.dedup();
        for part in edges.windows(2) {
            let covers =
                |write: &&&Write| write.range.start <= part[0] && write.range.end >= part[1];
            let hiding: Vec<&Write> = hiding.iter().filter(covers).copied().collect();
            let candidates: Vec<&Write> = log
                .iter()
                .filter(covers)
                .copied()
                .filter(|write| !hiding.iter().any(|other| hidden_by(write, other)))
                .collect();
            let marks: Vec<u32> = candidates.iter().map(|write| write.mark).collect();
            let here = &bytes[(part[0] - start) as usize..(part[1] - start) as usize];
            if let Some(at) = first_unexplained(&marks, part[0], here) {
                let writers: Vec<Option<usize>> = candidates.iter().map(|write| write.by).collect();
                let found = self.writer_of(at, here, part[0]);
                return Err(format!(
                    "byte {at}: expected one of {writers:?} (None: initial content), found {found}"
                ));
            }
        }
        Ok(())
    }

    /// The write with this content, for a message.
    fn writer_of(&self, at: u64, bytes: &[u8], start: u64) -> String {
        let from = (at - start) as usize;
        let bytes = &bytes[from..bytes.len().min(from + 16)];
        let writer =
            self.log.iter().find(|write| first_unexplained(&[write.mark], at, bytes).is_none());
        match writer.map(|write| write.by) {
            Some(by) => format!("by {by:?}"),
            None => format!("{bytes:02x?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(marks: &[(u32, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (mark, len) in marks {
            let start = bytes.len();
            bytes.resize(start + len, 0);
            fill(*mark, start as u64, &mut bytes[start..]);
        }
        bytes
    }

    #[test]
    fn a_read_sees_the_last_write_before_it_or_a_concurrent_one() {
        let mut order = Order::default();
        let mut file = SharedFile::new(File::open("/dev/null").unwrap(), PathBuf::new(), false, 64);
        order.push(0, false);
        file.begin_write(0, 0..32, false);
        // The write is not over: both contents are possible, even mixed.
        order.push(1, false);
        for bytes in [
            content(&[(INITIAL, 64)]),
            content(&[(1, 32), (INITIAL, 32)]),
            content(&[(1, 8), (INITIAL, 56)]),
        ] {
            assert_eq!(file.check(&order, Some(1), 0, &bytes), Ok(()));
        }
        assert!(file.check(&order, Some(1), 0, &content(&[(2, 64)])).is_err());
        // It is over before the next read was pushed: only its unwritten end is uncertain.
        order.over(0);
        file.wrote(0, 16);
        order.push(2, false);
        assert!(file.check(&order, Some(2), 0, &content(&[(INITIAL, 64)])).is_err());
        assert_eq!(file.check(&order, Some(2), 0, &content(&[(1, 16), (INITIAL, 48)])), Ok(()));
        assert_eq!(file.check(&order, Some(2), 0, &content(&[(1, 20), (INITIAL, 44)])), Ok(()));
        assert!(file.check(&order, Some(2), 0, &content(&[(1, 40), (INITIAL, 24)])).is_err());
        // A read does not see a write that began after it was over.
        order.over(2);
        order.push(3, false);
        file.begin_write(3, 32..64, true);
        assert!(file.check(&order, Some(2), 32, &[0; 32]).is_err());
        assert_eq!(file.check(&order, None, 32, &[0; 32]), Ok(()));
        file.never_wrote(3);
        assert!(file.check(&order, None, 32, &[0; 32]).is_err());
    }
}
