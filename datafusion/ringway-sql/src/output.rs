//! Writes results to standard output, as a table, CSV or JSON.

use crate::args::Format;
use anyhow::Result;
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;
use arrow::json::LineDelimitedWriter;
use arrow::record_batch::RecordBatch;
use arrow::util::pretty::pretty_format_batches_with_schema;
use std::io::Write;

/// Writes the batches of one result.
#[derive(Debug)]
pub struct Output<W> {
    format: Format,
    schema: SchemaRef,
    to: W,
    header: bool,
    /// A table's columns are as wide as its widest value, so it is written at the end.
    table: Vec<RecordBatch>,
}

impl<W: Write> Output<W> {
    /// A result with these columns.
    pub fn new(format: Format, schema: SchemaRef, to: W) -> Self {
        Self { format, schema, to, header: true, table: Vec::new() }
    }

    /// Writes the next batch, or keeps it for the table.
    pub fn batch(&mut self, batch: RecordBatch) -> Result<()> {
        match self.format {
            Format::Table => self.table.push(batch),
            Format::Csv => self.csv(&batch)?,
            Format::Json => {
                let mut text = Vec::new();
                LineDelimitedWriter::new(&mut text).write(&batch)?;
                self.to.write_all(&text)?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<()> {
        match self.format {
            Format::Table if self.schema.fields().is_empty() => {}
            Format::Table => {
                let table = pretty_format_batches_with_schema(self.schema.clone(), &self.table)?;
                writeln!(self.to, "{table}")?;
            }
            // An empty result still has a header.
            Format::Csv if self.header && !self.schema.fields().is_empty() => {
                self.csv(&RecordBatch::new_empty(self.schema.clone()))?;
            }
            Format::Csv | Format::Json => {}
        }
        self.to.flush()?;
        Ok(())
    }

    fn csv(&mut self, batch: &RecordBatch) -> Result<()> {
        // Not written to `self.to` directly: arrow's error would hide that a pipe is closed.
        let mut text = Vec::new();
        WriterBuilder::new().with_header(self.header).build(&mut text).write(batch)?;
        self.header = false;
        Ok(self.to.write_all(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;

    fn written(format: Format, batches: &[&[i64]]) -> String {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let mut text = Vec::new();
        let mut output = Output::new(format, schema.clone(), &mut text);
        for batch in batches {
            let column = Arc::new(Int64Array::from(batch.to_vec()));
            output.batch(RecordBatch::try_new(schema.clone(), vec![column]).unwrap()).unwrap();
        }
        output.finish().unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn batches_become_one_result() {
        let batches: &[&[i64]] = &[&[1], &[2]];
        assert_eq!(written(Format::Csv, batches), "a\n1\n2\n");
        assert_eq!(written(Format::Json, batches), "{\"a\":1}\n{\"a\":2}\n");
        let table = "+---+\n| a |\n+---+\n| 1 |\n| 2 |\n+---+\n";
        assert_eq!(written(Format::Table, batches), table);
    }

    #[test]
    fn an_empty_result_has_its_columns() {
        assert_eq!(written(Format::Csv, &[]), "a\n");
        assert_eq!(written(Format::Json, &[]), "");
        assert!(written(Format::Table, &[]).contains("| a |"));
    }
}
