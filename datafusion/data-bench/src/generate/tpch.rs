//! The tables of TPC-H as Parquet files, a folder for each table.

use super::parquet_file::{self, Codec};
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// The tables, the largest first: the last file to be written is then a small one.
pub const TABLES: [&str; 8] =
    ["lineitem", "orders", "partsupp", "part", "customer", "supplier", "nation", "region"];
/// Tables that grow with the scale, but not enough for more than one file, or not at all.
const ONE_FILE: [&str; 3] = ["supplier", "nation", "region"];
const MOST_FILES: f64 = 100.0;

/// Writes all tables at this scale into the empty `folder`. The larger tables have one
/// file for each unit of the scale.
///
/// # Errors
///
/// A scale that is not positive; those of writing files.
pub fn generate(folder: &Path, scale: f64, codec: Codec) -> anyhow::Result<()> {
    ensure!(scale > 0.0 && scale <= 1000.0, "the scale is {scale}, not between 0 and 1000");
    let mut files = Vec::new();
    for table in TABLES {
        let folder = folder.join(table);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let parts = if ONE_FILE.contains(&table) { 1 } else { parts(scale) };
        files.extend((1..=parts).map(|part| (table, part, parts)));
    }
    super::in_parallel(files.len(), |file| {
        let (table, part, parts) = files[file];
        let path = folder.join(table).join(format!("{part:03}.parquet"));
        write_part(&path, codec, table, (scale, part, parts))
    })
}

fn parts(scale: f64) -> i32 {
    scale.ceil().clamp(1.0, MOST_FILES) as i32
}

fn write_part(
    path: &Path,
    codec: Codec,
    table: &str,
    (scale, part, parts): (f64, i32, i32),
) -> anyhow::Result<()> {
    /// Writes what this generator makes.
    macro_rules! write {
        ($generator:ident, $batches:ident) => {
            parquet_file::write(path, codec, $batches::new($generator::new(scale, part, parts)))
        };
    }
    match table {
        "lineitem" => write!(LineItemGenerator, LineItemArrow),
        "orders" => write!(OrderGenerator, OrderArrow),
        "partsupp" => write!(PartSuppGenerator, PartSuppArrow),
        "part" => write!(PartGenerator, PartArrow),
        "customer" => write!(CustomerGenerator, CustomerArrow),
        "supplier" => write!(SupplierGenerator, SupplierArrow),
        "nation" => write!(NationGenerator, NationArrow),
        _ => write!(RegionGenerator, RegionArrow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::fs::File;

    #[test]
    fn tables_have_the_rows_of_their_scale_and_a_page_index() {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), 0.01, Codec::Zstd).unwrap();
        for (table, rows) in [("orders", 15_000), ("customer", 1500), ("region", 5)] {
            let file = File::open(folder.path().join(table).join("001.parquet")).unwrap();
            let reader = SerializedFileReader::new(file).unwrap();
            assert_eq!(reader.metadata().file_metadata().num_rows(), rows, "{table}");
            let first = reader.metadata().row_group(0).column(0);
            assert!(first.offset_index_length().is_some(), "{table}");
        }
        assert!(generate(&folder.path().join("x"), 0.0, Codec::Snappy).is_err());
    }

    #[test]
    fn larger_scales_have_more_files() {
        assert_eq!([0.1, 1.0, 2.5, 10.0, 500.0].map(parts), [1, 1, 3, 10, 100]);
    }
}
