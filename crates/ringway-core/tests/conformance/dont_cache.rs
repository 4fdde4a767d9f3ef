//! Transfers that leave no pages in the page cache (`RWF_DONTCACHE`), and what happens where the
//! kernel or the file system refuses them.

use super::world::{MS, World, buffer_for, bytes, filled, pattern, skip, wait_for};
use ringway_core::op::{self, Vectored};
use ringway_core::{FaultPlan, File, Operation, SpareCapacity};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// Long enough for several pieces.
const LEN: usize = 64 * PAGE;

const DONTCACHE: i32 = 0x80;

/// The errno with which the kernel refuses the flag for this file; `None` if it does not.
fn refused_errno(file: &File) -> Option<i32> {
    let mut byte = 0u8;
    let iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: one iovec of one byte, both on this stack, for the length of the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const iov, 1, 0, DONTCACHE) };
    let error = std::io::Error::last_os_error();
    (read < 0).then(|| error.raw_os_error().unwrap())
}

/// How many of the file's pages are in the page cache.
fn cached(file: &File) -> usize {
    let len = file.with_std(|file| file.metadata().unwrap().len()) as usize;
    // SAFETY: a new mapping that nobody else uses; it is not read.
    let memory = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let mut pages = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: the mapping has `len` bytes, and there is a byte for each of its pages.
    unsafe {
        assert_eq!(libc::mincore(memory, len, pages.as_mut_ptr()), 0);
        libc::munmap(memory, len);
    }
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// Removes the file's pages from the page cache.
fn evict(file: &File) {
    let evicted = || {
        file.with_std(|file| file.sync_all().unwrap());
        // SAFETY: the call takes numbers only.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        cached(file) == 0
    };
    assert!(wait_for(10_000 * MS, evicted), "{} pages stay", cached(file));
}

/// A new file on disk, if its file system supports the flag.
fn supported(world: &World) -> Option<File> {
    let file = world.file(&pattern(0, LEN));
    if let Some(errno) = refused_errno(&file) {
        println!("the disk's file system or kernel has no RWF_DONTCACHE (errno {errno})");
        return None;
    }
    Some(file)
}

pub fn reads_leave_no_pages(world: &World) {
    let Some(file) = supported(world) else { return };
    let mut queue = world.queue();
    let spare = || SpareCapacity::from(Vec::with_capacity(LEN));
    let vectors = || Vectored::new([vec![0u8; PAGE], vec![0u8; LEN - PAGE]]);
    let reads: [(&str, &dyn Fn() -> Operation); 4] = [
        ("read", &|| op::read(&file, vec![0; LEN], 0)),
        ("exact read", &|| op::read(&file, vec![0; LEN], 0).exact()),
        ("read into spare capacity", &|| op::read_spare(&file, spare(), 0).exact()),
        ("vectored read", &|| op::readv(&file, vectors(), 0).exact()),
    ];
    for (what, read) in reads {
        evict(&file);
        assert_eq!(queue.result(read()), Ok(LEN as u64), "{what}");
        assert_ne!(cached(&file), 0, "{what} without the flag leaves pages");
        evict(&file);
        assert_eq!(queue.result(read().dont_cache()), Ok(LEN as u64), "{what}");
        assert!(wait_for(10_000 * MS, || cached(&file) == 0), "{what}: {} pages", cached(&file));
    }
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; LEN], 0).dont_cache())), pattern(0, LEN));
    assert_eq!(file.dont_cache_refusal(), None);
}

/// The kernel drops only what it has read or written with the flag.
pub fn cached_pages_stay(world: &World) {
    let Some(file) = supported(world) else { return };
    let mut queue = world.queue();
    evict(&file);
    assert_eq!(queue.result(op::read(&file, vec![0; LEN], 0)), Ok(LEN as u64));
    let before = cached(&file);
    for _ in 0..3 {
        assert_eq!(queue.result(op::read(&file, vec![0; LEN], 0).dont_cache()), Ok(LEN as u64));
    }
    let mut now = vec![0; LEN];
    let read = file.read_now_with(&mut now, 0, op::RwFlags::DONT_CACHE);
    assert!(read.is_none_or(|read| read == LEN && now == pattern(0, LEN)), "{read:?}");
    assert_eq!((before, cached(&file)), (LEN / PAGE, LEN / PAGE));
}

pub fn writes_leave_no_pages(world: &World) {
    let Some(file) = supported(world) else { return };
    let mut queue = world.queue();
    let vectors = || Vectored::new([pattern(0, PAGE), pattern(PAGE as u64, LEN - PAGE)]);
    let writes: [(&str, &dyn Fn() -> Operation); 3] = [
        ("write", &|| op::write(&file, pattern(0, LEN), 0).exact()),
        ("durable write", &|| op::write_dsync(&file, pattern(0, LEN), 0).exact()),
        ("vectored write", &|| op::writev(&file, vectors(), 0).exact()),
    ];
    for (what, write) in writes {
        // (ext4 of 6.18 keeps the pages of blocks that the file has already.)
        file.with_std(|file| file.set_len(0)).unwrap();
        let chain = [write().dont_cache().user_data(0), op::fdatasync(&file).user_data(1)];
        queue.push_chain(chain).unwrap();
        let results = queue.rest();
        assert_eq!(results.into_values().collect::<Vec<_>>(), [Ok(LEN as u64), Ok(0)], "{what}");
        assert!(wait_for(10_000 * MS, || cached(&file) == 0), "{what}: {} pages", cached(&file));
    }
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; LEN], 0))), pattern(0, LEN));
    assert_eq!(file.dont_cache_refusal(), None);
}

/// What continues a short transfer, and what is retried, has the flag as well.
pub fn every_piece_has_the_flag(world: &World) {
    let Some(file) = supported(world) else { return };
    for seed in 1..4 {
        let plan = FaultPlan::new(seed).short(700).retryable(200);
        let mut queue = world.build(&world.options().faults(plan));
        evict(&file);
        let vectors = Vectored::new((0..16).map(|_| vec![0u8; LEN / 16]));
        assert_eq!(queue.result(op::readv(&file, vectors, 0).exact().dont_cache()), Ok(LEN as u64));
        let read = op::read(&file, vec![0; LEN], 0).exact().dont_cache();
        assert_eq!(bytes(queue.one(read)), pattern(0, LEN));
        assert!(wait_for(10_000 * MS, || cached(&file) == 0), "{} pages", cached(&file));
    }
}

/// Where the flag is refused, the transfer is made without it, and the file remembers: this open
/// of it, and no other.
pub fn a_refused_flag_is_left_out(world: &World) {
    let mut queue = world.queue();
    for file in world.files("refused", &pattern(0, LEN)) {
        if file.is_direct() {
            continue;
        }
        let refused = refused_errno(&file);
        assert_eq!(file.dont_cache_refusal(), None, "nothing was transferred yet");
        let read = || op::read(&file, vec![0; LEN], 0).exact().dont_cache();
        // In order, although some of it is made again.
        let write = |start| op::write(&file, pattern(start, LEN), 0).exact();
        let chain = [
            write(7).user_data(0),
            read().user_data(1),
            write(0).dont_cache().user_data(2),
            op::fdatasync(&file).user_data(3),
            read().user_data(4),
        ];
        queue.push_chain(chain).unwrap();
        let mut done = queue.completions();
        let results: Vec<_> = done.values().map(|done| done.result).collect();
        let len = LEN as u64;
        assert_eq!(results, [Ok(len), Ok(len), Ok(len), Ok(0), Ok(len)]);
        for (number, start) in [(1, 7), (4, 0)] {
            assert_eq!(bytes(done.remove(&number).unwrap()), pattern(start, LEN), "{number}");
        }
        let refusal = file.clone().dont_cache_refusal();
        assert_eq!(refusal.as_ref().map(|refusal| refusal.errno), refused);
        if let Some(refusal) = refusal {
            assert!(refusal.fix.contains("made without it"), "{refusal}");
            // The next one is made without the flag at once.
            let before = queue.stats().retries;
            assert_eq!(bytes(queue.one(read())), pattern(0, LEN));
            assert_eq!(queue.stats().retries, before);
        }
        let again: File = file.with_std(std::fs::File::try_clone).unwrap().into();
        assert_eq!(again.dont_cache_refusal(), None);
        assert_eq!(queue.result(op::read(&again, vec![0; 8], 0).dont_cache()), Ok(8));
        assert_eq!(again.dont_cache_refusal().map(|refusal| refusal.errno), refused);
    }
}

/// An error that has another cause is returned, and is no refusal of the flag.
pub fn other_errors_are_not_refusals(world: &World) {
    let mut queue = world.queue();
    let file = world.file(&pattern(0, LEN));
    if refused_errno(&file).is_some() {
        skip("the disk's file system has no RWF_DONTCACHE: only root may mount");
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let write_only: File = std::fs::OpenOptions::new().write(true).open(path).unwrap().into();
    let direct = world.direct(&pattern(0, LEN));
    let mut cases = vec![
        ("not open for reading", op::read(&write_only, vec![0; 8], 0), libc::EBADF),
        ("beyond the largest offset", op::read(&file, vec![0; 8], 1 << 63), libc::EINVAL),
    ];
    // (tmpfs, btrfs and ext4 with data=journal read it through the page cache.)
    let mut memory = buffer_for(&direct, LEN);
    if let Err(error) = direct.with_std(|file| file.read_at(&mut memory, 1)) {
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        cases.push(("an unaligned direct read", op::read(&direct, memory, 1), libc::EINVAL));
    }
    for (what, operation, errno) in cases {
        let pushed = queue.push(operation.dont_cache());
        let result = match pushed {
            Ok(_) => queue.rest().into_values().next().unwrap(),
            Err(error) => Err(error.reason().errno()),
        };
        assert_eq!(result, Err(errno), "{what}");
    }
    for file in [&file, &write_only, &direct] {
        assert_eq!(file.dont_cache_refusal(), None);
    }
    let aligned = op::write(&direct, filled(&direct, 0, LEN), 0).exact().dont_cache();
    assert_eq!(queue.result(aligned), Ok(LEN as u64));
    let error = queue.push(op::fsync(&file).dont_cache()).unwrap_err();
    assert_eq!(error.reason().errno(), libc::EINVAL);
    assert!(error.to_string().contains("only a read or a write"), "{error}");
}
