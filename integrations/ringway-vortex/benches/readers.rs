//! Vortex's own reader of local files and this one, in turns. Prints the medians of the rounds:
//! wall time and CPU time (user and system, all threads) per operation.
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
use ringway_vortex::RingwayReadAt;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
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

const READERS: [&str; 4] = ["vortex", "ringway", "ringway, larger pool", "ringway, direct"];
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
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, default: u64| word(at).map_or(default, |word| word.parse().unwrap());
    let (bytes, rounds) = (number(1, 1024) << 20, number(2, 5));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{bytes}.vortex"));
    if !path.exists() {
        let part = path.with_extension("part");
        runtime().block_on(write(&part, bytes / (CHUNK * COLUMNS * 8) * CHUNK));
        std::fs::rename(&part, &path).unwrap();
    }
    println!("{} MiB", std::fs::metadata(&path).unwrap().len() >> 20);
    for work in WORKS.into_iter().filter(|work| word(0).is_none_or(|only| only == *work)) {
        for cold in [true, false] {
            println!("{work}, {}, {rounds} rounds", if cold { "cold" } else { "cached" });
            let readers =
                READERS.iter().filter(|name| word(3).is_none_or(|only| name.contains(only)));
            let readers: Vec<_> = readers.collect();
            let mut figures = vec![Vec::new(); readers.len()];
            for _ in 0..rounds {
                for (name, figures) in readers.iter().zip(&mut figures) {
                    prepare(&path, cold);
                    figures.push(turn(&path, name, work));
                }
            }
            let median = |figures: &[[f64; 2]], of: usize| {
                let mut all: Vec<_> = figures.iter().map(|figures| figures[of]).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let base = [median(&figures[0], 0), median(&figures[0], 1)];
            for (name, figures) in readers.iter().zip(&figures) {
                let (wall, cpu) = (median(figures, 0), median(figures, 1));
                println!(
                    "  {name:24} {wall:10.2} us {:5.2} times as fast   CPU {cpu:10.2} us {:5.2}",
                    base[0] / wall,
                    cpu / base[1]
                );
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Drops the file from the page cache, or brings it there.
fn prepare(path: &Path, cold: bool) {
    let mut file = File::open(path).unwrap();
    if cold {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    } else {
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
    }
}

/// Microseconds of wall and of CPU time per operation.
fn turn(path: &Path, name: &str, work: &str) -> [f64; 2] {
    let runtime = runtime();
    runtime.block_on(async {
        let session = VortexSession::default();
        let reader = open(path, name).await;
        let size = reader.size().await.unwrap();
        let file = session.open_options().open(Arc::clone(&reader)).await.unwrap();
        let (begun, before) = (Instant::now(), cpu());
        let operations = match work {
            "ranges" => {
                let last = size / RANGE as u64 - 1;
                let at = move |index| random(index) % last * RANGE as u64;
                read(&reader, (0..RANGES).map(at), RANGE).await
            }
            "blocks" => {
                read(&reader, (0..size / BLOCK as u64).map(|at| at * BLOCK as u64), BLOCK).await
            }
            "take" => {
                let takes = (0..TAKES).map(|index| take(&file, index));
                futures::stream::iter(takes).buffer_unordered(4).collect::<Vec<_>>().await;
                TAKES
            }
            _ => {
                let scan = file.scan().unwrap().into_array_stream().unwrap();
                let rows = scan.try_fold(0, |rows, part| async move { Ok(rows + part.len()) });
                assert_eq!(rows.await.unwrap() as u64, file.row_count());
                size >> 20
            }
        };
        let each = |seconds: f64| seconds * 1e6 / operations as f64;
        [each(begun.elapsed().as_secs_f64()), each(cpu() - before)]
    })
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
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// CPU seconds of the process, all threads: user and system.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
