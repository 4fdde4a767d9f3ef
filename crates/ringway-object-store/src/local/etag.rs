//! The ETag and the modification time of a file, equal to those of `LocalFileSystem`.

use chrono::{DateTime, Utc};
#[cfg(unix)]
pub(crate) use std::os::unix::fs::MetadataExt;

/// The ETag: inode, modification time in microseconds (0 before 1970) and length, in hexadecimal.
/// object_store 0.14 puts it in quotes, as HTTP does; 0.13 does not.
pub(crate) fn e_tag(metadata: &impl MetadataExt) -> String {
    let micros = match u128::try_from(metadata.mtime()) {
        Ok(seconds) => seconds * 1_000_000 + nanoseconds(metadata) as u128 / 1_000,
        Err(_) => 0,
    };
    format!("{:x}-{micros:x}-{:x}", metadata.ino(), metadata.size())
}

/// The time of the last modification. A time that `DateTime` cannot hold becomes the nearest one.
pub(crate) fn last_modified(metadata: &impl MetadataExt) -> DateTime<Utc> {
    let seconds = metadata.mtime();
    let nearest = if seconds < 0 { DateTime::<Utc>::MIN_UTC } else { DateTime::<Utc>::MAX_UTC };
    DateTime::from_timestamp(seconds, nanoseconds(metadata)).unwrap_or(nearest)
}

fn nanoseconds(metadata: &impl MetadataExt) -> u32 {
    u32::try_from(metadata.mtime_nsec()).unwrap_or(0)
}

/// The numbers of a file on Windows, where `LocalFileSystem` uses no inode.
#[cfg(windows)]
pub(crate) trait MetadataExt {
    fn size(&self) -> u64;

    fn modified(&self) -> std::io::Result<std::time::SystemTime>;

    fn ino(&self) -> u64 {
        0
    }

    /// The whole seconds of the modification time, rounded down.
    fn mtime(&self) -> i64 {
        self.modified().map_or(0, |time| DateTime::<Utc>::from(time).timestamp())
    }

    fn mtime_nsec(&self) -> i64 {
        self.modified()
            .map_or(0, |time| DateTime::<Utc>::from(time).timestamp_subsec_nanos().into())
    }
}

#[cfg(windows)]
impl MetadataExt for std::fs::Metadata {
    fn size(&self) -> u64 {
        self.len()
    }

    fn modified(&self) -> std::io::Result<std::time::SystemTime> {
        self.modified()
    }
}

#[cfg(windows)]
impl MetadataExt for ringway::fs::Metadata {
    fn size(&self) -> u64 {
        self.len()
    }

    fn modified(&self) -> std::io::Result<std::time::SystemTime> {
        self.modified()
    }
}
