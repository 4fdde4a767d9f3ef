//! A store that leaves no pages in the page cache: every way to write and to read an object, and a
//! file system that refuses it.

use super::RingwayFileSystem;
use super::object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use crate::common::{engines, runtime, scratch_on_disk, until};
use ringway::fs::Caching;
use std::os::fd::AsRawFd;
use std::path::Path;

const PAGE: usize = 4096;
const LEN: usize = 96 * PAGE;

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / 1000 + at) as u8).collect()
}

/// How many pages of the file are in the page cache.
fn cached(path: &Path) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: a new mapping that nothing else uses and nobody reads; there is a byte for each of
    // its pages.
    unsafe {
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let first = libc::mmap(none, len, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(first, libc::MAP_FAILED);
        assert_eq!(libc::mincore(first, len, pages.as_mut_ptr()), 0);
        libc::munmap(first, len);
    }
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// Writes have dropped their pages once the device has them.
async fn leaves_none(what: &str, path: &Path, drops: bool) {
    if drops {
        std::fs::File::open(path).unwrap().sync_all().unwrap();
        until(what, || cached(path) == 0).await;
    }
}

async fn use_all(store: &RingwayFileSystem, dir: &Path, drops: bool) {
    store.put(&"whole".into(), content().into()).await.unwrap();
    leaves_none("put", &dir.join("whole"), drops).await;
    store.put(&"small".into(), PutPayload::from(vec![1; PAGE])).await.unwrap();
    leaves_none("put of a small object", &dir.join("small"), drops).await;
    let mut upload = store.put_multipart(&"parts".into()).await.unwrap();
    for part in content().chunks(LEN / 3) {
        upload.put_part(part.to_vec().into()).await.unwrap();
    }
    upload.complete().await.unwrap();
    leaves_none("upload", &dir.join("parts"), drops).await;
    store.copy(&"whole".into(), &"copy".into()).await.unwrap();
    leaves_none("copy", &dir.join("copy"), drops).await;
    leaves_none("the source of a copy", &dir.join("whole"), drops).await;
    for name in ["whole", "parts", "copy"] {
        let got = store.get_range(&name.into(), 0..LEN as u64).await.unwrap();
        assert!(got == content(), "{name}");
        leaves_none("get_range", &dir.join(name), drops).await;
        let got = store.get(&name.into()).await.unwrap();
        assert!(got.bytes().await.unwrap() == content(), "{name}");
        leaves_none("get", &dir.join(name), drops).await;
    }
    let small = store.get(&"small".into()).await.unwrap();
    assert_eq!(small.bytes().await.unwrap(), [1; PAGE][..]);
}

#[test]
fn no_pages_are_left() {
    for engine in engines() {
        for fsync in [false, true] {
            let dir = scratch_on_disk();
            let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
            let store = store.with_engine(&engine).with_fsync(fsync).with_dont_cache(true);
            runtime().block_on(async {
                store.put(&"first".into(), content().into()).await.unwrap();
                let (file, _) = store.open(&"first".into()).await.unwrap();
                file.read(0..1).await.unwrap();
                let drops = file.caching() == Caching::Dropped;
                use_all(&store, dir.path(), drops).await;
            });
        }
    }
}

#[test]
fn a_refusal_changes_nothing_else() {
    for engine in engines() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
        let store = store.with_engine(&engine).with_dont_cache(true);
        runtime().block_on(async {
            use_all(&store, dir.path(), false).await;
            let (file, _) = store.open(&"whole".into()).await.unwrap();
            assert_eq!(file.caching(), Caching::Dropped, "nothing was read");
            file.read(0..1).await.unwrap();
            assert!(matches!(file.caching(), Caching::Refused(why) if !why.fix.is_empty()));
        });
    }
}
