//! Transfers longer than a device, a system call or 32 bits take at once: every byte in its place.

use crate::errors::small_file_system;
use crate::world::{World, bytes, filled, pattern, room, skip};
use ringway_core::op::{self, Vectored};
use ringway_core::{BackendKind, Buffer, CustomBuffer, File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Bytes of the memory that can be had.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemAvailable")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn long_reads(world: &World, file: &File, content: &[u8]) {
    let len = content.len() as u64;
    let align = u64::from(file.direct_io().offset_align);
    let request = u64::from(file.largest_request().unwrap_or(1 << 20));
    println!("requests of at most {request} bytes, aligned to {align}");
    let mut queue = world.queue();
    // At odd blocks, and of lengths around the limit.
    let spans = [
        (0, request),
        (align, request),
        (0, request + align),
        (align, request - align),
        (3 * align, 2 * request + 5 * align),
        (0, len),
        (align, len),
        (7 * align, len / 2),
        (len / 2, len),
    ];
    for exact in [false, true] {
        for (number, (at, asked)) in (0u64..).zip(spans) {
            let at = at / align * align;
            let asked = asked.div_ceil(align) * align;
            let read = op::read(file, room(file, asked as usize), at).user_data(number);
            queue.push(if exact { read.exact() } else { read }).unwrap();
        }
        for (number, done) in queue.completions() {
            let (at, asked) = spans[number as usize];
            let at = at / align * align;
            let there = (len - at).min(asked.div_ceil(align) * align);
            let read = bytes(done);
            assert_eq!(read.len() as u64, there, "{asked} at {at}");
            assert!(read == content[at as usize..][..there as usize], "{asked} at {at}");
        }
    }
    let parts = Vectored::new([2 * request, align, request].map(|len| room(file, len as usize)));
    let done = queue.one(op::readv(file, parts, align).exact());
    let mut at = align;
    let there = done.result.unwrap();
    assert_eq!(there, (len - align).min(3 * request + align));
    for buffer in done.into_vectored().unwrap().buffers() {
        let left = (align + there - at).min(buffer.len() as u64) as usize;
        assert_eq!(buffer.as_slice()[..left], pattern(at, left));
        at += left as u64;
    }
}

pub fn direct_reads_over_the_largest_request(world: &World) {
    let content = pattern(0, (18 << 20) + 1234);
    long_reads(world, &world.direct(&content), &content);
}

pub fn direct_writes_over_the_largest_request(world: &World) {
    let file = world.direct(b"");
    let align = file.direct_io().offset_align as usize;
    let mut queue = world.queue();
    // One behind the other, all in flight at once.
    let lens = [(5 << 20) + align, 4 << 20, (9 << 20) - align, align, 1 << 20];
    let mut at = 0;
    for len in lens {
        queue.push(op::write(&file, filled(&file, at, len), at).exact().user_data(at)).unwrap();
        at += len as u64;
    }
    assert_eq!(queue.rest().into_values().map(Result::unwrap).sum::<u64>(), at);
    let done = queue.one(op::read(&file, room(&file, at as usize), 0).exact());
    let read = bytes(done);
    assert_eq!(read.len() as u64, at);
    assert!(read == pattern(0, at as usize));
}

/// A loop device takes less at once than the disk below it.
pub fn on_a_loop_device(world: &World) {
    let Some(dir) = small_file_system(world, 32 << 10) else { return };
    let path = dir.join("file");
    let content = pattern(0, (6 << 20) + 777);
    std::fs::write(&path, &content).unwrap();
    match OpenOptions::new().read(true).direct(true).open(&path) {
        Ok(file) => long_reads(world, &file, &content),
        Err(error) => skip(&format!("no direct I/O on a loop device: {error}")),
    }
}

/// Memory in large pages where there are any: touching gibibytes of small ones takes longer than all else here.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn new(len: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping, wherever the kernel likes; the advice changes nothing but speed.
        let first = unsafe {
            let first = libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0);
            assert_ne!(first, libc::MAP_FAILED);
            libc::madvise(first, len, libc::MADV_HUGEPAGE);
            first
        };
        Self(first.cast(), len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and is used by nobody any more.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), self.1) }, 0);
    }
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references only read it.
unsafe impl Sync for Mapping {}

// SAFETY: the mapping stays where it is, zeroed at first, until the value is dropped.
unsafe impl CustomBuffer for Mapping {
    fn as_ptr(&self) -> *const u8 {
        self.0
    }
    fn len(&self) -> usize {
        self.1
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// A sparse file of this length with the pattern in a few places.
fn sparse(file: &File, len: u64, marks: &[u64]) {
    let file = std::fs::File::from(std::os::fd::AsFd::as_fd(file).try_clone_to_owned().unwrap());
    file.set_len(len).unwrap();
    marks.iter().for_each(|at| file.write_all_at(&pattern(*at, 4096), *at).unwrap());
}

fn check_marks(read: &[u8], marks: &[u64]) {
    for at in marks {
        let place = *at as usize;
        assert_eq!(read[place..place + 4096], pattern(*at, 4096), "at {at}");
        assert_eq!((read[place - 1], read[place + 4096]), (0, 0), "beside {at}");
    }
}

pub fn over_two_gibibytes(world: &World) {
    let len = (2 << 30) + (200 << 20) + 12_345;
    if memory() < 2 * len {
        return skip("too little memory for a buffer over 2 GiB");
    }
    // In memory, where a hole takes no room in the page cache.
    let file = world.files("file", b"").swap_remove(2);
    let marks = [1 << 12, (1 << 30) - 2048, (2 << 30) - 4096, (2 << 30) + 1, len - 5000];
    sparse(&file, len, &marks);
    let mut queue = world.queue();
    let done = queue.one(op::read(&file, Buffer::custom(Box::new(Mapping::new(len as usize))), 0).exact());
    assert_eq!(done.result, Ok(len));
    check_marks(done.into_buffer().unwrap().as_slice(), &marks);
}

pub fn over_four_gibibytes_direct(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: Cut in the same way everywhere, and costly");
    }
    let len = (4 << 30) + (16 << 20);
    if memory() < 2 * len {
        return skip("too little memory for a buffer over 4 GiB");
    }
    let file = world.file(b"");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let marks = [1 << 12, (2 << 30) - 4096, (4 << 30) - 4096, (4 << 30) + 4096, len - 8192];
    sparse(&file, len, &marks);
    let direct = OpenOptions::new().read(true).direct(true).open(path).unwrap();
    let mut queue = world.queue();
    let buffer = Buffer::custom(Box::new(Mapping::new(len as usize)));
    let done = queue.one(op::read(&direct, buffer, 0).exact());
    assert_eq!(done.result, Ok(len));
    check_marks(done.into_buffer().unwrap().as_slice(), &marks);
}
