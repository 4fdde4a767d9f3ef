//! What the programs of this package share: the option for the store, the tables of a folder,
//! messages on standard error, free ports, and an end when the parent is gone.

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use log::{Level, LevelFilter, Log, Metadata, Record};
use ringway::Engine;
use ringway_measure::units::parse_size;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use tokio::sync::oneshot;

/// What reads and writes local files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// What Ballista has: `LocalFileSystem`, and blocking calls for shuffle files.
    Local,
    /// ringway.
    Ringway,
}

impl Store {
    /// The engine, which is the global one; `None` for [`Store::Local`].
    ///
    /// # Errors
    ///
    /// No backend works; a variable such as `RINGWAY_BACKEND` is invalid.
    pub fn engine(self) -> anyhow::Result<Option<&'static Engine>> {
        match self {
            Self::Local => Ok(None),
            Self::Ringway => Engine::global().map(Some).context("ringway's engine"),
        }
    }
}

/// Prints messages of Ballista and DataFusion on standard error: those of the level in the variable
/// `RUST_LOG` (`error`, `warn`, `info`, `debug`, `trace` or `off`), `warn` if it is not set.
///
/// # Errors
///
/// Another value of the variable; there is a logger already.
pub fn log_to_stderr() -> anyhow::Result<()> {
    let level = match std::env::var("RUST_LOG") {
        Ok(level) => level.parse().map_err(|_| anyhow!("RUST_LOG={level} is not a level"))?,
        Err(_) => LevelFilter::Warn,
    };
    log::set_logger(&StandardError).map_err(|error| anyhow!("{error}"))?;
    log::set_max_level(level);
    Ok(())
}

/// Prints a line on standard error. If nobody reads it, nothing else changes: `eprintln!` would
/// panic.
pub fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Below its warnings, HTTP/2 logs every frame.
        let is_http = metadata.target().starts_with("h2");
        metadata.level() <= if is_http { Level::Warn } else { Level::Trace }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            note(format_args!("{} {}: {}", record.level(), record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// Checks that a program can listen at this address. Ballista's executor ends without a message and
/// with success if it cannot listen at the port of its files.
///
/// # Errors
///
/// The host is no IP address; the port is in use, or may not be used.
pub fn check_address(host: &str, port: u16) -> anyhow::Result<()> {
    let address: SocketAddr =
        format!("{host}:{port}").parse().with_context(|| format!("{host} is no IP address"))?;
    TcpListener::bind(address).with_context(|| format!("listen at {address}"))?;
    Ok(())
}

/// Parses a size of memory, such as `512m` or `4g`, for the command line.
///
/// # Errors
///
/// It is no size, or 0.
pub fn memory_size(text: &str) -> Result<u64, &'static str> {
    parse_size(text).filter(|size| *size > 0).ok_or("give a size such as 512m or 4g")
}

/// Parses `HOST:PORT`, for the command line.
///
/// # Errors
///
/// One of the two is missing, or the port is no number of a port.
pub fn host_and_port(text: &str) -> Result<(String, u16), &'static str> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let parts = parts.filter(|(host, port)| !host.is_empty() && *port > 0);
    parts
        .map(|(host, port)| (host.to_owned(), port))
        .ok_or("give HOST:PORT, such as 127.0.0.1:50050")
}

/// Waits until standard input ends, which happens when the process at the other end of the pipe
/// does, in whatever way. Call it once.
pub async fn stdin_closed() {
    let (sender, closed) = oneshot::channel();
    // Not tokio's standard input: the runtime would wait for its read when the program ends.
    let spawned = thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = [0; 64];
        while io::stdin().read(&mut bytes).is_ok_and(|bytes| bytes > 0) {}
        let _ = sender.send(());
    });
    match spawned {
        Ok(_) => _ = closed.await,
        Err(error) => log::error!("standard input is not watched: {error}"),
    }
}

/// Registers each folder and each Parquet file of this folder as a table with its name.
///
/// # Errors
///
/// The folder cannot be read; a name is not UTF-8; a table has files that are not Parquet.
pub async fn register_tables(session: &SessionContext, folder: &Path) -> anyhow::Result<()> {
    for (name, path) in tables_in(folder)? {
        let registered = session.register_parquet(&name, &path, ParquetReadOptions::default());
        registered.await.with_context(|| format!("table {path}"))?;
    }
    Ok(())
}

/// Each folder and each Parquet file of the folder: the name of a table, and its path.
fn tables_in(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let about = || format!("read {}", folder.display());
    let mut tables = Vec::new();
    for entry in folder.read_dir().with_context(about)? {
        let entry = entry.with_context(about)?.path();
        let is_folder = entry.is_dir();
        if is_folder || entry.extension().is_some_and(|extension| extension == "parquet") {
            let path = entry.canonicalize();
            let path = path.with_context(|| format!("read {}", entry.display()))?;
            // Of a symbolic link, the name is the link's.
            let name = if is_folder { entry.file_name() } else { entry.file_stem() };
            let name = name.and_then(|name| name.to_str());
            let (name, text) = name.zip(path.to_str()).context("a name is not UTF-8")?;
            tables.push((name.to_owned(), text.to_owned()));
        }
    }
    tables.sort();
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_names_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("tables/orders.2024")).unwrap();
        std::fs::write(path("part-0.parquet"), "").unwrap();
        std::fs::write(path("tables/readme.md"), "").unwrap();
        std::fs::write(path("tables/nation.parquet"), "").unwrap();
        std::os::unix::fs::symlink(path("part-0.parquet"), path("tables/region.parquet")).unwrap();
        std::os::unix::fs::symlink(path("missing"), path("tables/unused")).unwrap();
        let tables = tables_in(&path("tables")).unwrap();
        let names: Vec<_> = tables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["nation", "orders.2024", "region"]);
        let target = path("part-0.parquet").canonicalize().unwrap();
        assert_eq!(tables[2].1, target.to_str().unwrap());
    }

    #[test]
    fn options_are_checked() {
        assert_eq!(memory_size("512m"), Ok(512 << 20));
        assert!(["", "0", "-1", "m"].iter().all(|text| memory_size(text).is_err()));
        assert_eq!(host_and_port("[::1]:50050"), Ok(("[::1]".to_owned(), 50050)));
        for text in ["127.0.0.1", "host:", ":50050", "host:0", "host:65536", "host:http"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_in_use_is_an_error_with_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = check_address("127.0.0.1", port).unwrap_err();
        assert_eq!(error.to_string(), format!("listen at 127.0.0.1:{port}"));
        assert!(check_address("localhost", port).is_err());
        drop(listener);
        check_address("127.0.0.1", 0).unwrap();
    }
}
