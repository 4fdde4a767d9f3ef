//! Readers, writers and range streams: they transfer the same bytes as the standard library on
//! every backend, runtime and kind of file, whatever fails below them.

#[path = "streams/common.rs"]
mod common;
#[path = "streams/drops.rs"]
mod drops;
#[path = "streams/full_disk.rs"]
mod full_disk;
#[path = "streams/ranges.rs"]
mod ranges;
#[path = "streams/reader.rs"]
mod reader;
#[path = "streams/script.rs"]
mod script;
#[path = "streams/spare.rs"]
mod spare;
#[path = "streams/traits.rs"]
mod traits;
#[path = "streams/writer.rs"]
mod writer;
#[path = "streams/yields.rs"]
mod yields;
