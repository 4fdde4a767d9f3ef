//! Random sequences of writes on this store and on `LocalFileSystem`, each in its own directory:
//! the same results, the same errors, the same files on disk afterwards.

use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    CopyMode, CopyOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RenameOptions, RenameTargetMode,
};
use super::{RELEASE, RingwayFileSystem};
use crate::common::{engines, is_staged, names, runtime, scratch, tree, until_unstaged};
use crate::process::in_child;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;

#[derive(Clone, Debug)]
enum Call {
    Put { path: Path, content: Vec<Vec<u8>>, create: bool },
    Upload { path: Path, parts: Vec<Vec<u8>>, complete: bool },
    Copy { from: Path, to: Path, create: bool },
    Rename { from: Path, to: Path, create: bool },
    Delete { paths: Vec<Path> },
    Head { path: Path },
    List { prefix: Option<Path>, offset: Option<Path> },
    ListWithDelimiter { prefix: Option<Path> },
}

/// A path of some that collide, as files and as directories, and some with unusual names.
fn path() -> impl Strategy<Value = Path> {
    let long = "n".repeat(253);
    let longer = "n".repeat(254);
    let too_long = format!("a/{}", "n".repeat(256));
    let names = [
        "",
        "a",
        "a/b",
        "a/b/c",
        "a//b/",
        "b",
        "b/a",
        "b/#1",
        "c#1",
        "c#1a",
        "c#",
        "c#1/d",
        "ü/文 件",
        "per%25cent/a%b",
        "sp ace/\"quoted\"",
        "..",
        "new\nline",
        &*long,
        &*longer,
        &*too_long,
    ];
    // As they are if possible, otherwise encoded.
    let path = |name: &str| Path::parse(name).unwrap_or_else(|_| Path::from(name));
    select(names.map(path).to_vec())
}

fn call() -> impl Strategy<Value = Call> {
    let content = || prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..4);
    let flag = any::<bool>;
    let some = || prop::option::of(path());
    prop_oneof![
        4 => (path(), content(), flag())
            .prop_map(|(path, content, create)| Call::Put { path, content, create }),
        2 => (path(), content(), prop::bool::weighted(0.8))
            .prop_map(|(path, parts, complete)| Call::Upload { path, parts, complete }),
        2 => (path(), path(), flag())
            .prop_map(|(from, to, create)| Call::Copy { from, to, create }),
        2 => (path(), path(), flag())
            .prop_map(|(from, to, create)| Call::Rename { from, to, create }),
        2 => prop::collection::btree_set(path(), 0..4)
            .prop_map(|paths| Call::Delete { paths: unrelated(paths) }),
        1 => path().prop_map(|path| Call::Head { path }),
        1 => (some(), some()).prop_map(|(prefix, offset)| Call::List { prefix, offset }),
        1 => some().prop_map(|prefix| Call::ListWithDelimiter { prefix }),
    ]
}

/// One path of each top-level directory. They are deleted at the same time, in any order, and the
/// first one may remove directories of the next one, whose error then is another.
fn unrelated(paths: BTreeSet<Path>) -> Vec<Path> {
    let first_part = |path: &Path| path.parts().next().map(|part| part.as_ref().to_owned());
    let by_directory: BTreeMap<_, _> =
        paths.into_iter().map(|path| (first_part(&path), path)).collect();
    by_directory.into_values().collect()
}

fn payload(buffers: &[Vec<u8>]) -> PutPayload {
    buffers.iter().map(|buffer| bytes::Bytes::from(buffer.clone())).collect()
}

/// Paths and lengths; times and ETags differ.
fn listed(mut objects: Vec<ObjectMeta>) -> String {
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    let line = |object: ObjectMeta| (object.location.to_string(), object.size);
    format!("{:?}", objects.into_iter().map(line).collect::<Vec<_>>())
}

async fn make(store: &dyn ObjectStore, dir: &FilePath, call: Call) -> Result<String, Error> {
    match call {
        Call::Put { path, content, create } => {
            let mode = if create { PutMode::Create } else { PutMode::Overwrite };
            let put = store.put_opts(&path, payload(&content), mode.into()).await?;
            let head = store.head(&path).await?;
            // What is returned is the ETag of the object that is there now.
            Ok(format!("{}", put.e_tag == head.e_tag && put.e_tag.is_some()))
        }
        Call::Upload { path, parts, complete } => {
            let mut upload = store.put_multipart(&path).await?;
            for part in parts.chunks(2) {
                upload.put_part(payload(part)).await?;
            }
            if complete {
                Ok(format!("{}", upload.complete().await?.e_tag.is_some()))
            } else {
                upload.abort().await.map(|()| String::new())
            }
        }
        Call::Copy { from, to, create } => {
            let mode = if create { CopyMode::Create } else { CopyMode::Overwrite };
            let copied = store.copy_opts(&from, &to, CopyOptions::new().with_mode(mode)).await;
            copied.map(|()| String::new())
        }
        Call::Rename { from, to, create } => {
            let mode = if create { RenameTargetMode::Create } else { RenameTargetMode::Overwrite };
            let options = RenameOptions::new().with_target_mode(mode);
            store.rename_opts(&from, &to, options).await.map(|()| String::new())
        }
        Call::Delete { paths } => {
            let paths = futures::stream::iter(paths.into_iter().map(Ok));
            // To its end: how many are deleted after an error depends on chance.
            let deleted: Vec<_> = store.delete_stream(Box::pin(paths)).collect().await;
            let line = |deleted: Result<Path, Error>| deleted.map_err(|e| described(&e, dir));
            Ok(format!("{:?}", deleted.into_iter().map(line).collect::<Vec<_>>()))
        }
        Call::Head { path } => store.head(&path).await.map(|meta| listed(vec![meta])),
        Call::List { prefix, offset } => {
            let prefix = prefix.as_ref();
            let stream = match offset {
                Some(offset) => store.list_with_offset(prefix, &offset),
                None => store.list(prefix),
            };
            stream.try_collect().await.map(listed)
        }
        Call::ListWithDelimiter { prefix } => {
            let mut found = store.list_with_delimiter(prefix.as_ref()).await?;
            found.common_prefixes.sort();
            Ok(format!("{:?} {}", found.common_prefixes, listed(found.objects)))
        }
    }
}

/// The variant and the text of an error, without what differs on purpose: the name of the store,
/// the directory, and the path in errors that have none in `LocalFileSystem`.
fn described(error: &Error, dir: &FilePath) -> String {
    let variant = format!("{error:?}");
    let variant = variant.split([' ', '{', '(']).next().unwrap();
    let mut text = error.to_string().replace("RingwayFileSystem", "LocalFileSystem");
    text = text.replace(dir.to_str().unwrap(), "DIR");
    for step in ["Unable to rename file", "Unable to copy data to file"] {
        if let Some((before, after)) = text.split_once(&format!("{step} DIR")) {
            let cause = after.split_once(": ").unwrap().1;
            text = format!("{before}{step}: {cause}");
        }
    }
    format!("{variant}: {text}")
}

/// Makes the calls on both stores, and compares.
async fn same(calls: Vec<Call>, engine: &ringway::Engine, automatic_cleanup: bool, fsync: bool) {
    let [ours, theirs] = [scratch(), scratch()];
    let store = RingwayFileSystem::new_with_prefix(ours.path()).unwrap();
    let store = store.with_engine(engine).with_fsync(fsync);
    let store = store.with_automatic_cleanup(automatic_cleanup);
    let local = LocalFileSystem::new_with_prefix(theirs.path()).unwrap();
    let local = local.with_automatic_cleanup(automatic_cleanup);
    for call in calls {
        if copies_as_link(&call, theirs.path()) {
            continue;
        }
        let our = make(&store, ours.path(), call.clone()).await;
        let their = make(&local, theirs.path(), call.clone()).await;
        let our = our.map_err(|error| described(&error, ours.path()));
        let their = their.map_err(|error| described(&error, theirs.path()));
        assert_eq!(our, their, "{call:?}");
        unlink(theirs.path());
        // `LocalFileSystem` leaves staged files after some failures. They would keep directories
        // from being removed.
        remove_staged(theirs.path());
        let their = tree(theirs.path());
        until_unstaged(ours.path()).await;
        let our = tree(ours.path());
        assert_eq!(our, their, "after {call:?}");
    }
}

/// Whether the result of this copy shows that `LocalFileSystem` makes links: the error for a
/// directory, and a target whose name is too long for a staged file.
fn copies_as_link(call: &Call, dir: &FilePath) -> bool {
    match call {
        Call::Copy { from, to, create } => {
            dir.join(from.as_ref()).is_dir()
                || *create && to.filename().is_some_and(|name| name.len() == 254)
        }
        Call::Rename { from, create: true, .. } => dir.join(from.as_ref()).is_dir(),
        _ => false,
    }
}

/// Gives each of several names of one file, which copies of `LocalFileSystem` are, a file.
fn unlink(dir: &FilePath) {
    for name in names(dir) {
        let path = dir.join(name);
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_file() && metadata.nlink() > 1 && !is_staged(path.to_str().unwrap()) {
            let other = dir.join("#other");
            std::fs::copy(&path, &other).unwrap();
            std::fs::rename(&other, &path).unwrap();
        }
    }
}

fn remove_staged(dir: &FilePath) {
    for name in names(dir).iter().filter(|name| is_staged(name)) {
        let _ = std::fs::remove_file(dir.join(name));
    }
}

fn check(cases: u32) {
    for engine in engines() {
        let runtime = runtime();
        let calls = prop::collection::vec(call(), 1..30);
        let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
        // With few syncs, which make no difference here and take long.
        let fsync = prop::bool::weighted(0.1);
        proptest!(config, |(calls in calls, cleanup: bool, fsync in fsync)| {
            runtime.block_on(same(calls, &engine, cleanup, fsync));
        });
    }
}

#[test]
fn results_errors_and_files() {
    check(20);
}

#[test]
fn results_errors_and_files_with_another_umask() {
    in_child(
        &format!("{RELEASE}::parity::results_errors_and_files_with_another_umask"),
        |_| {},
        || {
            // SAFETY: umask takes a number and cannot fail. No other thread creates files.
            unsafe { libc::umask(0o027) };
            check(5);
        },
    );
}

/// Objects of any length and of any number of buffers, written by one call or by several, with the
/// ETag that both stores give.
#[test]
fn objects_of_any_length() {
    const EDGE: usize = 64 << 10;
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
        runtime().block_on(async {
            for len in [0, 1, 4095, EDGE - 1, EDGE, EDGE + 1, 200_000] {
                for buffers in [1, 3, 1024, 1025, 3000] {
                    for fsync in [false, true] {
                        let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                        let chunks = content.chunks(len / buffers + 1).map(<[u8]>::to_vec);
                        // With an empty buffer after each other one.
                        let chunks: Vec<_> = chunks.flat_map(|chunk| [chunk, vec![]]).collect();
                        let path = Path::from("object");
                        let store = store.clone().with_fsync(fsync && buffers == 3);
                        let put = store.put(&path, payload(&chunks)).await.unwrap();
                        let found = std::fs::read(dir.path().join("object")).unwrap();
                        assert!(found == content, "{len} bytes in {buffers} buffers");
                        assert_eq!(local.head(&path).await.unwrap().e_tag, put.e_tag);
                        assert_eq!(store.head(&path).await.unwrap().e_tag, put.e_tag);
                    }
                }
            }
        });
    }
}
