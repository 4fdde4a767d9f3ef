//! The command line.

use clap::{Parser, ValueEnum};
use ringway_datafusion::ringway::BackendKind;
use ringway_measure::units::parse_size;
use std::path::PathBuf;

/// SQL over folders of Parquet, CSV and JSON files, through ringway or DataFusion's own store.
///
/// Each folder and each file in the given folders becomes a table, named after it without its
/// extension. A table's files are Parquet (.parquet), CSV with a header (.csv) or JSON with one
/// object per line (.json, .jsonl, .ndjson); .gz, .bz2, .xz and .zst may follow, except for
/// Parquet. A folder may mix the extensions of one format. Sub-folders such as year=2026 become
/// columns of their table. What cannot be a table is reported on standard error, with the reason;
/// the other tables work.
///
/// Without -c and -f, statements are read from standard input: interactively on a terminal, where
/// Ctrl-C cancels a query. From a pipe, each statement runs when its semicolon has come; the first
/// error ends the command. Results go to standard output, everything else to standard error.
///
/// Exit status: 0 on success, 1 if a statement failed, 2 for a wrong command line, 130 if Ctrl-C
/// cancelled a query (not interactively).
#[derive(Debug, Parser)]
#[command(name = "ringway-sql", version)]
pub struct Args {
    /// Folders of tables, or single files.
    #[arg(value_name = "DIR")]
    pub folders: Vec<PathBuf>,

    /// The store that reads and writes local files.
    #[arg(long, value_enum, default_value_t = Store::Ringway)]
    pub store: Store,

    /// Read with direct I/O, past the page cache (ringway only).
    #[arg(long)]
    pub direct: bool,

    /// The backend (ringway only). Default: the best that the kernel allows.
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,

    /// How many partitions a query is split into. Default: the number of processors.
    #[arg(long, value_name = "N")]
    pub partitions: Option<std::num::NonZeroUsize>,

    /// The memory of all queries together, such as 512m or 4g; a query that needs more spills to
    /// disk or fails. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory_limit: Option<usize>,

    /// The form of results.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Print the time and the I/O of registering the tables, and of each statement, to standard
    /// error: as text, or as one JSON object per line.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true,
          default_missing_value = "text")]
    pub stats: Option<StatsForm>,

    /// Run these statements; may be repeated.
    // A statement may start with a comment, `--`.
    #[arg(short = 'c', value_name = "SQL", conflicts_with = "file", allow_hyphen_values = true)]
    pub command: Vec<String>,

    /// Run the statements of this file; - is standard input.
    #[arg(short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Which store serves local files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// DataFusion's own, `LocalFileSystem`.
    Local,
    /// `RingwayFileSystem`.
    Ringway,
}

/// A backend of ringway's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// Linux AIO.
    Kaio,
    /// Threads.
    Threads,
}

impl From<Backend> for BackendKind {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Uring => Self::Uring,
            Backend::Kaio => Self::Kaio,
            Backend::Threads => Self::Threads,
        }
    }
}

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// CSV with a header.
    Csv,
    /// One JSON object per row and line.
    Json,
}

/// The form of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsForm {
    /// Text for people.
    Text,
    /// One JSON object per statement and line.
    Json,
}

fn size(text: &str) -> Result<usize, &'static str> {
    let size = parse_size(text).and_then(|bytes| bytes.try_into().ok());
    size.filter(|bytes| *bytes > 0).ok_or("give a size such as 512m or 4g")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
        let args = Args::parse_from(["ringway-sql", "--stats", "tables", "-c", "SELECT 1"]);
        assert_eq!(args.stats, Some(StatsForm::Text));
        assert_eq!(args.folders, [PathBuf::from("tables")]);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("512m"), Ok(512 << 20));
        assert_eq!(size("4G"), Ok(4 << 30));
        for wrong in ["", "0", "m", "-1", "1.5g", "ä", "99999999999999999999g"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
