//! The same reads through `LocalFileSystem` and through `RingwayFileSystem` have the same results,
//! metadata and errors.

use super::RELEASE;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    Error, GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, Result,
};
use super::ringway_store::RingwayFileSystem;
use crate::common::{current_thread, engines, fifo, pattern, scratch, write};
use crate::process::{become_ordinary, in_child};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::TryStreamExt;
use proptest::prelude::*;
use ringway_object_store::ReadAhead;
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What a call returned.
#[derive(Debug, PartialEq)]
enum Outcome {
    Object {
        meta: ObjectMeta,
        range: Range<u64>,
        attributes: usize,
        bytes: Vec<u8>,
    },
    Ranges(Vec<Vec<u8>>),
    /// The variant, and the texts of the error and its sources, without the store's name.
    Failed(String, Vec<String>),
}

fn failed(error: Error) -> Outcome {
    let variant = format!("{error:?}");
    let variant = variant.split([' ', '(']).next().unwrap_or_default().to_owned();
    let mut texts = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        texts.push(error.to_string().replace("LocalFileSystem", "RingwayFileSystem"));
        cause = error.source();
    }
    Outcome::Failed(variant, texts)
}

/// A read of an object.
#[derive(Clone, Debug)]
enum Read {
    /// `get_opts`, then `bytes`, or the stream.
    Get(GetOptions, bool),
    Ranges(Vec<Range<u64>>),
}

impl Read {
    async fn run(&self, store: &dyn ObjectStore, location: &Path) -> Outcome {
        match self {
            Self::Get(options, streams) => {
                get(store, location, options.clone(), *streams).await.unwrap_or_else(failed)
            }
            Self::Ranges(ranges) => match store.get_ranges(location, ranges).await {
                Ok(parts) => Outcome::Ranges(parts.iter().map(|part| part.to_vec()).collect()),
                Err(error) => failed(error),
            },
        }
    }
}

async fn get(
    store: &dyn ObjectStore,
    location: &Path,
    options: GetOptions,
    streams: bool,
) -> Result<Outcome> {
    let got = store.get_opts(location, options).await?;
    let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.len());
    let bytes = if streams {
        got.into_stream().try_collect::<Vec<_>>().await?.concat()
    } else {
        got.bytes().await?.to_vec()
    };
    Ok(Outcome::Object { meta, range, attributes, bytes })
}

/// One directory, and both stores over it.
struct Stores {
    dir: TempDir,
    local: LocalFileSystem,
    /// On each backend, buffered and direct, with short and with long chunks.
    ours: Vec<(String, RingwayFileSystem)>,
    runtime: Runtime,
}

/// Lengths of the files that have their length as a name.
const LENGTHS: [usize; 6] = [0, 1, 10, 4096, 4097, 300_000];

impl Stores {
    fn new() -> Self {
        Self::over(scratch())
    }

    fn over(dir: TempDir) -> Self {
        let ours = engines(|builder| builder)
            .into_iter()
            .flat_map(|engine| [(engine.clone(), false), (engine, true)])
            .map(|(engine, direct)| {
                let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
                let store = store.with_engine(&engine).with_direct(direct);
                let read_ahead = ReadAhead::default().one_chunk(5000).chunk(5000).depth(2);
                let store = if direct { store.with_read_ahead(read_ahead) } else { store };
                (format!("{}, direct: {direct}", engine.backend()), store)
            })
            .collect();
        for len in LENGTHS {
            write(&dir.path().join(len.to_string()), &pattern(len));
        }
        let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
        Self { dir, local, ours, runtime: current_thread() }
    }

    /// Reads through all stores, compares, and returns the result.
    fn compare(&self, read: &Read, location: &Path) -> Outcome {
        let wanted = self.runtime.block_on(read.run(&self.local, location));
        for (name, store) in &self.ours {
            let found = self.runtime.block_on(read.run(store, location));
            assert_eq!(found, wanted, "{read:?} of {location} on {name}");
        }
        wanted
    }
}

fn whole() -> Read {
    Read::Get(GetOptions::new(), false)
}

fn ranged(range: impl Into<GetRange>) -> Read {
    Read::Get(GetOptions::new().with_range(Some(range)), false)
}

/// All reads that say something about a name rather than about content.
fn reads_of_names() -> Vec<Read> {
    vec![
        whole(),
        Read::Get(GetOptions::new(), true),
        Read::Get(GetOptions::new().with_head(true), false),
        ranged(0..1),
        ranged(GetRange::Bounded(Range { start: 5, end: 3 })),
        Read::Ranges(vec![]),
        Read::Ranges(Vec::from([0..0])),
        Read::Ranges(vec![0..1, 3..5]),
    ]
}

#[test]
fn names() {
    let stores = Stores::new();
    let dir = stores.dir.path();
    std::fs::create_dir_all(dir.join("folder/inner#1")).unwrap();
    write(&dir.join("folder/inner#1/file"), b"in a folder with a number");
    for name in ["with blank", "100%", "ünïcode", "a#b", "#", "a#", "a#1x", "tilde~", "q?&=+"] {
        write(&dir.join(Path::from(name).as_ref()), name.as_bytes());
    }
    symlink("10", dir.join("link")).unwrap();
    symlink("folder", dir.join("link to folder")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    symlink("/dev/null", dir.join("null")).unwrap();
    symlink("/proc/self/cmdline", dir.join("proc")).unwrap();
    write(&dir.join("staged#1"), b"an upload");
    let long = "n".repeat(300);
    let names = [
        "10",
        "with blank",
        "100%",
        "ünïcode",
        "a#b",
        "#",
        "a#",
        "a#1x",
        "tilde~",
        "q?&=+",
        "folder/inner#1/file",
        "link",
        "link to folder",
        "link to folder/inner#1/file",
        "dangling",
        "loop",
        "null",
        "proc",
        "staged#1",
        "other#22",
        "folder",
        "folder/inner#1",
        "folder/missing",
        "missing",
        "missing/missing",
        "10/below a file",
        "",
        &long,
    ];
    for name in names {
        for read in reads_of_names() {
            stores.compare(&read, &Path::from(name));
        }
    }
    // What the comparison is worth: these are not all the same error.
    let variant = |name: &str| match stores.compare(&whole(), &Path::from(name)) {
        Outcome::Failed(variant, texts) => (variant, texts.concat()),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(variant("missing").0, "NotFound");
    let (directory, text) = variant("folder");
    assert!(directory == "NotFound" && text.contains("is directory"), "{text}");
    let (loops, text) = variant("loop");
    assert!(loops == "Generic" && text.contains("loop: "), "{text}");
}

#[test]
fn without_permission() {
    in_child(
        &format!("{RELEASE}::parity::without_permission"),
        |_| {},
        || {
            become_ordinary();
            let stores = Stores::over(tempfile::tempdir().unwrap());
            let dir = stores.dir.path();
            std::fs::create_dir(dir.join("closed")).unwrap();
            write(&dir.join("closed/file"), b"text");
            let mode = std::fs::Permissions::from_mode;
            std::fs::set_permissions(dir.join("10"), mode(0o000)).unwrap();
            std::fs::set_permissions(dir.join("closed"), mode(0o000)).unwrap();
            for name in ["10", "closed/file", "closed/missing"] {
                for read in reads_of_names() {
                    let outcome = stores.compare(&read, &Path::from(name));
                    let Outcome::Failed(_, texts) = outcome else { panic!("{outcome:?}") };
                    assert!(texts.concat().contains("Permission denied"), "{texts:?}");
                }
            }
            std::fs::set_permissions(dir.join("closed"), mode(0o700)).unwrap();
        },
    );
}

/// Modification times before 1970, with parts of a microsecond, and far in the future.
#[test]
fn metadata_of_any_time() {
    let stores = Stores::new();
    let path = stores.dir.path().join("10");
    let epoch = SystemTime::UNIX_EPOCH;
    let nanoseconds = Duration::from_nanos(1_500_000_000_123_456_789);
    for time in [epoch, epoch + nanoseconds, epoch - nanoseconds / 3, epoch - Duration::new(1, 5)] {
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let Outcome::Object { meta, .. } = stores.compare(&whole(), &"10".into()) else {
            panic!("the file can be read");
        };
        assert_eq!(meta.last_modified, DateTime::<Utc>::from(time));
    }
}

/// `LocalFileSystem` panics for these.
#[test]
fn impossible_ranges_are_errors() {
    let stores = Stores::new();
    for (name, store) in &stores.ours {
        let error = |range: Range<u64>| {
            let ranges = [0..1, range];
            let found = stores.runtime.block_on(store.get_ranges(&"10".into(), &ranges));
            match failed(found.expect_err(name)) {
                Outcome::Failed(variant, texts) => (variant, texts.last().unwrap().clone()),
                other => panic!("{other:?}"),
            }
        };
        let generic = |text: &str| ("Generic".to_owned(), text.to_owned());
        let backwards = Range { start: 7, end: 3 };
        assert_eq!(error(backwards), generic("Range started at 7 and ended at 3"));
        assert_eq!(error(0..u64::MAX), generic("Invalid argument (os error 22)"));
        let (variant, text) = error(3..1 << 62);
        assert!(variant == "Generic" && text.ends_with("expected: 7, actual: 7"), "{text}");
    }
}

#[test]
fn conditions() {
    let stores = Stores::new();
    let location = Path::from("10");
    let meta = stores.runtime.block_on(stores.local.head(&location)).unwrap();
    let tag = meta.e_tag.unwrap();
    let tags = [tag.clone(), format!("\"other\", {tag}"), "*".into(), "other".into(), "".into()];
    let day = TimeDelta::days(1);
    let times = [meta.last_modified, meta.last_modified - day, meta.last_modified + day];
    let mut failures = 0;
    let mut compare = |options: GetOptions| {
        let outcome = stores.compare(&Read::Get(options, false), &location);
        failures += usize::from(matches!(outcome, Outcome::Failed(..)));
    };
    for tag in &tags {
        compare(GetOptions::new().with_if_match(Some(tag)));
        compare(GetOptions::new().with_if_none_match(Some(tag)));
        compare(GetOptions::new().with_version(Some(tag)));
        for time in times {
            compare(GetOptions::new().with_if_match(Some(tag)).with_if_modified_since(Some(time)));
            compare(
                GetOptions::new()
                    .with_if_none_match(Some(tag))
                    .with_if_unmodified_since(Some(time)),
            );
            // The condition fails before the range.
            let options = GetOptions::new().with_if_match(Some(tag));
            compare(options.with_range(Some(GetRange::Offset(1 << 40))));
        }
    }
    for time in times {
        compare(GetOptions::new().with_if_modified_since(Some(time)));
        compare(GetOptions::new().with_if_unmodified_since(Some(time)));
    }
    assert!(failures > 20, "{failures}");
}

/// A file that is replaced or removed after `get` is read as it was. One that becomes shorter is an
/// error.
#[test]
fn files_that_change_after_get() {
    let stores = Stores::new();
    let path = stores.dir.path().join("changing");
    let location = Path::from("changing");
    let after = |store: &dyn ObjectStore, range: Range<u64>, change: &dyn Fn()| {
        write(&path, &pattern(20_000));
        stores.runtime.block_on(async {
            let options = GetOptions::new().with_range(Some(range));
            let got = store.get_opts(&location, options).await.unwrap();
            change();
            match got.bytes().await {
                Ok(bytes) => Outcome::Ranges(vec![bytes.to_vec()]),
                Err(error) => failed(error),
            }
        })
    };
    let shorten = |len| {
        let path = path.clone();
        move || std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap()
    };
    let remove = || std::fs::remove_file(&path).unwrap();
    let replace = || {
        write(&path.with_extension("new"), b"other");
        std::fs::rename(path.with_extension("new"), &path).unwrap();
    };
    let (short, shorter, empty) = (shorten(12_000), shorten(3), shorten(0));
    let changes: [&dyn Fn(); 5] = [&remove, &replace, &short, &shorter, &empty];
    for (number, change) in changes.into_iter().enumerate() {
        for range in [0..20_000, 3..9, 100..13_000, 12_000..12_001] {
            let wanted = after(&stores.local, range.clone(), change);
            for (name, store) in &stores.ours {
                let found = after(store, range.clone(), change);
                assert_eq!(found, wanted, "change {number}, {range:?}, {name}");
            }
        }
    }
}

/// `LocalFileSystem` waits for another program to open the FIFO for writing.
#[test]
fn a_fifo_is_an_empty_object() {
    let stores = Stores::new();
    fifo(&stores.dir.path().join("fifo"));
    for (name, store) in &stores.ours {
        stores.runtime.block_on(async {
            let got = store.get(&"fifo".into()).await.unwrap();
            assert_eq!((got.meta.size, got.range.clone()), (0, 0..0), "{name}");
            assert!(matches!(got.payload, GetResultPayload::Stream(_)));
            assert!(got.bytes().await.unwrap().is_empty());
            let error = store.get_ranges(&"fifo".into(), &[0..1]).await.unwrap_err();
            assert!(error.to_string().contains("fifo: Illegal seek"), "{name}: {error}");
        });
    }
}

/// The option for programs that collect streams: long objects come as files, which are read like
/// those of `LocalFileSystem`, without alignment even if the store uses direct I/O.
#[test]
fn long_objects_as_files() {
    let mut stores = Stores::new();
    for (_, store) in &mut stores.ours {
        let read_ahead = ReadAhead::default().one_chunk(4096);
        *store = store.clone().with_file_payload(true).with_read_ahead(read_ahead);
    }
    for len in LENGTHS {
        for streams in [false, true] {
            let location = Path::from(len.to_string());
            stores.compare(&Read::Get(GetOptions::new(), streams), &location);
            stores.compare(&ranged(1..len.max(2) as u64), &location);
            for (name, store) in &stores.ours {
                let got = stores.runtime.block_on(store.get(&location)).unwrap();
                let is_file = matches!(got.payload, GetResultPayload::File(..));
                assert_eq!(is_file, len > 4096, "{len} bytes on {name}");
            }
        }
    }
}

fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..20, 4090u64..4105, 0u64..310_000, Just(300_000), Just(1 << 40)]
}

fn bounded() -> impl Strategy<Value = Range<u64>> {
    (offsets(), prop_oneof![0u64..20, 0u64..9000, 0u64..310_000])
        .prop_map(|(start, len)| start..start + len)
}

fn reads() -> impl Strategy<Value = Read> {
    let range = prop_oneof![
        bounded().prop_map(GetRange::Bounded),
        (offsets(), offsets()).prop_map(|(start, end)| GetRange::Bounded(start..end)),
        offsets().prop_map(GetRange::Offset),
        offsets().prop_map(GetRange::Suffix),
    ];
    let get = (proptest::option::of(range), any::<bool>(), any::<bool>());
    let get = get.prop_map(|(range, head, streams)| {
        Read::Get(GetOptions { range, head, ..GetOptions::default() }, streams)
    });
    prop_oneof![get, proptest::collection::vec(bounded(), 0..12).prop_map(Read::Ranges)]
}

#[test]
fn any_reads() {
    let stores = Stores::new();
    let operations = (0..LENGTHS.len(), reads());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let compared = runner.run(&operations, |(file, read)| {
        stores.compare(&read, &Path::from(LENGTHS[file].to_string()));
        Ok(())
    });
    compared.unwrap();
}
