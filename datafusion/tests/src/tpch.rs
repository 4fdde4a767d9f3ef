//! TPC-H: its tables as Parquet files, made once, and its queries.

use anyhow::{Context, Result, ensure};
use arrow::record_batch::RecordBatchReader;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// The scale factor of the tests' data.
pub const SCALE: f64 = 0.1;

/// The tables, each a folder of [`folder`].
pub const TABLES: [&str; 8] =
    ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];

/// The numbers of the queries.
pub const QUERIES: std::ops::RangeInclusive<usize> = 1..=22;

const SQL: [&str; 22] = [
    include_str!("../../queries/tpch/q01.sql"),
    include_str!("../../queries/tpch/q02.sql"),
    include_str!("../../queries/tpch/q03.sql"),
    include_str!("../../queries/tpch/q04.sql"),
    include_str!("../../queries/tpch/q05.sql"),
    include_str!("../../queries/tpch/q06.sql"),
    include_str!("../../queries/tpch/q07.sql"),
    include_str!("../../queries/tpch/q08.sql"),
    include_str!("../../queries/tpch/q09.sql"),
    include_str!("../../queries/tpch/q10.sql"),
    include_str!("../../queries/tpch/q11.sql"),
    include_str!("../../queries/tpch/q12.sql"),
    include_str!("../../queries/tpch/q13.sql"),
    include_str!("../../queries/tpch/q14.sql"),
    include_str!("../../queries/tpch/q15.sql"),
    include_str!("../../queries/tpch/q16.sql"),
    include_str!("../../queries/tpch/q17.sql"),
    include_str!("../../queries/tpch/q18.sql"),
    include_str!("../../queries/tpch/q19.sql"),
    include_str!("../../queries/tpch/q20.sql"),
    include_str!("../../queries/tpch/q21.sql"),
    include_str!("../../queries/tpch/q22.sql"),
];

/// The text of a query, 1 to 22.
pub fn sql(query: usize) -> &'static str {
    SQL[query - 1]
}

/// The folder of the tables at [`SCALE`], each a folder of Parquet files. The first call of a
/// build directory generates them; later runs find them there.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| find_or_generate().expect("TPC-H's tables can be written"))
}

/// Registers the tables in a session, by their names.
pub async fn register(session: &SessionContext) -> Result<()> {
    for table in TABLES {
        let folder = folder().join(table);
        let folder = folder.to_str().context("the path is not UTF-8")?;
        session.register_parquet(table, folder, ParquetReadOptions::default()).await?;
    }
    Ok(())
}

fn find_or_generate() -> Result<PathBuf> {
    // Next to the program, so that `cargo clean` removes it; `1` changes with what is generated.
    let program = std::env::current_exe()?;
    let target = program.parent().context("the program has no directory")?;
    let tables = target.join(format!("tpch-{SCALE}-1"));
    if !tables.exists() {
        // Several test programs may do this at once: the first to finish names the folder.
        let staged = tempfile::tempdir_in(target)?;
        generate(staged.path(), SCALE)?;
        match fs::rename(staged.path(), &tables) {
            Ok(()) => drop(staged.keep()),
            Err(_) => ensure!(tables.exists(), "cannot rename to {}", tables.display()),
        }
    }
    Ok(tables)
}

/// Writes the tables of this scale into a folder: the large ones as three files of several row
/// groups each.
fn generate(folder: &Path, scale: f64) -> Result<()> {
    for part in 1..=3 {
        let lineitem = LineItemArrow::new(LineItemGenerator::new(scale, part, 3));
        write(folder, "lineitem", part, lineitem)?;
        write(folder, "orders", part, OrderArrow::new(OrderGenerator::new(scale, part, 3)))?;
    }
    write(folder, "customer", 1, CustomerArrow::new(CustomerGenerator::new(scale, 1, 1)))?;
    write(folder, "nation", 1, NationArrow::new(NationGenerator::new(scale, 1, 1)))?;
    write(folder, "part", 1, PartArrow::new(PartGenerator::new(scale, 1, 1)))?;
    write(folder, "partsupp", 1, PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1)))?;
    write(folder, "region", 1, RegionArrow::new(RegionGenerator::new(scale, 1, 1)))?;
    write(folder, "supplier", 1, SupplierArrow::new(SupplierGenerator::new(scale, 1, 1)))
}

fn write(folder: &Path, table: &str, part: i32, batches: impl RecordBatchReader) -> Result<()> {
    let folder = folder.join(table);
    fs::create_dir_all(&folder)?;
    let file = File::create(folder.join(format!("part-{part}.parquet")))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(40_000))
        .build();
    let mut writer = ArrowWriter::try_new(file, batches.schema(), Some(properties))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}
