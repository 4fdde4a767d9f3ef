//! The header of a safetensors file, checked by the crate that the package of that name uses.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, SafeTensors};
use std::collections::HashMap;

/// Bytes of the header's length.
const LENGTH: usize = 8;

/// The metadata, and for each tensor its name, type, shape, and first and last offset in the data.
type Header = (Option<HashMap<String, String>>, Vec<(String, String, Vec<usize>, usize, usize)>);

/// Checks the beginning of a file: the length of the header, and the header.
///
/// Errors: ValueError with the text that the package safetensors has.
#[pyfunction]
pub fn tensor_header(beginning: &[u8], file_size: usize) -> PyResult<Header> {
    let metadata = parse(beginning, file_size).map_err(|error| {
        PyValueError::new_err(format!("Error while deserializing header: {error}"))
    })?;
    let tensors = metadata.offset_keys().into_iter().filter_map(|name| {
        let info = metadata.info(&name)?;
        let (start, end) = info.data_offsets;
        Some((name, info.dtype.to_string(), info.shape.clone(), start, end))
    });
    let tensors = tensors.collect();
    Ok((metadata.metadata().clone(), tensors))
}

fn parse(beginning: &[u8], file_size: usize) -> Result<Metadata, SafeTensorError> {
    let metadata = match SafeTensors::read_metadata(beginning) {
        Ok((_, metadata)) => metadata,
        // The last of its checks, which misses the tensors' bytes: these were not passed.
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            serde_json::from_slice(&beginning[LENGTH..])?
        }
        Err(error) => return Err(error),
    };
    if metadata.data_len() + beginning.len() == file_size {
        Ok(metadata)
    } else {
        Err(SafeTensorError::MetadataIncompleteBuffer)
    }
}
