//! Vortex's own reader of local files and this one, in turns. Prints the medians of the rounds:
//! operations per second, and CPU time (user and system, all threads) per operation.
//!
//! `cargo bench -p ringway-vortex -- [work] [MiB of the file] [rounds] [reader]`
//!
//! `take` reads four random rows of a column, four times at once; `scan` reads the whole file, of
//! which a MiB counts as an operation. `ranges` reads 20,000 random ranges of 16 KiB through the
//! trait, without decoding, 32 in flight; `blocks` the whole file in ranges of 4 MiB. Each with a
//! cold page cache and with the file in it. `reader` is a word in the name of the only reader to
//! use.

use futures::{StreamExt, TryStreamExt};
use ringway::Engine;
use ringway_measure::arguments::Arguments;
use ringway_measure::random::Random;
use ringway_measure::rounds::{Row, Turn, costs};
use ringway_measure::scratch;
use ringway_vortex::RingwayReadAt;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use vortex::VortexSessionDefault;
use vortex::array::arrays::{PrimitiveArray, StructArray};
use vortex::array::stream::ArrayStreamAdapter;
use vortex::array::{ArrayRef, ExecutionCtx, IntoArray};
use vortex::buffer::{Alignment, Buffer};
use vortex::expr::{root, select};
use vortex::file::{
    OpenOptionsSessionExt, VortexFile, WriteOptionsSessionExt, WriteStrategyBuilder,
};
use vortex::io::runtime::tokio::TokioRuntime;
use vortex::io::std_file::FileReadAt;
use vortex::io::{ReadAtRequest, VortexReadAt};
use vortex::scan::strict_sorted_buffer::StrictSortedBuffer;
use vortex::session::VortexSession;

/// The reader that the others are compared with.
const THEIRS: &str = "vortex";
const READERS: [&str; 4] = [THEIRS, "ringway", "ringway, larger pool", "ringway, direct"];
const WORKS: [&str; 4] = ["take", "scan", "ranges", "blocks"];
const CHUNK: u64 = 250_000;
const COLUMNS: u64 = 8;
const TAKES: u64 = 50;
const ROWS: u64 = 4;
const RANGES: u64 = 20_000;
const RANGE: usize = 16 << 10;
const BLOCK: usize = 4 << 20;

/// An engine whose pool keeps the memory of all reads that Vortex has in flight.
static LARGER_POOL: LazyLock<Engine> =
    LazyLock::new(|| Engine::builder().pool_bytes(256 << 20).build().unwrap());

fn main() {
    let arguments = Arguments::of_process();
    let (bytes, rounds) = (arguments.number(1, 1024) << 20, arguments.number(2, 5));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{bytes}.vortex"));
    if !path.exists() {
        let part = path.with_extension("part");
        runtime().block_on(write(&part, bytes / (CHUNK * COLUMNS * 8) * CHUNK));
        std::fs::rename(&part, &path).unwrap();
    }
    let file = File::open(&path).unwrap();
    println!("{} MiB", file.metadata().unwrap().len() >> 20);
    let is_wanted = |work: &&str| arguments.word(0).is_none_or(|only| only == *work);
    let is_chosen = |name: &&&str| arguments.word(3).is_none_or(|only| name.contains(only));
    for work in WORKS.into_iter().filter(is_wanted) {
        for state in ["cold", "cached"] {
            let readers = READERS.iter().filter(is_chosen).map(|name| (*name, *name)).collect();
            let title = format!("{work}, {state}");
            let row = Row::measure(title, rounds, readers, None, |name| {
                if state == "cold" {
                    scratch::drop_page_cache(&file)?;
                } else {
                    scratch::load_page_cache(&file, u64::MAX)?;
                }
                Ok(turn(&path, name, work))
            });
            println!("{}", row.markdown(&costs(THEIRS), &row.notes()));
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn turn(path: &Path, name: &str, work: &str) -> Turn {
    let runtime = runtime();
    let (_session, reader, file) = runtime.block_on(async {
        let (session, reader) = (VortexSession::default(), open(path, name).await);
        let file = session.open_options().open(Arc::clone(&reader)).await.unwrap();
        (session, reader, file)
    });
    Turn::measure_counted(|| runtime.block_on(operations(&reader, &file, work)))
}

/// Does the work, and returns the number of its operations.
async fn operations(reader: &Arc<dyn VortexReadAt>, file: &VortexFile, work: &str) -> u64 {
    let size = reader.size().await.unwrap();
    match work {
        "ranges" => {
            let last = size / RANGE as u64 - 1;
            let at = move |index| random(index) % last * RANGE as u64;
            read(reader, (0..RANGES).map(at), RANGE).await
        }
        "blocks" => read(reader, (0..size / BLOCK as u64).map(|at| at * BLOCK as u64), BLOCK).await,
        "take" => {
            let takes = (0..TAKES).map(|index| take(file, index));
            futures::stream::iter(takes).buffer_unordered(4).collect::<Vec<_>>().await;
            TAKES
        }
        _ => {
            let scan = file.scan().unwrap().into_array_stream().unwrap();
            let rows = scan.try_fold(0, |rows, part| async move { Ok(rows + part.len()) });
            assert_eq!(rows.await.unwrap() as u64, file.row_count());
            size >> 20
        }
    }
}

async fn open(path: &Path, name: &str) -> Arc<dyn VortexReadAt> {
    if name == "vortex" {
        return Arc::new(FileReadAt::open(path, TokioRuntime::current()).unwrap());
    }
    let mut options = ringway::fs::OpenOptions::new();
    options.read(true).direct(name.contains("direct"));
    if name.contains("pool") {
        options.engine(&LARGER_POOL);
    }
    let file = options.open(path).await.unwrap();
    Arc::new(RingwayReadAt::new(file, path.to_string_lossy()))
}

/// Reads ranges as Vortex does, in batches of what may be in flight.
async fn read(
    reader: &Arc<dyn VortexReadAt>,
    offsets: impl Iterator<Item = u64>,
    length: usize,
) -> u64 {
    let mut requests = offsets.map(|offset| ReadAtRequest::new(offset, length, Alignment::new(64)));
    let mut running = futures::stream::SelectAll::new();
    let (mut in_flight, mut done) = (0, 0);
    loop {
        let batch: Arc<[_]> = requests.by_ref().take(reader.concurrency() - in_flight).collect();
        if !batch.is_empty() {
            in_flight += batch.len();
            running.push(reader.read_ranges(batch));
        }
        let Some((_, result)) = running.next().await else { return done };
        assert_eq!(result.unwrap().len(), length);
        in_flight -= 1;
        done += 1;
    }
}

async fn take(file: &VortexFile, index: u64) {
    let rows = (0..ROWS).map(|at| random(index * ROWS + at) % file.row_count());
    let rows: BTreeSet<_> = rows.collect();
    let expected = rows.len();
    let rows = StrictSortedBuffer::try_new(Buffer::from_iter(rows)).unwrap();
    let column = select(["0"], root()).bind(file.dtype()).unwrap().optimize_recursive().unwrap();
    let scan = file.scan().unwrap().with_projection(column).with_row_indices(rows);
    let found: Vec<ArrayRef> = scan.into_array_stream().unwrap().try_collect().await.unwrap();
    assert_eq!(found.iter().map(|part| part.len()).sum::<usize>(), expected);
}

/// A table of numbers that is not compressed, so that decoding it costs little.
async fn write(path: &Path, rows: u64) {
    let chunk = |part: u64| {
        let columns = (0..COLUMNS).map(|column| {
            let rows = part * CHUNK..(part + 1) * CHUNK;
            let numbers = PrimitiveArray::from_iter(rows.map(|row| random(row * COLUMNS + column)));
            (column.to_string(), numbers.into_array())
        });
        StructArray::from_fields(&columns.collect::<Vec<_>>()).unwrap().into_array()
    };
    let session = VortexSession::default();
    let plain = |chunk: &ArrayRef, _: &mut ExecutionCtx| Ok(chunk.clone());
    let strategy = WriteStrategyBuilder::from_session(&session).with_compressor(plain).build();
    let dtype = chunk(0).dtype().clone();
    let chunks = futures::stream::iter((0..rows / CHUNK).map(move |part| Ok(chunk(part))));
    let mut file = tokio::fs::File::create(path).await.unwrap();
    let stream = ArrayStreamAdapter::new(dtype, chunks);
    session.write_options().with_strategy(strategy).write(&mut file, stream).await.unwrap();
    file.sync_all().await.unwrap();
}

/// A number that looks random.
fn random(seed: u64) -> u64 {
    Random::new(seed).draw()
}
