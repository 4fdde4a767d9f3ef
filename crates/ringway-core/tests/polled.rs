//! Rings that poll the device for completions (`Options::iopoll`): transfers, operations that such
//! a ring does not support, cancels, and a queue that is dropped with operations in flight. They
//! need `TMPDIR` on a device with poll queues (NVMe with `nvme.poll_queues=1`).

// Other systems have no ring.
#![cfg(ringway_linux)]

use ringway_core::op::{self, Position};
use ringway_core::refusal::Feature;
use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, BuildError, File, OpenOptions, Options, Queue,
};
use std::env;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;
const BLOCK: usize = 4096;

/// A direct file of `LEN` bytes, each the number of its block. `None` after printing why the test
/// is skipped: that the device has no poll queues is no failure, anything else is.
fn file() -> Option<File> {
    let path = env::temp_dir().join(format!("polled-{:?}", std::thread::current().id()));
    let content: Vec<u8> = (0..LEN).map(|at| (at / BLOCK) as u8).collect();
    std::fs::write(&path, content).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let opened = OpenOptions::new().read(true).write(true).direct(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            println!("skipped: no direct I/O in TMPDIR: {error}");
            return None;
        }
    };
    let refusal = match Options::new().backend(BackendKind::Uring).iopoll(&file).build() {
        Ok(queue) => {
            let mut refusals = queue.explain().refusals.into_iter();
            match refusals.find(|refusal| refusal.feature == Feature::IoPoll) {
                None => return Some(file),
                Some(refusal) => refusal,
            }
        }
        Err(BuildError::Refused(refusal)) => refusal,
        Err(error) => panic!("{error}"),
    };
    assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
    let no_poll_queues = (Feature::IoPoll, libc::EOPNOTSUPP);
    let is_expected =
        (refusal.feature, refusal.errno) == no_poll_queues || refusal.feature == Feature::Uring;
    assert!(is_expected, "{refusal}");
    println!("skipped: {refusal}");
    None
}

fn queue(file: &File) -> Queue {
    let queue = Options::new().backend(BackendKind::Uring).iopoll(file).build().unwrap();
    assert!(queue.explain().available.contains(&Feature::IoPoll), "{}", queue.explain());
    queue
}

fn buffer(file: &File, fill: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::for_direct(file.direct_io(), BLOCK);
    buffer.fill(fill);
    buffer
}

fn bytes(buffer: Buffer) -> Vec<u8> {
    buffer.as_slice().to_vec()
}

#[test]
fn transfers() {
    let Some(file) = file() else { return };
    let mut queue = queue(&file);
    for round in 0..8u64 {
        for block in 0..32 {
            let at = (round * 32 + block) * BLOCK as u64;
            queue.push(op::read(&file, buffer(&file, 0), at).user_data(at)).unwrap();
        }
        while queue.in_flight() > 0 {
            for done in queue.reap(1).unwrap() {
                let number = (done.user_data / BLOCK as u64) as u8;
                assert_eq!(done.result, Ok(BLOCK as u64));
                assert_eq!(bytes(done.into_buffer().unwrap()), [number; BLOCK]);
            }
        }
    }
    queue.push(op::write(&file, buffer(&file, 0xab), 8192)).unwrap();
    assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(BLOCK as u64));
    queue.push(op::read(&file, buffer(&file, 0), 8192)).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let done = queue.reap_until(1, until).unwrap().next().unwrap();
    assert_eq!(bytes(done.into_buffer().unwrap()), [0xab; BLOCK]);
    assert_eq!(queue.stats().to_threads, 0, "all of them were polled for");
    // An address or an offset that is not aligned fails as it does elsewhere.
    let unaligned = op::read(&file, Buffer::from(buffer(&file, 0)).slice(..100), 0);
    queue.push(unaligned).unwrap();
    let result = queue.reap(1).unwrap().next().unwrap().result;
    assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
}

/// Before kernel 5.13, direct reads of cached pages go to io-wq workers, and the ring has nothing
/// to poll for: that must not make the queue enter it again and again.
#[test]
fn cached_pages_cost_few_system_calls() {
    let Some(file) = file() else { return };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let cached = std::fs::File::open(path).unwrap();
    let mut queue = queue(&file);
    const READS: u64 = 200;
    for number in 0..READS {
        let at = number % 256 * BLOCK as u64;
        std::os::unix::fs::FileExt::read_exact_at(&cached, &mut [0; BLOCK], at).unwrap();
        queue.push(op::read(&file, buffer(&file, 0), at)).unwrap();
        assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(BLOCK as u64));
    }
    let calls = queue.stats().system_calls;
    assert!(calls < 32 * READS, "{calls} system calls for {READS} reads");
}

#[test]
fn other_operations_run_on_threads() {
    let Some(file) = file() else { return };
    let mut queue = queue(&file);
    assert_eq!(queue.poll_fd().unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    let buffered = File::open("/etc/passwd").unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = File::from(std::os::fd::OwnedFd::from(reader));
    queue.push(op::nop().user_data(0)).unwrap();
    queue.push(op::fsync(&file).user_data(1)).unwrap();
    queue.push(op::read(&buffered, vec![0; 16], 0).user_data(2)).unwrap();
    queue.push(op::timeout(Duration::from_millis(5)).user_data(3)).unwrap();
    let limited = op::read(&reader, vec![0; 1], Position::Current);
    queue.push(limited.timeout(Duration::from_millis(5)).user_data(4)).unwrap();
    queue.push(op::read(&file, buffer(&file, 0), 0).user_data(5)).unwrap();
    let mut results = [None; 6];
    while queue.in_flight() > 0 {
        for done in queue.reap(1).unwrap() {
            results[done.user_data as usize] = Some(done.result.map_err(|error| error.errno()));
        }
    }
    let expected = [Ok(0), Ok(0), Ok(16), Ok(0), Err(libc::ETIMEDOUT), Ok(BLOCK as u64)].map(Some);
    assert_eq!(results, expected);
    assert_eq!(queue.stats().to_threads, 5);
}

/// Direct files of a device or file system that cannot be polled.
#[test]
fn files_elsewhere_run_on_threads() {
    let Some(file) = file() else { return };
    let path = format!("/dev/shm/elsewhere-{}", std::process::id());
    std::fs::write(&path, [7; BLOCK]).unwrap();
    let opened = OpenOptions::new().read(true).direct(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    let Ok(elsewhere) = opened else {
        return println!("skipped: no direct I/O on /dev/shm");
    };
    let mut queue = queue(&file);
    for _ in 0..3 {
        queue.push(op::read(&elsewhere, buffer(&elsewhere, 0), 0)).unwrap();
        let done = queue.reap(1).unwrap().next().unwrap();
        assert_eq!(done.result, Ok(BLOCK as u64));
        assert_eq!(bytes(done.into_buffer().unwrap()), [7; BLOCK]);
    }
}

#[test]
fn cancels_and_a_drop_in_flight() {
    let Some(file) = file() else { return };
    for dropped in [false, true] {
        let mut queue = queue(&file);
        for number in 0..64 {
            let read = op::read(&file, buffer(&file, 0), number * BLOCK as u64);
            queue.push(read.user_data(number)).unwrap();
        }
        queue.submit().unwrap();
        if dropped {
            continue;
        }
        queue.cancel_all();
        while queue.in_flight() > 0 {
            for done in queue.reap(1).unwrap() {
                match done.result {
                    Ok(len) => assert_eq!(len, BLOCK as u64),
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
        }
        let counts = queue.stats().counts;
        assert_eq!((counts.pushed, counts.in_flight), (counts.delivered, 0));
    }
}

/// Such a ring takes no linked timeout, and cancelled the transfer that it was linked to.
#[test]
fn a_time_limit_cancels_no_transfer() {
    let Some(file) = file() else { return };
    let mut queue = queue(&file);
    let minute = Duration::from_secs(60);
    for number in 0..20 {
        let write = op::write(&file, buffer(&file, number), 0).timeout(minute);
        queue.push_chain([write, op::read(&file, buffer(&file, 0), 0).timeout(minute)]).unwrap();
        let done: Vec<_> = queue.reap(2).unwrap().collect();
        assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    }
    assert_eq!((queue.stats().retries, queue.stats().to_threads), (0, 0));
}

/// A read of an empty file, or of a hole, does not reach the device.
#[test]
fn an_empty_file_is_accepted_only_where_a_written_one_is() {
    let is_polled = file().is_some();
    for len in [0, 1 << 20] {
        let path = env::temp_dir().join(format!("polled-{len}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        let opened = OpenOptions::new().read(true).direct(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        let Ok(file) = opened else { return println!("skipped: no direct I/O in TMPDIR") };
        let Ok(queue) = Options::new().backend(BackendKind::Uring).iopoll(&file).build() else {
            return println!("skipped: no io_uring");
        };
        let explanation = queue.explain();
        assert_eq!(explanation.available.contains(&Feature::IoPoll), is_polled, "{explanation}");
    }
}

/// A buffered file cannot be polled for: refused with the reason, and the queue works without.
#[test]
fn a_buffered_file_is_refused() {
    let buffered = File::open("/etc/passwd").unwrap();
    let Ok(mut queue) = Options::new().backend(BackendKind::Uring).iopoll(&buffered).build() else {
        return println!("skipped: no io_uring");
    };
    let explanation = queue.explain();
    assert!(!explanation.available.contains(&Feature::IoPoll), "{explanation}");
    let refusal = explanation.refusals.iter().find(|one| one.feature == Feature::IoPoll).unwrap();
    assert!(refusal.meaning.contains("O_DIRECT") && !refusal.fix.is_empty(), "{refusal}");
    queue.push(op::read(&buffered, vec![0; 16], 0)).unwrap();
    assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(16));
}
