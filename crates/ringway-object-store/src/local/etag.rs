//! The ETag and the modification time of a file, equal to those of `LocalFileSystem`.

use chrono::{DateTime, Utc};
use std::os::unix::fs::MetadataExt;

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
