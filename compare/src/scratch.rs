//! The scratch files. They have no name, so nothing is left behind, whatever ends the program.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process;

/// What is written at a time.
const PIECE: usize = 1 << 20;

/// A file without a name, really written: one of holes, or of zeros, is not always read from the
/// device.
pub struct Scratch {
    file: File,
    size: u64,
}

impl Scratch {
    pub fn new(folder: &Path, size: u64) -> anyhow::Result<Self> {
        let file = tempfile::tempfile_in(folder).and_then(|file| fill(file, size));
        let why = || format!("a scratch file in {} (another folder: --scratch)", folder.display());
        Ok(Self { file: file.with_context(why)?, size })
    }

    /// Where a child of this process finds it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()).into()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts all of it into the page cache, or nothing.
    pub fn prepare(&mut self, cached: bool) -> io::Result<()> {
        self.file.sync_data()?;
        // SAFETY: the call takes numbers; the descriptor is open for as long as `self` is borrowed.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if cached {
            self.file.rewind()?;
            let mut piece = vec![0; PIECE];
            while self.file.read(&mut piece)? > 0 {}
        }
        Ok(())
    }
}

fn fill(mut file: File, size: u64) -> io::Result<File> {
    let mut piece = vec![0; PIECE];
    for number in 0..size / PIECE as u64 {
        // No two blocks are alike, and none is zeros.
        for (index, word) in piece.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = ((number << 32 | index as u64) + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes();
        }
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(file)
}
