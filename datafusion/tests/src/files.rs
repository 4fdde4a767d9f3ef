//! Small Parquet files that tests may change.

use anyhow::Result;
use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Rows in each row group of [`write_numbers`].
pub const ROW_GROUP: usize = 1000;

/// Writes a Parquet file with the columns `id`, these numbers, and `text`, some text that does not
/// compress well; in row groups of [`ROW_GROUP`] rows.
pub fn write_numbers(path: &Path, ids: Range<i64>) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let text =
        ids.clone().map(|id| format!("{:x}", (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let columns = (Int64Array::from_iter_values(ids.clone()), StringArray::from_iter_values(text));
    let batch =
        RecordBatch::try_new(schema.clone(), vec![Arc::new(columns.0), Arc::new(columns.1)])?;
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema, Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}
