//! Any DataFusion program, with one line added: `ringway_datafusion::register`.
//!
//! `cargo run --example one_line [FILE.parquet]` prints the number of rows of a Parquet file;
//! without a file it writes one to the temporary directory first.

use datafusion::prelude::*;

#[tokio::main]
async fn main() -> datafusion::error::Result<()> {
    let session = SessionContext::new();
    ringway_datafusion::register(&session);

    let file = match std::env::args().nth(1) {
        Some(file) => file,
        None => written(&session).await?,
    };
    session.register_parquet("rows", &file, ParquetReadOptions::default()).await?;
    session.sql("SELECT count(*) FROM rows").await?.show().await
}

/// Writes a file, also through ringway.
async fn written(session: &SessionContext) -> datafusion::error::Result<String> {
    let file = std::env::temp_dir().join(format!("one_line-{}.parquet", std::process::id()));
    let file = file.display().to_string();
    let numbers = session.sql("SELECT value FROM generate_series(1, 100000)").await?;
    numbers.write_parquet(&file, Default::default(), None).await?;
    Ok(file)
}
