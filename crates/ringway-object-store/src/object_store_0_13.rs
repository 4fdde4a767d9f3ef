//! The store for object_store 0.13, and what differs between the releases.

use crate::local::etag::MetadataExt;
use object_store::{Attributes, GetResult, GetResultPayload, ObjectMeta, PutResult};
use object_store_0_13 as object_store;
use std::ops::Range;

#[path = "store/mod.rs"]
mod store;

pub use store::RingwayFileSystem;

/// The ETag of a file.
fn e_tag(metadata: &impl MetadataExt) -> String {
    crate::local::etag::e_tag(metadata)
}

fn get_result(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    GetResult { payload, meta, range, attributes: Attributes::default() }
}

fn put_result(e_tag: String) -> PutResult {
    PutResult { e_tag: Some(e_tag), version: None }
}

/// The ranges as `LocalFileSystem` reads them, one after the other.
fn in_turn(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    ranges.to_vec()
}
