//! Untorn writes (`RWF_ATOMIC`): on XFS of a loop device, which needs nothing of the device, and
//! the refusals everywhere.

#![cfg(target_os = "linux")]

mod common;

use common::mounted::Mounted;
use common::{PAGE, build_or_skip, is_older_than, on_each_backend, pattern, scratch};
use futures::executor::block_on;
use futures::future::join_all;
use ringway::fs::{AtomicWriteUnit, File, OpenOptions, TornWrite};
use ringway::{AlignedBuffer, BackendKind, Engine, FaultPlan, Refusal};
use ringway_core::FaultStep;
use ringway_core::op::Opcode;
use std::io::{self, ErrorKind};
use std::path::Path;

/// XFS, and whether its files have untorn writes: from 6.16 on.
fn xfs() -> Option<Mounted> {
    if is_older_than(6, 16) {
        println!("skipped: a kernel before 6.16 has no untorn writes on XFS");
        return None;
    }
    Mounted::new(&["mkfs.xfs", "-q", "-m", "reflink=1"])
}

async fn open(engine: &Engine, path: &Path, direct: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).direct(direct).engine(engine);
    options.open(path).await.unwrap()
}

fn buffer(at: u64, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len, PAGE);
    buffer.copy_from_slice(&pattern(at, len));
    buffer
}

/// An untorn write at the beginning.
async fn write(file: &File, data: AlignedBuffer, durable: bool) -> (io::Result<()>, AlignedBuffer) {
    if durable {
        file.write_untorn_durable_at(data, 0).await
    } else {
        file.write_untorn_at(data, 0).await
    }
}

/// The refusal in an error.
fn refusal(result: io::Result<()>) -> (ErrorKind, Refusal) {
    let error = result.unwrap_err();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>());
    let refusal = inner.unwrap_or_else(|| panic!("{error}")).clone();
    assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
    assert_eq!(refusal.feature.name(), "RWF_ATOMIC");
    assert_eq!(error.to_string(), refusal.to_string());
    (error.kind(), refusal)
}

async fn unit(file: &File) -> AtomicWriteUnit {
    file.atomic_write_unit().await.unwrap().expect("XFS has untorn writes")
}

#[test]
fn untorn_writes_are_whole() {
    let Some(xfs) = xfs() else { return };
    on_each_backend("untorn", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let path = xfs.path().join(format!("{kind}"));
        block_on(async {
            let file = open(&engine, &path, true).await;
            let unit = unit(&file).await;
            assert!(unit.min < unit.max && unit.max_segments == 1, "{unit:?}");
            let (clone, max) = (file.clone(), unit.max as usize);
            let lens = [unit.min as usize, 2 * unit.min as usize, max];
            for (round, len) in (0..).zip(lens) {
                let writes = (0..4u64).map(|number| {
                    let at = number * len as u64;
                    let file = if number % 2 == 0 { &file } else { &clone };
                    async move {
                        let data = buffer(at + round, len);
                        let (written, data) = match number {
                            0 | 1 => file.write_untorn_at(data, at).await,
                            _ => file.write_untorn_durable_at(data, at).await,
                        };
                        written.unwrap();
                        assert!(data[..] == pattern(at + round, len));
                    }
                });
                join_all(writes).await;
                let content = std::fs::read(&path).unwrap();
                assert!(content[..4 * len] == pattern(round, 4 * len), "{len} bytes");
            }
            // Blocks that are shared with a copy, and the end of the file.
            let copy = path.with_extension("copy");
            assert_eq!(engine.fs().copy(&path, &copy).await.unwrap(), 4 * max as u64);
            file.write_untorn_at(buffer(5, max), 0).await.0.unwrap();
            file.write_untorn_at(buffer(6, PAGE), 8 * max as u64).await.0.unwrap();
            let content = std::fs::read(&path).unwrap();
            assert!(content[..max] == pattern(5, max));
            assert!(content[8 * max..] == pattern(6, PAGE));
            assert!(std::fs::read(&copy).unwrap()[..max] == pattern(2, max));
        });
    });
}

#[test]
fn what_the_file_does_not_take_is_refused() {
    let Some(xfs) = xfs() else { return };
    on_each_backend("untorn", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let path = xfs.path().join(format!("{kind}"));
        std::fs::write(&path, pattern(0, 4 * PAGE)).unwrap();
        block_on(async {
            let file = open(&engine, &path, true).await;
            let unit = unit(&file).await;
            let max = unit.max as usize;
            let lens = [(0, 0), (512, 0), (3 * PAGE, 0), (2 * max, 0), (max + PAGE, 0)];
            for (len, at) in lens.into_iter().chain([(PAGE, 512), (2 * PAGE, PAGE as u64)]) {
                let write = file.write_untorn_at(buffer(7, len), at).await;
                assert!(write.1[..] == pattern(7, len), "the buffer is returned");
                let (kind, refusal) = refusal(write.0);
                assert_eq!((kind, refusal.errno), (ErrorKind::InvalidInput, libc::EINVAL));
                let write = file.write_untorn_durable_at(buffer(7, len), at).await;
                assert_eq!(write.0.unwrap_err().kind(), ErrorKind::InvalidInput);
                // A wrong length is told which ones are right.
                let names_it = refusal.fix.contains(&unit.to_string());
                assert_eq!(names_it, !unit.fits(len as u64), "{refusal}");
            }
            let unaligned = ringway::Buffer::from(buffer(7, 2 * PAGE)).slice(1..PAGE + 1);
            let (kind, refused) = refusal(file.write_untorn_at(unaligned, 0).await.0);
            assert_eq!((kind, refused.errno), (ErrorKind::InvalidInput, libc::EINVAL));
            let buffered = open(&engine, &path, false).await;
            // What it has does not depend on how it is open.
            assert_eq!(buffered.atomic_write_unit().await.unwrap(), Some(unit));
            let (kind, refused) = refusal(buffered.write_untorn_at(buffer(7, PAGE), 0).await.0);
            assert_eq!((kind, refused.errno), (ErrorKind::Unsupported, libc::EOPNOTSUPP));
            assert!(refused.meaning.contains("direct I/O"), "{refused}");
            let mut options = OpenOptions::new();
            let appending = options.append(true).direct(true).engine(&engine).open(&path);
            let (kind, refused) =
                refusal(appending.await.unwrap().write_untorn_at(buffer(7, PAGE), 0).await.0);
            assert_eq!((kind, refused.errno), (ErrorKind::InvalidInput, libc::EINVAL));
            assert!(std::fs::read(&path).unwrap() == pattern(0, 4 * PAGE), "nothing was written");
            file.sync_all().await.unwrap();
        });
    });
}

/// On disks without atomic writes and in memory.
#[test]
fn a_file_without_them_is_refused() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = scratch();
    on_each_backend("no untorn writes", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        for dir in [&disk, &memory] {
            let path = dir.path().join("file");
            std::fs::write(&path, pattern(0, 4 * PAGE)).unwrap();
            for direct in [false, true] {
                if direct && common::is_older_than(6, 6) {
                    continue;
                }
                block_on(async {
                    let file = open(&engine, &path, direct).await;
                    if file.atomic_write_unit().await.unwrap().is_some() {
                        return println!("{} has untorn writes", path.display());
                    }
                    for durable in [false, true] {
                        let (written, back) = write(&file, buffer(7, PAGE), durable).await;
                        let (kind, refused) = refusal(written);
                        assert_eq!(
                            (kind, refused.errno),
                            (ErrorKind::Unsupported, libc::EOPNOTSUPP)
                        );
                        assert!(back[..] == pattern(7, PAGE));
                    }
                    // It has no effect on later writes and syncs.
                    file.write_durable_at(buffer(0, PAGE), 0).await.0.unwrap();
                    file.sync_all().await.unwrap();
                    assert!(std::fs::read(&path).unwrap() == pattern(0, 4 * PAGE));
                });
            }
        }
        let (_reader, writer) = std::io::pipe().unwrap();
        let writer = File::from_fd(writer.into(), &engine);
        block_on(async {
            assert_eq!(writer.atomic_write_unit().await.unwrap(), None);
            for result in [
                writer.write_untorn_at(vec![0; 16], 0).await.0,
                writer.write_untorn_durable_at(vec![0; 16], 0).await.0,
            ] {
                assert_eq!(refusal(result).0, ErrorKind::Unsupported);
            }
        });
    });
}

/// An overlay reports what the file system below it has, and refuses the write: the kernel's
/// refusal is explained, too.
#[test]
fn an_overlay_refuses_what_it_reports() {
    let Some(xfs) = xfs() else { return };
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(xfs.path().join(name)).unwrap();
    }
    let merged = xfs.path().join("merged");
    let at = |name: &str| xfs.path().join(name).display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let mounted = std::process::Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return common::skip("no overlay");
    }
    let path = merged.join("file");
    std::fs::write(&path, pattern(0, 4 * PAGE)).unwrap();
    on_each_backend("overlay", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        block_on(async {
            let file = open(&engine, &path, true).await;
            unit(&file).await;
            for durable in [false, true] {
                let (written, _) = write(&file, buffer(7, PAGE), durable).await;
                let (kind, refused) = refusal(written);
                assert_eq!((kind, refused.errno), (ErrorKind::Unsupported, libc::EOPNOTSUPP));
            }
            assert!(std::fs::read(&path).unwrap() == pattern(0, 4 * PAGE));
        });
    });
    let unmounted = std::process::Command::new("umount").arg(&merged).status();
    assert!(unmounted.unwrap().success());
}

/// A write that the kernel makes in part is an error, and nothing continues it.
#[test]
fn a_part_is_an_error() {
    let Some(xfs) = xfs() else { return };
    on_each_backend("a part", |kind| {
        let builder = Engine::builder().faults(FaultPlan::new(1).short(1000));
        let Some(engine) = build_or_skip(kind, builder) else { return };
        block_on(async {
            let file = open(&engine, &xfs.path().join("part"), true).await;
            for durable in [false, true] {
                let (written, _) = write(&file, buffer(7, 4 * PAGE), durable).await;
                let error = written.unwrap_err();
                assert!(error.to_string().contains("only a part"), "{error}");
                // Not to be taken for an error of the device.
                assert!(error.get_ref().is_some_and(|inner| inner.is::<TornWrite>()), "{error:?}");
                assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::Other, None));
            }
            assert_eq!(engine.stats().continued, 0);
        });
    });
}

/// EAGAIN, with which the kernel answers while pages of the range are dirtied through a mapping, is
/// retried a few times, and then explained. (No fault is injected into the threads that a queue of
/// the kernel falls back to.)
#[test]
fn busy_pages_are_explained() {
    let Some(xfs) = xfs() else { return };
    on_each_backend("busy pages", |kind| {
        for durable in [false, true] {
            let plan = (0..10).fold(FaultPlan::new(1), |plan, job| {
                [Opcode::Write, Opcode::WriteDsync].into_iter().fold(plan, |plan, opcode| {
                    plan.fail(FaultStep::Opcode(opcode, job), libc::EAGAIN)
                })
            });
            let builder = Engine::builder().faults(plan);
            let Some(engine) = build_or_skip(kind, builder) else { return };
            block_on(async {
                let file = open(&engine, &xfs.path().join("busy"), true).await;
                let (written, data) = write(&file, buffer(7, 4 * PAGE), durable).await;
                assert!(data[..] == pattern(7, 4 * PAGE), "the buffer is returned");
                if kind != BackendKind::Threads {
                    return written.unwrap();
                }
                let (kind, refused) = refusal(written);
                assert_eq!((kind, refused.errno), (ErrorKind::WouldBlock, libc::EAGAIN));
                assert!(refused.meaning.contains("mapping"), "{refused}");
            });
        }
    });
}
