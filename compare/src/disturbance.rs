//! What runs next to the tasks of `compare stalls`: a thread that syncs all the time, and one that
//! writes to the file now and then. They end with the process.

use crate::job::Job;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Bytes of the file that is read and overwritten.
pub const SIZE: u64 = 1 << 20;

/// Opens the file in this folder. It is made, unless it is there.
pub fn file(folder: &Path) -> io::Result<(File, PathBuf)> {
    let path = folder.join("stalls.data");
    if !path.metadata().is_ok_and(|metadata| metadata.len() == SIZE) {
        std::fs::write(&path, vec![1; SIZE as usize])?;
        File::open(&path)?.sync_all()?;
    }
    Ok((File::open(&path)?, path))
}

/// Starts the threads.
pub fn start(job: &'static Job) {
    let synced = job.file.with_file_name("stalls.synced");
    thread::spawn(move || {
        if let Err(error) = sync_forever(&synced) {
            job.fail(format!("the syncs have ended: {error}"));
        }
    });
    if !job.workload.operation.writes() {
        thread::spawn(|| write_now_and_then(&job.file));
    }
}

/// Changes the size of a file and syncs it, so that a journal commits all the time.
fn sync_forever(file: &Path) -> io::Result<()> {
    for size in (1..8).cycle() {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
        file.set_len(size * 4096)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Writes to a file, so that the next read of it has to change its access time.
fn write_now_and_then(file: &Path) {
    let Ok(file) = OpenOptions::new().write(true).open(file) else { return };
    loop {
        let _ = file.write_all_at(&[1; 16], 0);
        thread::sleep(Duration::from_millis(50));
    }
}
