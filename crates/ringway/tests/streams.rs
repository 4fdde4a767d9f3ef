//! Readers and writers: the same bytes as the standard library's, on every backend, runtime and kind of file.

#[path = "streams/common.rs"]
mod common;
#[path = "streams/reader.rs"]
mod reader;
#[path = "streams/writer.rs"]
mod writer;
