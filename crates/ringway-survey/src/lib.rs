//! What a file system does with asynchronous I/O: each cell of a row is observed with system calls
//! and a ring of io_uring, without ringway. The test `file_systems` mounts the file systems,
//! compares their rows with the recorded ones, and writes docs/file-systems.md.

#![cfg(target_os = "linux")]

mod cells;
mod failure;
mod ring;

pub use cells::{Place, observe};
pub use ring::supported;

use cells::OR;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was observed in one place: text by the name of the cell ([`SUBJECTS`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The file system and how it is mounted, as in "xfs with reflinks".
    pub name: String,
    /// Its type in /proc/self/mountinfo.
    pub file_system: String,
    /// What was seen, by cell. A cell that does not apply is missing.
    pub cells: BTreeMap<String, String>,
}

impl Row {
    /// The answers in a cell: more than one if it depends on the moment.
    pub fn answers(&self, cell: &str) -> Vec<&str> {
        self.cells.get(cell).map_or(Vec::new(), |text| text.split(OR).collect())
    }

    /// Adds the answers of another observation of the same place.
    pub fn add(&mut self, other: &Self) {
        for (cell, text) in &other.cells {
            let mut answers = self.answers(cell);
            answers.extend(text.split(OR));
            answers.sort_unstable();
            answers.dedup();
            let all = answers.join(OR);
            self.cells.insert(cell.clone(), all);
        }
    }
}

/// The cells by subject: their names, and what they say, for the head of each table.
pub const SUBJECTS: &[(&str, &[(&str, &str)])] = &[
    (
        "Direct I/O",
        &[
            ("direct open", "`open(2)` with `O_DIRECT`"),
            ("alignment", "what `statx(2)` reports: of memory; of offset and length"),
            ("least block", "the smallest direct read that succeeds, at a multiple of its length"),
            ("direct end", "the bytes behind the count of a direct read in which the file ends"),
        ],
    ),
    (
        "Who serves a read",
        &[
            ("direct read", "a direct read"),
            ("cached, RWF_NOWAIT", "`preadv2(2)` of a cached page, without a ring"),
            ("cached read", "a buffered read of a cached page"),
            ("cached, O_NONBLOCK", "the same through a descriptor with `O_NONBLOCK`"),
            ("cold read", "a buffered read of a page that is not cached"),
            ("cold, O_NONBLOCK", "the same through a descriptor with `O_NONBLOCK`"),
        ],
    ),
    (
        "Who serves a write",
        &[
            ("direct overwrite", "a direct write to written blocks, right after another one"),
            ("overwrite after 20 ms", "the same, 20 ms after the one before"),
            ("direct append", "a direct write behind the end"),
            ("buffered write", "a buffered write to a cached page, right after another one"),
        ],
    ),
    (
        "Durable, atomic and uncached transfers",
        &[
            ("flushes, RWF_DSYNC", "flushes of the device for a direct overwrite with the flag"),
            ("flushes, fdatasync", "the same for a direct overwrite and `fdatasync(2)`"),
            ("atomic write", "what `statx(2)` reports; a direct write of 4 KiB with `RWF_ATOMIC`"),
            ("RWF_DONTCACHE read", "a buffered read with the flag"),
            ("RWF_DONTCACHE write", "a buffered write with the flag"),
        ],
    ),
    (
        "A failed writeback",
        &[
            ("failed writeback", "a block is bad: two `fdatasync(2)` through each descriptor"),
            ("after it", "the block is good: another one by the writer; what is on the device"),
        ],
    ),
    (
        "Space and names",
        &[
            ("copy_file_range", "a copy to another file of the same file system"),
            ("reflink", "`ioctl(FICLONE)`"),
            ("fallocate", "the modes that succeed"),
            ("O_TMPFILE", "an unnamed file, and a name for it"),
            ("RENAME_NOREPLACE", "`renameat2(2)` with the flag"),
        ],
    ),
];
