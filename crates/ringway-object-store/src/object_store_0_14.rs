//! The store for object_store 0.14, and what differs between the releases.

use crate::local::etag::MetadataExt;
use ::object_store;
use object_store::{Attributes, Extensions, GetResult, GetResultPayload, ObjectMeta, PutResult};
use std::ops::Range;

#[path = "store/mod.rs"]
mod store;

pub use store::RingwayFileSystem;

/// The ETag of a file.
fn e_tag(metadata: &impl MetadataExt) -> String {
    format!("\"{}\"", crate::local::etag::e_tag(metadata))
}

fn get_result(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    GetResult {
        payload,
        meta,
        range,
        attributes: Attributes::default(),
        extensions: Extensions::default(),
    }
}

fn put_result(e_tag: String) -> PutResult {
    PutResult { e_tag: Some(e_tag), version: None, extensions: Extensions::default() }
}

/// The ranges as `LocalFileSystem` reads them, one after the other.
fn in_turn(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let merged = merged(ranges);
    if merged.len() < ranges.len() { merged } else { ranges.to_vec() }
}

/// The ranges in order of offset, with those joined that touch or overlap.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
