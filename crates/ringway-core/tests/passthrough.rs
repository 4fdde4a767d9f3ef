//! NVMe passthrough (`Options::passthrough`): transfers, the end of a namespace, long and vectored
//! transfers, registered buffers, errors, cancels, chains, and what is refused with its reason.
//!
//! Tests that write need `RINGWAY_TEST_NVME`, the NVMe generic devices of namespaces whose contents
//! may be lost, separated by spaces: `/dev/ng0n2 /dev/ng0n3`. The others run everywhere.

#![cfg(target_os = "linux")]

use ringway_core::op::{self, Position};
use ringway_core::refusal::Feature;
use ringway_core::{
    AlignedBuffer, Arena, BackendKind, Buffer, BuildError, File, OpenOptions, Options, Queue,
};
use std::env;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tests share the devices, so one runs at a time.
static DEVICES: Mutex<()> = Mutex::new(());

/// A namespace whose contents may be lost.
struct Device {
    path: PathBuf,
    file: File,
    /// Bytes of a block, and of the namespace.
    block: usize,
    len: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Device {
    fn open(path: &Path) -> Self {
        let alone = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let block = file.direct_io().offset_align as usize;
        let len = std::fs::File::open(disk(path)).unwrap().seek(SeekFrom::End(0)).unwrap();
        Self { path: path.to_owned(), file, block, len, _alone: alone }
    }

    fn options(&self) -> Options {
        Options::new().backend(BackendKind::Uring).passthrough(&self.file).strict(true)
    }

    fn queue(&self) -> Queue {
        self.options().build().unwrap()
    }

    fn buffer(&self, blocks: usize, fill: u8) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::for_direct(self.file.direct_io(), blocks * self.block);
        buffer.fill(fill);
        buffer
    }

    /// Bytes of the namespace, through its block device and past the page cache.
    fn contents(&self, offset: u64, len: usize) -> Vec<u8> {
        let disk = OpenOptions::new().read(true).direct(true).open(disk(&self.path)).unwrap();
        let mut bytes = AlignedBuffer::for_direct(disk.direct_io(), len);
        disk.with_std(|disk| disk.read_exact_at(&mut bytes, offset)).unwrap();
        bytes.to_vec()
    }
}

/// The block device of the same namespace.
fn disk(path: &Path) -> PathBuf {
    path.with_file_name(path.file_name().unwrap().to_str().unwrap().replacen("ng", "nvme", 1))
}

/// The devices that may be written to, on a kernel that takes commands for them.
fn devices() -> Vec<PathBuf> {
    let Some(named) = env::var_os("RINGWAY_TEST_NVME") else {
        println!("skipped: RINGWAY_TEST_NVME names no NVMe generic device that may be written to");
        return Vec::new();
    };
    let paths: Vec<_> = named.to_str().unwrap().split_whitespace().map(PathBuf::from).collect();
    assert!(!paths.is_empty(), "RINGWAY_TEST_NVME is empty");
    if !paths[0].exists() {
        println!("skipped: this kernel has no NVMe generic devices ({})", paths[0].display());
        return Vec::new();
    }
    paths
}

/// Pushes one operation; returns its result, or errno, and its buffer.
fn run(queue: &mut Queue, operation: op::Operation) -> (Result<u64, i32>, Option<Buffer>) {
    queue.push(operation).unwrap();
    let done = queue.reap(1).unwrap().next().unwrap();
    (done.result.map_err(|error| error.errno()), done.into_buffer())
}

fn result(queue: &mut Queue, operation: op::Operation) -> Result<u64, i32> {
    run(queue, operation).0
}

/// Each block has the number of its place.
fn numbered(device: &Device, first: u64, blocks: usize) -> AlignedBuffer {
    let mut buffer = device.buffer(blocks, 0);
    for (at, bytes) in buffer.chunks_mut(device.block).enumerate() {
        let number = (first + at as u64 + 1).to_le_bytes();
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&number);
        }
    }
    buffer
}

#[test]
fn transfers_reach_the_blocks_that_they_name() {
    for path in devices() {
        let device = Device::open(&path);
        let mut queue = device.queue();
        assert!(queue.explain().available.contains(&Feature::Passthrough), "{}", queue.explain());
        let block = device.block as u64;
        for number in [0, 1, 100] {
            let write = op::write(&device.file, numbered(&device, number, 3), number * block);
            assert_eq!(result(&mut queue, write), Ok(3 * block));
            let expected = numbered(&device, number, 3);
            assert_eq!(device.contents(number * block, 3 * device.block), expected.to_vec());
            let (read, buffer) =
                run(&mut queue, op::read(&device.file, device.buffer(3, 0), number * block));
            assert_eq!(read, Ok(3 * block));
            assert_eq!(buffer.unwrap().as_slice(), &expected[..]);
        }
        let durable = op::write_dsync(&device.file, device.buffer(1, 0x5a), 7 * block);
        assert_eq!(result(&mut queue, durable), Ok(block));
        assert_eq!(device.contents(7 * block, device.block), vec![0x5a; device.block]);
        assert_eq!(result(&mut queue, op::fsync(&device.file)), Ok(0));
        assert_eq!(result(&mut queue, op::fdatasync(&device.file)), Ok(0));
        assert_eq!(result(&mut queue, op::read(&device.file, device.buffer(0, 0), 0)), Ok(0));
        assert_eq!(queue.stats().to_threads, 0);
    }
}

#[test]
fn many_at_a_time() {
    for path in devices() {
        let device = Device::open(&path);
        let block = device.block as u64;
        for options in [device.options(), device.options().single_issuer(true)] {
            let mut queue = options.entries(32).build().unwrap();
            let fill = op::write(&device.file, numbered(&device, 0, 64), 0).exact();
            assert_eq!(result(&mut queue, fill), Ok(64 * block));
            for round in 0..20u64 {
                for number in 0..128 {
                    let at = (number * 7 + round) % 64;
                    let read = op::read(&device.file, device.buffer(1, 0), at * block);
                    queue.push(read.user_data(at)).unwrap();
                }
                while queue.in_flight() > 0 {
                    for done in queue.reap(1).unwrap() {
                        assert_eq!(done.result, Ok(block));
                        let word = (done.user_data + 1).to_le_bytes();
                        assert_eq!(done.into_buffer().unwrap().as_slice()[..8], word);
                    }
                }
            }
            let counts = queue.stats().counts;
            assert_eq!((counts.pushed, counts.in_flight), (counts.delivered, 0));
        }
    }
}

#[test]
fn a_namespace_ends_as_its_block_device_does() {
    for path in devices() {
        let device = Device::open(&path);
        let (block, len) = (device.block as u64, device.len);
        let direct = OpenOptions::new().read(true).write(true).direct(true).open(disk(&path));
        let disk = direct.unwrap();
        let mut queue = device.queue();
        let far = i64::MAX as u64 / block * block;
        for exact in [false, true] {
            for at in [len - 2 * block, len - block, len, len + block, far] {
                for blocks in [1, 4] {
                    let case = format!("{exact} {at} of {len}, {blocks} blocks");
                    let of = |operation: op::Operation| {
                        if exact { operation.exact() } else { operation }
                    };
                    let mut both = [&disk, &device.file].map(|file| {
                        let read = op::read(file, device.buffer(blocks, 1), at);
                        let write = op::write(file, device.buffer(blocks, 2), at);
                        [result(&mut queue, of(read)), result(&mut queue, of(write))]
                    });
                    // (An offset near the limit of files overflows on the block device.)
                    if at == far {
                        both[0] = [Ok(0), Err(libc::ENOSPC)];
                    }
                    assert_eq!(both[0], both[1], "{case}");
                }
            }
        }
    }
}

#[test]
fn long_transfers_are_split() {
    for path in devices() {
        let device = Device::open(&path);
        let block = device.block as u64;
        let largest = device.file.largest_request().unwrap() as usize;
        assert!(largest.is_multiple_of(device.block) && largest >= 64 << 10, "{largest}");
        let mut queue = device.queue();
        for blocks in [largest / device.block, largest / device.block + 1, (5 << 20) / device.block]
        {
            let bytes = (blocks * device.block) as u64;
            // At an address within a page, where the data are in the most pages.
            let write = op::write(&device.file, numbered(&device, 9, blocks), 9 * block);
            assert_eq!(result(&mut queue, write), Ok(bytes));
            assert_eq!(device.contents(9 * block, bytes as usize), *numbered(&device, 9, blocks));
            let (read, buffer) =
                run(&mut queue, op::read(&device.file, device.buffer(blocks, 0), 9 * block));
            assert_eq!(read, Ok(bytes));
            assert!(buffer.unwrap().as_slice() == &numbered(&device, 9, blocks)[..]);
        }
        // A long read that crosses the end.
        let blocks = (2 << 20) / device.block;
        let read = op::read(&device.file, device.buffer(blocks, 0), device.len - (1 << 20));
        assert_eq!(result(&mut queue, read), Ok(1 << 20));
    }
}

#[test]
fn vectored_transfers() {
    for path in devices() {
        let device = Device::open(&path);
        let block = device.block as u64;
        let mut queue = device.queue();
        // Few buffers; many; one longer than a command; all of these at the end.
        let long = (5 << 18) / device.block;
        let shapes: [Vec<usize>; 4] =
            [vec![1, 2, 3], vec![1; 300], vec![1, long, 1], vec![0, 1, 0, 2]];
        for shape in shapes {
            let total: usize = shape.iter().sum();
            for at in [3, device.len / block - total as u64, device.len / block - 1] {
                let fits = total.min((device.len / block - at) as usize);
                let mut first = at;
                let numbered: Vec<Buffer> = shape
                    .iter()
                    .map(|blocks| {
                        let buffer = numbered(&device, first, *blocks);
                        first += *blocks as u64;
                        buffer.into()
                    })
                    .collect();
                let all: Vec<u8> =
                    numbered.iter().flat_map(|buffer| buffer.as_slice().to_vec()).collect();
                let write = op::writev(&device.file, op::Vectored::new(numbered), at * block);
                assert_eq!(result(&mut queue, write), Ok(fits as u64 * block), "{shape:?} {at}");
                let found = device.contents(at * block, fits * device.block);
                if found != all[..fits * device.block] {
                    // The first word of each block: what is there, and what should be; and again.
                    let words = |bytes: &[u8]| -> Vec<u64> {
                        let word =
                            |block: &[u8]| u64::from_le_bytes(block[..8].try_into().unwrap());
                        bytes.chunks(device.block).map(word).collect()
                    };
                    let again = device.contents(at * block, fits * device.block);
                    panic!(
                        "{shape:?} {at}: {:?}, not {:?}; again {:?}",
                        words(&found),
                        words(&all),
                        words(&again)
                    );
                }
                let buffers = shape.iter().map(|blocks| device.buffer(*blocks, 0));
                let read = op::readv(&device.file, op::Vectored::new(buffers), at * block);
                queue.push(read).unwrap();
                let done = queue.reap(1).unwrap().next().unwrap();
                assert_eq!(done.result, Ok(fits as u64 * block), "{shape:?} {at}");
                let buffers = done.into_vectored().unwrap().into_buffers();
                let read: Vec<u8> =
                    buffers.iter().flat_map(|buffer| buffer.as_slice().to_vec()).collect();
                assert!(read[..fits * device.block] == found, "{shape:?} {at}");
            }
        }
        let odd = op::Vectored::new([vec![0u8; 100], vec![0; 412]]);
        assert_eq!(result(&mut queue, op::readv(&device.file, odd, 0)), Err(libc::EINVAL));
    }
}

#[test]
fn registered_files_and_buffers() {
    for path in devices() {
        let device = Device::open(&path);
        let mut queue = device.queue();
        queue.register_file(&device.file).unwrap();
        let arena = Arena::new(4096.max(device.block), 8);
        queue.register_arena(&arena).unwrap();
        let len = arena.block_size() as u64;
        for number in 0..32u64 {
            let mut block = arena.take().unwrap();
            block.fill(number as u8 + 1);
            assert_eq!(result(&mut queue, op::write(&device.file, block, number * len)), Ok(len));
            let block = arena.take().unwrap();
            let (read, buffer) = run(&mut queue, op::read(&device.file, block, number * len));
            assert_eq!(read, Ok(len));
            assert!(buffer.unwrap().as_slice().iter().all(|byte| *byte == number as u8 + 1));
        }
        assert_eq!(result(&mut queue, op::fsync(&device.file)), Ok(0));
    }
}

#[test]
fn wrong_operations_fail_before_they_reach_the_device() {
    for path in devices() {
        let device = Device::open(&path);
        let mut queue = device.queue();
        let before = device.contents(0, 4 * device.block);
        let half = device.block / 2;
        for operation in [
            op::write(&device.file, vec![7; device.block], half as u64),
            op::write(&device.file, vec![7; half], 0),
            op::read(&device.file, vec![7; device.block + 1], 0),
            op::read(&device.file, vec![7; device.block], Position::Current),
        ] {
            assert_eq!(result(&mut queue, operation), Err(libc::EINVAL));
        }
        // A kernel before 6.2 would let a privileged process write through this one.
        let reader = File::open(&path).unwrap();
        let write = op::write(&reader, device.buffer(1, 7), 0);
        assert_eq!(result(&mut queue, write), Err(libc::EBADF));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(result(&mut queue, op::read(&writer, device.buffer(1, 7), 0)), Err(libc::EBADF));
        assert_eq!(device.contents(0, 4 * device.block), before);
    }
}

#[test]
fn other_files_work_on_the_same_queue() {
    for path in devices() {
        let device = Device::open(&path);
        let mut queue = device.queue();
        let text = std::fs::read("/proc/self/cmdline").unwrap();
        let file = File::open("/proc/self/cmdline").unwrap();
        let (read, buffer) = run(&mut queue, op::read(&file, vec![0; text.len()], 0).exact());
        assert_eq!(read, Ok(text.len() as u64));
        assert_eq!(buffer.unwrap().as_slice(), text);
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [std::os::fd::OwnedFd::from(reader), writer.into()].map(File::from);
        queue.push(op::read(&reader, vec![0; 8], Position::Current).user_data(1)).unwrap();
        queue.push(op::write(&writer, vec![7; 8], Position::Current).user_data(2)).unwrap();
        queue.push(op::read(&device.file, device.buffer(1, 0), 0).user_data(3)).unwrap();
        queue.push(op::nop().user_data(4)).unwrap();
        queue.push(op::timeout(Duration::from_millis(1)).user_data(5)).unwrap();
        let mut seen = Vec::new();
        while queue.in_flight() > 0 {
            for done in queue.reap(1).unwrap() {
                assert!(done.result.is_ok(), "{}: {:?}", done.user_data, done.result);
                seen.push(done.user_data);
            }
        }
        seen.sort();
        assert_eq!(seen, [1, 2, 3, 4, 5]);
    }
}

/// A device reports its errors as a status, which does not break a chain in the kernel.
#[test]
fn a_failed_command_ends_its_chain() {
    for path in devices() {
        let device = Device::open(&path);
        let mut queue = device.queue();
        let chain = [
            op::write(&device.file, device.buffer(1, 3), device.len).user_data(1),
            op::write(&device.file, device.buffer(1, 4), 0).user_data(2),
            op::fsync(&device.file).user_data(3),
        ];
        let fill = op::write(&device.file, device.buffer(1, 9), 0);
        assert_eq!(result(&mut queue, fill), Ok(device.block as u64));
        queue.push_chain(chain).unwrap();
        let mut results = [Ok(0); 3];
        while queue.in_flight() > 0 {
            for done in queue.reap(1).unwrap() {
                results[done.user_data as usize - 1] = done.result.map_err(|error| error.errno());
            }
        }
        assert_eq!(results, [Err(libc::ENOSPC), Err(libc::ECANCELED), Err(libc::ECANCELED)]);
        assert_eq!(device.contents(0, device.block), vec![9; device.block]);
        let chain = [
            op::write(&device.file, device.buffer(1, 4), 0).exact(),
            op::fsync(&device.file),
            op::read(&device.file, device.buffer(1, 0), 0),
        ];
        queue.push_chain(chain).unwrap();
        let mut done = 0;
        while queue.in_flight() > 0 {
            done += queue.reap(1).unwrap().filter(|one| one.result.is_ok()).count();
        }
        assert_eq!(done, 3);
    }
}

#[test]
fn cancels_limits_and_a_drop_in_flight() {
    for path in devices() {
        let device = Device::open(&path);
        for (dropped, limit) in
            [(false, None), (false, Some(Duration::from_nanos(1))), (true, None)]
        {
            let mut queue = device.queue();
            for number in 0..64 {
                let at = number * device.block as u64;
                let mut read = op::read(&device.file, device.buffer(1, 0), at).user_data(number);
                if let Some(limit) = limit {
                    read = read.timeout(limit);
                }
                queue.push(read).unwrap();
            }
            queue.submit().unwrap();
            if dropped {
                continue;
            }
            queue.cancel_all();
            while queue.in_flight() > 0 {
                for done in queue.reap(1).unwrap() {
                    match done.result.map_err(|error| error.errno()) {
                        Ok(len) => assert_eq!(len, device.block as u64),
                        Err(errno) => {
                            assert!([libc::ECANCELED, libc::ETIMEDOUT].contains(&errno), "{errno}")
                        }
                    }
                }
            }
            let counts = queue.stats().counts;
            assert_eq!((counts.pushed, counts.in_flight), (counts.delivered, 0));
        }
    }
}

#[test]
fn polled_commands() {
    const FLUSH: u64 = u64::MAX;
    const MINUTE: Duration = Duration::from_secs(60);
    for path in devices() {
        let device = Device::open(&path);
        let options = device.options().strict(false).iopoll(&device.file);
        let mut queue = options.build().unwrap();
        let explanation = queue.explain();
        if !explanation.available.contains(&Feature::IoPoll) {
            let is_iopoll = |one: &&ringway_core::Refusal| one.feature == Feature::IoPoll;
            let refusal = explanation.refusals.iter().find(is_iopoll).unwrap();
            assert_eq!(refusal.errno, libc::EOPNOTSUPP, "{refusal}");
            println!("skipped: {refusal}");
            continue;
        }
        assert!(explanation.available.contains(&Feature::Passthrough), "{explanation}");
        let block = device.block as u64;
        let write = op::write(&device.file, numbered(&device, 0, 64), 0);
        assert_eq!(result(&mut queue, write.exact()), Ok(64 * block));
        assert_eq!(result(&mut queue, op::fsync(&device.file)), Ok(0));
        for round in 0..8u64 {
            // A flush cannot be polled for. It has its own way, among those that can.
            queue.push(op::fdatasync(&device.file).user_data(FLUSH)).unwrap();
            for number in 0..32 {
                let at = (number * 5 + round) % 64;
                let read = op::read(&device.file, device.buffer(1, 0), at * block);
                queue.push(read.user_data(at)).unwrap();
            }
            while queue.in_flight() > 0 {
                for done in queue.reap(1).unwrap() {
                    if done.user_data == FLUSH {
                        assert_eq!(done.result, Ok(0));
                        continue;
                    }
                    assert_eq!(done.result, Ok(block));
                    let word = (done.user_data + 1).to_le_bytes();
                    assert_eq!(done.into_buffer().unwrap().as_slice()[..8], word);
                }
            }
        }
        assert_eq!(queue.stats().to_threads, 9, "the syncs; all transfers were polled for");
        let limited = op::read(&device.file, device.buffer(1, 0), 0).timeout(MINUTE);
        assert_eq!(result(&mut queue, limited), Ok(block));
        assert_eq!(queue.stats().to_threads, 9);
        // After a chain, and after everything before it.
        let bytes = numbered(&device, 7, 1);
        let chain = [op::write(&device.file, bytes, 0), op::fsync(&device.file)];
        queue.push_chain(chain).unwrap();
        queue.push(op::fsync(&device.file).drain()).unwrap();
        let results: Vec<_> = queue.reap(3).unwrap().map(|done| done.result).collect();
        assert_eq!(results, [Ok(block), Ok(0), Ok(0)]);
    }
}

/// On a queue without passthrough the kernel refuses the transfer, and the error has the fix.
#[test]
fn without_the_option_the_error_has_the_fix() {
    for path in devices() {
        let device = Device::open(&path);
        for backend in BackendKind::ALL {
            let Ok(mut queue) = Options::new().backend(backend).build() else { continue };
            for operation in [
                op::read(&device.file, device.buffer(1, 0), 0),
                op::write(&device.file, device.buffer(1, 0), 0),
            ] {
                queue.push(operation).unwrap();
                let done = queue.reap(1).unwrap().next().unwrap();
                let error = done.result.unwrap_err();
                assert_eq!((error.errno(), error.nvme_status()), (libc::EINVAL, None), "{backend}");
                let text = error.to_string();
                assert!(text.contains("fix: build it with Options::passthrough"), "{text}");
            }
        }
    }
}

/// The option is refused with a reason and a fix, and the queue works without; with `strict` the
/// build fails.
#[test]
fn a_file_that_is_no_namespace_is_refused() {
    let null = File::open("/dev/null").unwrap();
    for backend in BackendKind::ALL {
        let options = Options::new().backend(backend).passthrough(&null);
        let Ok(mut queue) = options.build() else { continue };
        let explanation = queue.explain();
        assert!(!explanation.available.contains(&Feature::Passthrough), "{explanation}");
        let refused = |one: &&ringway_core::Refusal| one.feature == Feature::Passthrough;
        let refusal = explanation.refusals.iter().find(refused).expect("it is refused");
        assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
        assert_eq!(result(&mut queue, op::nop()), Ok(0));
        match options.strict(true).build() {
            Err(BuildError::Refused(refusal)) => {
                assert_eq!(refusal.feature, Feature::Passthrough, "{refusal}");
            }
            other => panic!("{:?}", other.map(|queue| queue.explain().to_string())),
        }
    }
}
