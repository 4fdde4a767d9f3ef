//! Untorn writes (`RWF_ATOMIC`): whole where the file system has them, and refused elsewhere,
//! before they are submitted or by the kernel, but never made as plain writes.

use super::errors::file_system;
use super::world::{World, buffer_for, bytes, filled, pattern, pipe, skip};
use ringway_core::op::{self, Position, RwFlags, UntornProblem, Vectored};
use ringway_core::{
    AlignedBuffer, Arena, BackendKind, FaultPlan, FaultStep, File, OpenOptions, Operation,
    PushError, Reason,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

const PAGE: usize = 4096;
const LEN: usize = 16 * PAGE;

/// The problem for which a push is rejected.
fn problem(error: &PushError) -> UntornProblem {
    let Reason::Untorn(problem) = error.reason() else { panic!("{error}") };
    assert_eq!(error.reason().errno(), problem.errno());
    let text = error.to_string();
    assert!(text.contains("RWF_ATOMIC refused: E") && text.contains("; fix: "), "{text}");
    problem
}

fn content(file: &File) -> Vec<u8> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read(path).unwrap()
}

/// On disk and in memory, buffered and direct: the buffer is returned, and nothing is written.
pub fn refused_before_submission(world: &World) {
    let mut queue = world.queue();
    for file in world.files("untorn", &pattern(0, LEN)) {
        let unit = file.atomic_write_unit();
        let expected = match unit {
            None => UntornProblem::Unsupported,
            Some(_) if !file.is_direct() => UntornProblem::NotDirect,
            Some(_) => continue,
        };
        let writes: [&dyn Fn(AlignedBuffer) -> Operation; 3] = [
            &|buffer| op::write(&file, buffer, 0),
            &|buffer| op::write_dsync(&file, buffer, 0),
            &|buffer| op::write(&file, buffer, 0).exact(),
        ];
        for write in writes {
            let error = queue.push(write(buffer_for(&file, PAGE)).untorn()).unwrap_err();
            assert_eq!(problem(&error), expected);
            let buffer = error.into_operations().remove(0).into_buffer().unwrap();
            assert_eq!(buffer.as_slice(), [0xee; PAGE]);
        }
        // One member of a chain refuses all of it.
        let chain = [
            op::write(&file, buffer_for(&file, PAGE), 0),
            op::write(&file, buffer_for(&file, PAGE), 0).untorn(),
        ];
        let error = queue.push_chain(chain).unwrap_err();
        assert!(matches!(error.reason(), Reason::Untorn(_)), "{error}");
        // The text is about the operation that is refused.
        let chain = [op::fsync(&file), op::write(&file, buffer_for(&file, PAGE), 0).untorn()];
        let error = queue.push_chain(chain).unwrap_err();
        assert!(error.to_string().starts_with("write: RWF_ATOMIC"), "{error}");
        assert_eq!(problem(&error), expected);
        assert!(content(&file) == pattern(0, LEN));
    }
    let file = world.file(&pattern(0, LEN));
    let vectors = Vectored::new([vec![0; PAGE]]);
    let (_reader, writer) = pipe();
    let never = [
        op::read(&file, vec![0; PAGE], 0),
        op::write(&file, vec![0; PAGE], Position::Current),
        op::writev(&file, vectors, 0),
        op::fsync(&file),
        op::nop(),
    ];
    for operation in never {
        let error = queue.push(operation.untorn()).unwrap_err();
        assert_eq!(error.reason().errno(), libc::EINVAL);
        assert!(error.to_string().contains("only a write from one buffer"), "{error}");
    }
    let error = queue.push(op::write(&writer, vec![0; 64], 0).untorn()).unwrap_err();
    assert_eq!(problem(&error), UntornProblem::Unsupported);
    assert_eq!(queue.stats().counts.pushed, 0);
}

/// A write with the flag that no check has seen: the kernel refuses it on every backend, and no
/// backend leaves the flag out.
pub fn never_a_plain_write(world: &World) {
    for file in world.files("flagged", &pattern(0, LEN)) {
        if file.atomic_write_unit().is_some() && file.is_direct() {
            continue;
        }
        let mut queue = world.queue();
        let buffer = buffer_for(&file, PAGE);
        let write = op::Write {
            fd: file.as_raw_fd(),
            buf: buffer.as_ptr(),
            len: PAGE,
            offset: 0,
            flags: RwFlags::ATOMIC,
        };
        for raw in [write.into(), op::WriteDsync(write).into()] {
            // SAFETY: the buffer outlives the completion.
            let operation = || unsafe { Operation::from_raw(raw, Some(file.clone()), None) };
            for exact in [false, true] {
                let write = if exact { operation().exact() } else { operation() };
                let error = queue.one(write).result.unwrap_err();
                assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
                assert!(error.to_string().contains("fix: "), "{error}");
                assert!(!error.is_torn());
            }
            let chain = [operation().user_data(0), op::fdatasync(&file).user_data(1)];
            queue.push_chain(chain).unwrap();
            let results: Vec<_> = queue.rest().into_values().collect();
            assert_eq!(results, [Err(libc::EOPNOTSUPP), Err(libc::ECANCELED)]);
        }
        assert!(content(&file) == pattern(0, LEN));
    }
}

/// A file of zeroes on XFS, which has untorn writes on any device, from 6.16 on.
fn on_xfs(world: &World) -> Option<File> {
    on_xfs_at(world).map(|(file, _)| file)
}

/// And its path.
fn on_xfs_at(world: &World) -> Option<(File, PathBuf)> {
    let dir = file_system(world, 512 << 10, &["mkfs.xfs", "-q", "-m", "reflink=1"])?;
    let path = dir.join("file");
    std::fs::write(&path, vec![0; LEN]).unwrap();
    let file = OpenOptions::new().read(true).write(true).direct(true).open(&path).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version < (6, 16) {
        assert_eq!(file.atomic_write_unit(), None);
        skip("a kernel before 6.16 has no untorn writes on XFS");
        return None;
    }
    Some((file, path))
}

pub fn whole_or_nothing(world: &World) {
    let Some(file) = on_xfs(world) else { return };
    let unit = file.atomic_write_unit().unwrap();
    assert!(unit.min as usize == PAGE && unit.max as usize > PAGE, "{unit:?}");
    assert!(unit.min.is_power_of_two() && unit.max.is_power_of_two() && unit.max_segments == 1);
    let mut queue = world.queue();
    let found = queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap();
    assert_eq!(found.atomic_write_unit(), Some(unit));
    let lens = || (0..32).map(|bit| 1usize << bit).filter(|len| unit.fits(*len as u64));
    // Each length, over a hole, over new blocks and over old ones, in flight together.
    let before = queue.stats();
    for round in 0..2u64 {
        let mut at = unit.max as u64;
        for len in lens() {
            at = at.next_multiple_of(len as u64);
            let durable = round == 1;
            let write = filled(&file, at + round, len);
            let write = if durable {
                op::write_dsync(&file, write, at)
            } else {
                op::write(&file, write, at)
            };
            queue.push(write.untorn().user_data(len as u64)).unwrap();
            at += len as u64;
        }
        for (len, result) in queue.rest() {
            assert_eq!(result, Ok(len), "{len} bytes, round {round}");
        }
    }
    let all = content(&file);
    let mut at = unit.max as u64;
    for len in lens() {
        at = at.next_multiple_of(len as u64);
        assert!(all[at as usize..at as usize + len] == pattern(at + 1, len), "{len} at {at}");
        at += len as u64;
    }
    // None was split.
    let after = queue.stats();
    assert_eq!((after.continued, after.retries), (before.continued, before.retries));
    refused_on_xfs(&mut queue, &file);
    chained(&mut queue, &file);
    registered(world, &file);
}

/// What the file does not take, although it has untorn writes.
fn refused_on_xfs(queue: &mut super::world::Checked, file: &File) {
    let unit = file.atomic_write_unit().unwrap();
    let (max, before) = (unit.max as usize, content(file));
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let buffered = OpenOptions::new().write(true).open(&path).unwrap();
    let mut options = OpenOptions::new();
    let appending = options.append(true).direct(true).open(&path).unwrap();
    let pushed = queue.stats().counts.pushed;
    use UntornProblem as P;
    let cases = [
        (file, PAGE / 2, 0, P::Length),
        (file, 3 * PAGE, 0, P::Length),
        (file, 2 * max, 0, P::Length),
        (file, max + PAGE, 0, P::Length),
        (file, 0, 0, P::Length),
        (file, 2 * PAGE, PAGE, P::Offset),
        (file, PAGE, 512, P::Offset),
        (&buffered, PAGE, 0, P::NotDirect),
        (&appending, PAGE, 0, P::Appends),
    ];
    for (file, len, at, expected) in cases {
        let error = queue.push(op::write(file, buffer_for(file, len), at as u64).untorn());
        let error = error.unwrap_err();
        assert_eq!(problem(&error), expected, "{len} at {at}");
        let names_the_unit = error.to_string().contains(&unit.to_string());
        assert_eq!(names_the_unit, expected == P::Length, "{error}");
    }
    // In a chain the text has the sizes of the file of which it speaks.
    let memory = tempfile::tempfile_in("/dev/shm").map(|file| File::from(OwnedFd::from(file)));
    let chain = [
        op::fsync(&memory.unwrap()),
        op::write(file, buffer_for(file, PAGE), 0).untorn(),
        op::write(file, buffer_for(file, 3 * PAGE), 0).untorn(),
    ];
    let error = queue.push_chain(chain).unwrap_err();
    assert_eq!(problem(&error), P::Length);
    let text = error.to_string();
    assert!(text.starts_with("write: ") && text.contains(&unit.to_string()), "{text}");
    let unaligned = ringway_core::Buffer::from(buffer_for(file, 2 * PAGE)).slice(1..PAGE + 1);
    let error = queue.push(op::write(file, unaligned, 0).untorn()).unwrap_err();
    assert_eq!(problem(&error), P::Memory);
    assert_eq!(queue.stats().counts.pushed, pushed, "nothing was submitted");
    // Without the check the kernel refuses it, and the error has a reason.
    let buffer = buffer_for(file, 4 * PAGE);
    let raw = op::Write {
        fd: file.as_raw_fd(),
        buf: buffer.as_ptr(),
        len: 3 * PAGE,
        offset: 0,
        flags: RwFlags::ATOMIC,
    };
    // SAFETY: the buffer outlives the completion.
    let write = unsafe { Operation::from_raw(raw.into(), Some(file.clone()), None) };
    let error = queue.one(write).result.unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    let text = error.to_string();
    assert!(text.contains("; fix: write a power of two") && !text.contains("overlay"), "{text}");
    assert!(content(file) == before);
}

/// In a chain, with a sync behind it.
fn chained(queue: &mut super::world::Checked, file: &File) {
    let chain = [
        op::write(file, filled(file, 7, 2 * PAGE), 0).untorn().user_data(0),
        op::fdatasync(file).user_data(1),
        op::read(file, buffer_for(file, 2 * PAGE), 0).user_data(2),
    ];
    queue.push_chain(chain).unwrap();
    let mut done = queue.completions();
    assert_eq!(done[&0].result, Ok(2 * PAGE as u64));
    assert_eq!(done[&1].result, Ok(0));
    assert!(bytes(done.remove(&2).unwrap()) == pattern(7, 2 * PAGE));
}

/// From memory that is registered with the ring, of which the kernel takes no untorn write.
fn registered(world: &World, file: &File) {
    let arena = Arena::new(4 * PAGE, 4);
    let mut queue = world.queue();
    let _ = world.register(|| queue.register_arena(&arena));
    let mut block = arena.take().unwrap();
    block.copy_from_slice(&pattern(9, 4 * PAGE));
    assert_eq!(queue.result(op::write(file, block, 0).untorn()), Ok(4 * PAGE as u64));
    assert!(content(file)[..4 * PAGE] == pattern(9, 4 * PAGE));
}

/// If a kernel makes a part of it after all, that is an error, and nothing continues it. (Beyond
/// `RLIMIT_FSIZE` it does, so such a write is refused.)
pub fn a_part_is_an_error(world: &World) {
    let Some(file) = on_xfs(world) else { return };
    let unit = file.atomic_write_unit().unwrap();
    let mut queue = world.build(&world.options().faults(FaultPlan::new(1).short(1000)));
    let write = || op::write(&file, filled(&file, 1, 4 * PAGE), 0).untorn();
    for write in [write(), write().exact()] {
        let error = queue.one(write).result.unwrap_err();
        assert!(error.errno() == libc::EIO && error.is_torn(), "{error}");
        assert!(error.to_string().contains("only a part"), "{error}");
    }
    let chain = [write().user_data(0), op::fdatasync(&file).user_data(1)];
    queue.push_chain(chain).unwrap();
    let results: Vec<_> = queue.rest().into_values().collect();
    assert_eq!(results, [Err(libc::EIO), Err(libc::ECANCELED)]);
    // A raw operation with the flag is no different.
    let buffer = buffer_for(&file, 4 * PAGE);
    let (fd, buf) = (file.as_raw_fd(), buffer.as_ptr());
    let raw = op::Write { fd, buf, len: 4 * PAGE, offset: 0, flags: RwFlags::ATOMIC };
    for raw in [raw.into(), op::WriteDsync(raw).into()] {
        for file in [Some(file.clone()), None] {
            // SAFETY: the buffer and the file outlive the completion.
            let write = unsafe { Operation::from_raw(raw, file, None) };
            let error = queue.one(write).result.unwrap_err();
            assert!(error.errno() == libc::EIO && error.is_torn(), "{error}");
        }
    }
    assert_eq!(queue.stats().continued, 0);
    // What is to be repeated is repeated as a whole.
    let mut queue = world.build(&world.options().faults(FaultPlan::new(2).retryable(500)));
    for _ in 0..20 {
        assert_eq!(queue.result(write()), Ok(4 * PAGE as u64));
    }
    // (This process is one of its own.)
    let limit = libc::rlimit { rlim_cur: 6 * PAGE as u64, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a live value that is only read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let mut queue = world.queue();
    let before = content(&file);
    let beyond = op::write(&file, filled(&file, 3, 4 * PAGE), 4 * PAGE as u64).untorn();
    let error = queue.push(beyond).unwrap_err();
    assert_eq!(problem(&error), UntornProblem::FileSizeLimit);
    assert!(content(&file) == before);
    let within = op::write(&file, filled(&file, 3, 2 * PAGE), 4 * PAGE as u64).untorn();
    assert_eq!(queue.result(within), Ok(2 * PAGE as u64));
    assert!(unit.fits(4 * PAGE as u64));
}

/// While pages of the range are dirtied through a mapping, the kernel answers EAGAIN. The write is
/// repeated a few times, then by a thread; what remains is an error with a reason.
pub fn busy_pages_are_an_error(world: &World) {
    let Some(file) = on_xfs(world) else { return };
    let write = || op::write(&file, filled(&file, 1, 4 * PAGE), 0).untorn();
    let faults = |count| {
        (0..count).fold(FaultPlan::new(1), |plan, job| plan.fail(FaultStep::Job(job), libc::EAGAIN))
    };
    let mut queue = world.build(&world.options().faults(faults(3)));
    assert_eq!(queue.result(write()), Ok(4 * PAGE as u64));
    assert_eq!(queue.stats().retries, 3);
    let mut queue = world.build(&world.options().faults(faults(100)));
    let result = queue.one(write()).result;
    assert_eq!(queue.stats().retries, 9);
    if queue.backend() != BackendKind::Threads {
        // (No fault is injected into the threads.)
        assert_eq!(result, Ok(4 * PAGE as u64));
        return;
    }
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.errno(), libc::EAGAIN);
    assert!(text.contains("RWF_ATOMIC refused: EAGAIN") && text.contains("mapping"), "{text}");
    assert!(text.contains("; fix: repeat the write"), "{text}");
}

/// A remount may change the sizes. A length is refused only if the file does not take it now.
pub fn the_sizes_may_change(world: &World) {
    let Some((file, path)) = on_xfs_at(world) else { return };
    let remount = |options: &str| {
        let command = &mut Command::new("mount");
        let output = command.args(["-o", options]).arg(path.parent().unwrap()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {text}");
    };
    remount("remount,max_atomic_write=4k");
    assert_eq!(file.atomic_write_unit().map(|unit| unit.max as usize), Some(PAGE));
    let mut queue = world.queue();
    let write = || op::write(&file, filled(&file, 1, 4 * PAGE), 0).untorn();
    let error = queue.push(write()).unwrap_err();
    assert_eq!(problem(&error), UntornProblem::Length);
    assert!(error.to_string().ends_with("here 4 KiB"), "{error}");
    remount("remount,max_atomic_write=16k");
    assert_eq!(file.atomic_write_unit().map(|unit| unit.max as usize), Some(4 * PAGE));
    assert_eq!(queue.result(write()), Ok(4 * PAGE as u64));
    assert!(content(&file)[..4 * PAGE] == pattern(1, 4 * PAGE));
    // The sizes that the text names are those of now.
    let error = queue.push(op::write(&file, buffer_for(&file, 8 * PAGE), 0).untorn());
    assert!(error.as_ref().unwrap_err().to_string().ends_with("here 4 KiB to 16 KiB"), "{error:?}");
}
