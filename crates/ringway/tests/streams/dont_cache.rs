//! Files whose transfers leave no pages in the page cache (`RWF_DONTCACHE`): every way to read and
//! write, clones and duplicates, and file systems that refuse it.

use crate::common::{drop_cached_pages, pattern, scratch, write_synced};
use crate::files::engines;
use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use ringway::fs::{Caching, File, OpenOptions};
use ringway::{Engine, Position};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const LEN: usize = 256 * PAGE;
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The errno with which the kernel refuses the flag for this file, if it does.
fn refused_errno(path: &Path) -> Option<i32> {
    let file = std::fs::File::open(path).unwrap();
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, DONTCACHE);
    read.err().map(Errno::raw_os_error)
}

/// How many pages of the file are in the page cache.
fn cached(path: &Path) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    if len == 0 {
        return 0;
    }
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

/// Waits until no page is cached: writes drop theirs when the device has them.
async fn leaves_none(what: &str, path: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    while cached(path) > 0 {
        assert!(Instant::now() < end, "{what} leaves {} pages", cached(path));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn evict(path: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    while cached(path) > 0 {
        assert!(Instant::now() < end, "the pages stay");
        drop_cached_pages(path);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn open(engine: &Engine, path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).dont_cache(true).engine(engine).open(path).await
}

#[tokio::test]
async fn reads_leave_no_pages() -> io::Result<()> {
    let dir = scratch();
    let (path, content) = (dir.path().join("file"), pattern(0, LEN));
    write_synced(&path, &content);
    if refused_errno(&path).is_some() {
        println!("this file system has no RWF_DONTCACHE");
        return Ok(());
    }
    for engine in engines() {
        evict(&path).await;
        let file = open(engine, &path).await?;
        assert_eq!(file.read(0..LEN as u64).await?, content[..]);
        leaves_none("read", &path).await;
        let (read, _) = file.read_exact_at(vec![0; LEN], 0).await;
        read?;
        leaves_none("read_exact_at", &path).await;
        let (read, spare) = file.read_buf_exact_at(Vec::with_capacity(LEN), 0).await;
        read?;
        assert!(content == spare);
        leaves_none("read_buf_exact_at", &path).await;
        let parts = vec![vec![0; PAGE], vec![0; LEN - PAGE]];
        let (read, _) = file.read_all_vectored_at(parts, 0).await;
        assert_eq!(read?, LEN);
        leaves_none("read_all_vectored_at", &path).await;
        let ranges: Vec<_> = (0..16).map(|part| part * 65_000..part * 65_000 + 5000).collect();
        file.read_ranges(&ranges).await?;
        // What the kernel has read ahead stays until it is read, too.
        file.read(0..LEN as u64).await?;
        leaves_none("read_ranges", &path).await;
        let clone = file.clone();
        clone.read(0..LEN as u64).await?;
        leaves_none("a clone", &path).await;
        let duplicate = file.try_clone().await?;
        duplicate.read(0..LEN as u64).await?;
        leaves_none("a duplicate", &path).await;
        let mut at_cursor = file.clone();
        let mut all = Vec::new();
        at_cursor.read_to_end(&mut all).await?;
        assert!(all == content);
        drop(at_cursor);
        leaves_none("reads at the cursor", &path).await;
        // Of a file that caches.
        let usual = File::from_fd(std::fs::File::open(&path)?.into(), engine);
        let mut reader = usual.reader().dont_cache(true).read_ahead(0);
        while reader.next_block().await?.is_some() {}
        drop(reader);
        leaves_none("a reader", &path).await;
        assert_eq!(file.caching(), Caching::Dropped);
        assert_eq!(usual.caching(), Caching::Kept);
        // What was cached before stays, and is read there.
        usual.read(0..LEN as u64).await?;
        let before = cached(&path);
        assert_ne!(before, 0, "a usual read leaves pages");
        file.read(0..LEN as u64).await?;
        assert_eq!(cached(&path), before);
    }
    Ok(())
}

#[tokio::test]
async fn writes_leave_no_pages() -> io::Result<()> {
    let dir = scratch();
    let (path, content) = (dir.path().join("file"), pattern(0, LEN));
    write_synced(&path, &content);
    if refused_errno(&path).is_some() {
        println!("this file system has no RWF_DONTCACHE");
        return Ok(());
    }
    // Without those that shorten writes: ext4 of 6.18 keeps a page that is written once more.
    for engine in engines().iter().step_by(3) {
        let file = open(engine, &path).await?;
        // (The same for blocks that the file has already: their pages stay.)
        file.set_len(0).await?;
        file.write_all_at(content.clone(), 0).await.0?;
        file.sync_all().await?;
        leaves_none("write_all_at", &path).await;
        file.set_len(0).await?;
        let parts = vec![content[..PAGE].to_vec(), content[PAGE..].to_vec()];
        file.write_all_vectored_at(parts, 0).await.0?;
        file.sync_all().await?;
        leaves_none("write_all_vectored_at", &path).await;
        file.set_len(0).await?;
        file.write_durable_at(content.clone(), Position::Offset(0)).await.0?;
        leaves_none("write_durable_at", &path).await;
        file.set_len(0).await?;
        let mut writer = file.writer();
        writer.write_all(&content).await?;
        writer.sync_data().await?;
        drop(writer);
        leaves_none("a writer", &path).await;
        file.set_len(0).await?;
        // A writer that is dropped writes on.
        let usual = file.clone().with_dont_cache(false);
        let mut writer = usual.writer().dont_cache(true).chunk(64 << 10);
        writer.write_all(&content).await?;
        drop(writer);
        usual.sync_all().await?;
        leaves_none("a dropped writer", &path).await;
        file.set_len(0).await?;
        let mut at_cursor = file.clone();
        at_cursor.write_all(&content).await?;
        at_cursor.flush().await?;
        at_cursor.sync_all().await?;
        drop(at_cursor);
        leaves_none("a write at the cursor", &path).await;
        assert!(file.read(0..LEN as u64).await? == content[..]);
        let copy = dir.path().join("copy");
        let copied = engine.fs().copy_dont_cache(&path, &copy).await?;
        assert_eq!((copied, std::fs::metadata(&copy)?.len()), (LEN as u64, LEN as u64));
        leaves_none("the source of a copy", &path).await;
        std::fs::File::open(&copy)?.sync_all()?;
        leaves_none("a copy", &copy).await;
        let atomic = dir.path().join("atomic");
        let mut new = engine.fs().create_atomic(&atomic).await?.dont_cache(true);
        new.write_all(&content).await?;
        new.commit().await?;
        leaves_none("an atomic file", &atomic).await;
        std::fs::remove_file(&copy)?;
        std::fs::remove_file(&atomic)?;
    }
    Ok(())
}

/// Where the flag is refused, everything works as without it, and the file has the reason.
#[tokio::test]
async fn a_refusal_is_explained() -> io::Result<()> {
    let dir = tempfile::tempdir_in("/dev/shm")?;
    let (path, content) = (dir.path().join("file"), pattern(0, LEN));
    std::fs::write(&path, &content)?;
    let Some(errno) = refused_errno(&path) else { return Ok(()) };
    for engine in engines() {
        let file = open(engine, &path).await?;
        assert_eq!(file.caching(), Caching::Dropped, "nothing was transferred");
        assert!(file.read(0..LEN as u64).await? == content[..]);
        let Caching::Refused(refusal) = file.clone().caching() else { panic!("{file:?}") };
        assert_eq!(refusal.errno, errno);
        assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
        file.write_all_at(content.clone(), 0).await.0?;
        let (read, all) = file.read_exact_at(vec![0; LEN], 0).await;
        read?;
        assert!(all == content);
        // Another open file finds out by itself.
        let other = open(engine, &path).await?;
        assert_eq!(other.caching(), Caching::Dropped);
        assert_eq!(file.clone().with_dont_cache(false).caching(), Caching::Kept);
        let target = dir.path().join("copy");
        assert_eq!(engine.fs().copy_dont_cache(&path, &target).await?, LEN as u64);
        assert!(std::fs::read(&target)? == content);
    }
    Ok(())
}

/// A file that is open for direct I/O leaves no pages anyway.
#[tokio::test]
async fn direct_files_are_not_changed() -> io::Result<()> {
    let dir = scratch();
    let path = dir.path().join("file");
    write_synced(&path, &pattern(0, LEN));
    for engine in engines() {
        let mut options = OpenOptions::new();
        options.read(true).direct(true).dont_cache(true).engine(engine);
        let file = options.open(&path).await?;
        assert!(file.read(5..LEN as u64).await? == pattern(5, LEN - 5)[..]);
        assert_eq!(file.caching(), Caching::Direct);
    }
    Ok(())
}
