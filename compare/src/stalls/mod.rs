//! How long a runtime's thread stands still while another thread syncs all the time, on a device
//! whose writes are slow. Every contestant does the same operations on one thread.

mod contestants;
mod measure;

use anyhow::{Context, ensure};
use contestants::Contestant;
use measure::{LATE, LONG, LONGEST, OPERATIONS, POLLS, PREEMPTED, Run, WAITED, WAITED_LONG};
use ringway_measure::rounds::{self, Column, Row, Turn};
use ringway_measure::units;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Blocks of the file that is read and overwritten.
const BLOCKS: u64 = 256;
const BLOCK: usize = 4096;

/// Measures how long a runtime's thread stands still next to a program that syncs all the time.
///
/// The folder should be on an ext4 file system whose device has slow writes; see compare/README.md.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The folder for the files.
    folder: PathBuf,

    /// The time of each turn, such as 10s.
    #[arg(long, default_value = "10s", value_parser = duration)]
    time: Duration,

    /// Tasks that operate at the same time.
    #[arg(long, default_value_t = 4)]
    tasks: usize,

    /// Measure only these operations, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cached,direct,overwrite")]
    operations: Vec<Operation>,
}

/// What the tasks do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Operation {
    /// Read a block of the page cache, of a file that another thread writes to now and then.
    Cached,
    /// Read a block with direct I/O, of a file that another thread writes to now and then.
    Direct,
    /// Overwrite a block with direct I/O.
    Overwrite,
}

impl Operation {
    const fn text(self) -> &'static str {
        match self {
            Self::Cached => "cached read",
            Self::Direct => "direct read",
            Self::Overwrite => "direct overwrite",
        }
    }
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    units::parse_duration(text, "s").context("expected a time such as 10s or 300ms")
}

/// Measures a row for each operation. Without names, all contestants take part.
pub fn measure(options: &Options, names: &[String]) -> Vec<Row> {
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    let chosen = || contestants::ALL.iter().filter(|contestant| is_chosen(contestant.name));
    let row = |operation: &Operation| {
        let contestants = chosen().map(|contestant| (contestant.name, contestant)).collect();
        let title = operation.text().to_owned();
        Row::measure(title, 1, contestants, None, |contestant| {
            turn(options, *operation, contestant)
        })
    };
    options.operations.iter().map(row).collect()
}

/// The table of all rows, and who was left out of them.
pub fn table(rows: &[Row]) -> String {
    let count = |name| Column::median(name, name, |count| count.to_string());
    let waited = Column::new("waited", |_, entry| {
        let both = [WAITED_LONG, WAITED].map(|name| entry.median(name, milliseconds));
        both.join(" / ")
    });
    let time = |name| Column::median(name, name, milliseconds);
    let columns = [
        count(OPERATIONS),
        count(POLLS),
        time(LONG),
        time(LONGEST),
        waited,
        time(PREEMPTED),
        time(LATE),
    ];
    let table = rounds::table(rows, &["operation", "contestant"], &columns).markdown();
    let note = |row: &Row, note: String| format!("- {}, {note}\n", row.title);
    let notes =
        rows.iter().flat_map(|row| row.notes().into_iter().map(move |text| note(row, text)));
    table + &notes.collect::<String>()
}

fn milliseconds(time: f64) -> String {
    format!("{time:.2} ms")
}

/// One contestant and one operation.
fn turn(options: &Options, operation: Operation, contestant: &Contestant) -> anyhow::Result<Turn> {
    let file = options.folder.join("stalls.data");
    make(&file)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| sync_forever(&options.folder.join("stalls.synced"), &over));
        if operation != Operation::Overwrite {
            scope.spawn(|| write_now_and_then(&file, &over));
        }
        let run = Run::new(file.clone(), operation, options.tasks, options.time);
        let turn = run.and_then(|run| (contestant.run)(&run));
        over.store(true, Ordering::Relaxed);
        turn
    })
}

/// Makes the file, unless it is there.
fn make(file: &Path) -> anyhow::Result<()> {
    let len = BLOCKS * BLOCK as u64;
    if file.metadata().is_ok_and(|metadata| metadata.len() == len) {
        std::fs::read(file)?; // Cached reads find it in the page cache.
        return Ok(());
    }
    std::fs::write(file, vec![1; len as usize])
        .and_then(|()| File::open(file)?.sync_all())
        .with_context(|| format!("cannot make {}", file.display()))
}

/// Changes the size of a file and syncs it, so that a journal commits all the time.
fn sync_forever(file: &Path, over: &AtomicBool) {
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(file);
    for size in (1..8).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
        let synced = open().and_then(|file| {
            file.set_len(size * BLOCK as u64)?;
            file.sync_all()
        });
        if let Err(error) = synced {
            eprintln!("compare: the syncs have ended: {error}");
            return;
        }
    }
}

/// Writes to a file, so that the next read of it has to change its access time.
fn write_now_and_then(file: &Path, over: &AtomicBool) {
    use std::os::unix::fs::FileExt;
    let Ok(file) = OpenOptions::new().write(true).open(file) else { return };
    while !over.load(Ordering::Relaxed) {
        let _ = file.write_all_at(&[1; 16], 0);
        thread::sleep(Duration::from_millis(50));
    }
}

/// Errors: a short transfer.
fn whole(transferred: usize) -> anyhow::Result<()> {
    ensure!(transferred == BLOCK, "{transferred} bytes of {BLOCK}");
    Ok(())
}
