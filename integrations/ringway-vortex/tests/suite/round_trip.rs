//! Vortex files, written by Vortex, and read by Vortex with ringway's reader and with its own.

use crate::support::{engines, readers};
use futures::StreamExt;
use ringway::Engine;
use ringway_vortex::{OpenWithRingway, RingwayFileSystem};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use vortex::VortexSessionDefault;
use vortex::array::arrays::{ChunkedArray, PrimitiveArray, StructArray, VarBinViewArray};
use vortex::array::stream::ArrayStreamExt;
use vortex::array::{ArrayRef, IntoArray, VortexSessionExecute};
use vortex::buffer::Buffer;
use vortex::expr::{Expression, and, col, gt, lit, lt, root, select};
use vortex::file::multi::MultiFileDataSource;
use vortex::file::{OpenOptionsSessionExt, VortexFile, WriteOptionsSessionExt};
use vortex::scan::strict_sorted_buffer::StrictSortedBuffer;
use vortex::scan::{DataSource, ScanRequest};
use vortex::session::VortexSession;

const ROWS: u64 = 400_000;

/// Numbers that look random.
fn mixed(row: u64) -> u64 {
    let mixed = row.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn table() -> ArrayRef {
    let chunk = |rows: std::ops::Range<u64>| {
        let names =
            VarBinViewArray::from_iter_str(rows.clone().map(|row| format!("{:x}", mixed(row))));
        StructArray::from_fields(&[
            ("id", PrimitiveArray::from_iter(rows.clone()).into_array()),
            ("value", PrimitiveArray::from_iter(rows.map(mixed)).into_array()),
            ("name", names.into_array()),
        ])
        .unwrap()
        .into_array()
    };
    ChunkedArray::from_iter((0..4).map(|part| chunk(part * ROWS / 4..(part + 1) * ROWS / 4)))
        .into_array()
}

async fn write(session: &VortexSession, path: &Path, content: &ArrayRef) {
    let mut file = tokio::fs::File::create(path).await.unwrap();
    session.write_options().write(&mut file, content.to_array_stream()).await.unwrap();
    tokio::io::AsyncWriteExt::shutdown(&mut file).await.unwrap();
}

/// What a program reads of a file: all of it, a part of the columns and rows, rows by their number.
async fn scans(file: &VortexFile) -> Vec<ArrayRef> {
    let filter = and(gt(col("id"), lit(50_000u64)), lt(col("value"), lit(u64::MAX / 9)));
    let filter = filter.bind(file.dtype()).unwrap().optimize_recursive().unwrap();
    let names = select(["name"], root()).bind(file.dtype()).unwrap().optimize_recursive().unwrap();
    let rows = (0..2000).map(|row| row * 199 + mixed(row) % 100).collect::<Buffer<u64>>();
    let scan = || file.scan().unwrap();
    let scans = [
        scan(),
        scan().with_filter(filter).with_projection(names),
        scan().with_row_indices(StrictSortedBuffer::try_new(rows).unwrap()),
    ];
    let mut found = Vec::new();
    for scan in scans {
        found.push(scan.into_array_stream().unwrap().read_all().await.unwrap());
    }
    found
}

/// How many rows a scan of all partitions finds.
async fn rows(source: &dyn DataSource, filter: Option<Expression>) -> u64 {
    let scan = source.scan(ScanRequest { filter, ..Default::default() }).await.unwrap();
    let mut partitions = scan.partitions();
    let mut rows = 0;
    while let Some(partition) = partitions.next().await {
        let mut arrays = partition.unwrap().execute().unwrap();
        while let Some(array) = arrays.next().await {
            rows += array.unwrap().len() as u64;
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_readers_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.vortex");
    let session = VortexSession::default();
    write(&session, &path, &table()).await;
    assert!(std::fs::metadata(&path).unwrap().len() > 5_000_000);
    let theirs = scans(&session.open_options().open_path(&path).await.unwrap()).await;
    assert_eq!(theirs[0].len() as u64, ROWS);
    assert!(!theirs[1].is_empty() && theirs[1].len() < theirs[0].len());
    assert_eq!(theirs[2].len(), 2000);
    let mut files = vec![session.open_options().open_path_with_ringway(&path).await.unwrap()];
    for reader in readers(&path).await {
        files.push(session.open_options().open(Arc::new(reader)).await.unwrap());
    }
    for file in files {
        for (ours, theirs) in scans(&file).await.iter().zip(&theirs) {
            assert_eq!((ours.dtype(), ours.len()), (theirs.dtype(), theirs.len()));
            let mut context = session.create_execution_ctx();
            let mut row = |of: &ArrayRef, at| of.execute_scalar(at, &mut context).unwrap();
            for at in (0..ours.len()).step_by(1 + ours.len() / 2000) {
                assert_eq!(row(ours, at), row(theirs, at), "row {at}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_many_files_finds_them_by_glob() {
    let dir = tempfile::tempdir().unwrap();
    let session = VortexSession::default();
    write(&session, &dir.path().join("b.vortex"), &table()).await;
    std::os::unix::fs::symlink(dir.path().join("b.vortex"), dir.path().join("a.vortex")).unwrap();
    for engine in engines() {
        let all = Arc::new(RingwayFileSystem::new("/", &engine));
        // The first file, which is opened here, is the link.
        let source = MultiFileDataSource::new(session.clone())
            .with_glob(format!("{}/*.vortex", dir.path().display()), Some(all));
        let source = source.build().await.unwrap();
        assert_eq!(source.dtype(), table().dtype());
        assert_eq!(rows(&source, None).await, 2 * ROWS);
        let filter = lt(col("id"), lit(50_000u64));
        assert_eq!(rows(&source, Some(filter)).await, 100_000);
    }
}

/// The session keeps footers: that of one file is not taken for that of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_whose_roots_are_not_utf8_keep_their_footers_apart() {
    let dir = tempfile::tempdir().unwrap();
    let session = VortexSession::default();
    let engine = Engine::builder().build().unwrap();
    for (name, first) in [(b"\xff", 0u64), (b"\xfe", 1_000_000)] {
        let root = dir.path().join(OsStr::from_bytes(name));
        std::fs::create_dir(&root).unwrap();
        let ids = PrimitiveArray::from_iter(first..first + 1000).into_array();
        let content = StructArray::from_fields(&[("id", ids)]).unwrap().into_array();
        write(&session, &root.join("a.vortex"), &content).await;
        let fs = Arc::new(RingwayFileSystem::new(&root, &engine));
        let source = MultiFileDataSource::new(session.clone()).with_glob("*.vortex", Some(fs));
        let filter = gt(col("id"), lit(first + 499));
        assert_eq!(rows(&source.build().await.unwrap(), Some(filter)).await, 500);
    }
}
