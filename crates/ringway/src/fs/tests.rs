//! What is left after a failure, an injected fault or a drop at each step of multi-step functions.

use super::OpenOptions;
use super::atomic::NewFile;
use super::path::stat;
use crate::{BackendKind, Engine, FaultPlan};
use futures::executor::block_on;
use ringway_core::{FaultStep, Late, op};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const OLD: &[u8] = b"the old content";
/// Several chunks.
const LEN: usize = 3 << 20;
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An engine on each backend that this machine supports.
fn engines(plan: Option<FaultPlan>) -> impl Iterator<Item = Engine> {
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads].into_iter().filter_map(
        move |kind| {
            let builder = Engine::builder().shards(1).backend(kind);
            let builder = match &plan {
                Some(plan) => builder.faults(plan.clone()),
                None => builder,
            };
            builder.build().inspect_err(|error| println!("skipped: {kind}: {error}")).ok()
        },
    )
}

/// Waits until nothing is in flight: dropped operations have ended.
fn settle(engine: &Engine) {
    let begun = Instant::now();
    while engine.stats().counts.in_flight > 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "operations are still in flight");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls a future `polls` times, when it is woken or a little later, and drops it.
fn poll_and_drop<T>(work: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut work = pin!(work);
    for _ in 0..polls {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// The two forms of an atomic write.
#[derive(Clone, Copy, Debug)]
enum Form {
    AtOnce,
    /// In chunks, with write-behind and a seek between them.
    Streamed,
}

const FORMS: [Form; 2] = [Form::AtOnce, Form::Streamed];

async fn replace(form: Form, engine: &Engine, path: &Path, new: Vec<u8>) -> io::Result<()> {
    match form {
        Form::AtOnce => engine.fs().write_atomic(path, new).await,
        Form::Streamed => {
            let mut file = engine.fs().create_atomic(path).await?.chunk(256 << 10).write_behind(2);
            file.write_all(&new[..new.len() / 2]).await?;
            file.seek(io::SeekFrom::Current(1)).await?;
            file.write_all(&new[new.len() / 2 + 1..]).await?;
            file.seek(io::SeekFrom::Start(new.len() as u64 / 2)).await?;
            file.write_all(&new[new.len() / 2..][..1]).await?;
            file.commit().await
        }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

/// Checks that the file has the old content or the new, and that there is no other file.
fn check(dir: &Path, new: &[u8]) -> bool {
    assert_eq!(names(dir), ["settings"]);
    let now = fs::read(dir.join("settings")).unwrap();
    assert!(now == OLD || now == new, "{} bytes, neither the old ones nor the new", now.len());
    assert_eq!(fs::metadata(dir.join("settings")).unwrap().permissions().mode() & 0o777, 0o604);
    now == new
}

fn old(dir: &Path) {
    let path = dir.join("settings");
    let _ = fs::remove_file(&path);
    fs::write(&path, OLD).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o604)).unwrap();
}

#[test]
fn an_atomic_write_that_is_dropped_leaves_nothing() {
    let plan = FaultPlan::new(3).delay(300, 3).reorder(200).short(200);
    for engine in engines(None).chain(engines(Some(plan))) {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, mut replaced) = (0, 0);
        for (polls, form) in
            (0..60).chain([5_000]).flat_map(|polls| FORMS.map(|form| (polls, form)))
        {
            old(dir.path());
            let new = vec![polls as u8; LEN];
            let done = poll_and_drop(
                replace(form, &engine, &dir.path().join("settings"), new.clone()),
                polls,
            );
            settle(&engine);
            if check(dir.path(), &new) {
                replaced += 1
            } else {
                kept += 1
            }
            if let Some(done) = done {
                done.unwrap();
                assert_eq!(fs::read(dir.path().join("settings")).unwrap(), new);
            }
        }
        assert!(kept > 0 && replaced > 0, "{kept} kept, {replaced} replaced");
    }
}

#[test]
fn an_atomic_write_that_fails_leaves_nothing() {
    let mut failures = 0;
    for (seed, form) in (0..60).flat_map(|seed| FORMS.map(|form| (seed, form))) {
        for engine in engines(Some(FaultPlan::new(seed).errors(120).retryable(100))) {
            let dir = tempfile::tempdir().unwrap();
            old(dir.path());
            let new = vec![1; LEN];
            let result =
                block_on(replace(form, &engine, &dir.path().join("settings"), new.clone()));
            settle(&engine);
            let replaced = check(dir.path(), &new);
            match result {
                Ok(()) => assert!(replaced),
                Err(_) => failures += 1,
            }
        }
    }
    assert!(failures > 20, "{failures} failures");
}

/// Each step fails in turn. Retryable results are retried. Any other error is returned and leaves
/// the old content, unless it is that of the last step, the sync of the directory.
#[test]
fn each_step_of_an_atomic_write_fails() {
    let failed =
        [libc::EIO, libc::ENOSPC, libc::EINTR, libc::EAGAIN, libc::ECANCELED].map(|errno| {
            let mut results = Vec::new();
            for (step, form) in (0..24).flat_map(|step| FORMS.map(|form| (step, form))) {
                for engine in engines(Some(FaultPlan::new(0).fail(FaultStep::Job(step), errno))) {
                    let dir = tempfile::tempdir().unwrap();
                    old(dir.path());
                    let new = vec![1; LEN];
                    let result =
                        block_on(replace(form, &engine, &dir.path().join("settings"), new.clone()));
                    settle(&engine);
                    let replaced = check(dir.path(), &new);
                    match &result {
                        Ok(()) => assert!(replaced),
                        Err(error) => assert_eq!(error.raw_os_error(), Some(errno), "{error}"),
                    }
                    results.push((engine.backend(), form as u8, step, replaced, result.is_err()));
                }
            }
            let kinds = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
            for (kind, form) in
                kinds.into_iter().flat_map(|kind| FORMS.map(|form| (kind, form as u8)))
            {
                let of_kind =
                    results.iter().filter(|(of, in_form, ..)| (*of, *in_form) == (kind, form));
                let errors: Vec<_> = of_kind.filter(|(.., failed)| *failed).collect();
                if let Some((last, before)) = errors.split_last() {
                    assert!(last.3, "{kind}, {form}: the last step syncs the directory");
                    assert!(before.iter().all(|(.., replaced, _)| !replaced), "{kind}: {before:?}");
                }
            }
            results.into_iter().filter(|(.., failed)| *failed).count()
        });
    assert!(failed[0] > 4 && failed[0] == failed[1], "{failed:?}");
    assert_eq!(failed[2..], [0; 3], "these are retried");
}

/// Each step in turn never completes, and the future is dropped.
#[test]
fn an_atomic_write_dropped_at_a_step_that_hangs_leaves_nothing() {
    let mut dropped = 0;
    for (step, form) in (0..20).flat_map(|step| FORMS.map(|form| (step, form))) {
        for engine in engines(Some(FaultPlan::new(0).late(FaultStep::Job(step), Late::Forever))) {
            let dir = tempfile::tempdir().unwrap();
            old(dir.path());
            let new = vec![1; LEN];
            let done = poll_and_drop(
                replace(form, &engine, &dir.path().join("settings"), new.clone()),
                300,
            );
            dropped += usize::from(done.is_none());
            settle(&engine);
            check(dir.path(), &new);
        }
    }
    assert!(dropped > 4, "{dropped} were dropped");
}

/// Temporary names, for file systems without unnamed files.
#[test]
fn a_temporary_name_is_removed_or_becomes_the_final_one() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let open = || fs::File::open(dir.path()).map(ringway_core::File::from);
    let settings = OsStr::new("settings");
    for mode in [None, Some(0o604)] {
        let new = NewFile::named(open()?, settings, mode)?;
        assert_eq!(names(dir.path()).len(), 1);
        assert!(names(dir.path())[0].starts_with(".settings."), "{:?}", names(dir.path()));
        drop(new);
        assert!(names(dir.path()).is_empty());
    }
    old(dir.path());
    NewFile::named(open()?, settings, Some(0o604))?.take_name(settings)?;
    assert!(check(dir.path(), b""), "an empty file has replaced it");
    old(dir.path());
    let unnamed = NewFile::unnamed(open()?, Some(0o604))?
        .expect("the target directory's file system has O_TMPFILE");
    assert_eq!(names(dir.path()), ["settings"]);
    unnamed.take_name(settings)?;
    assert!(check(dir.path(), b""));
    // A directory cannot be replaced: neither kind of new file is left.
    fs::create_dir(dir.path().join("taken"))?;
    for new in [NewFile::named(open()?, settings, None)?, NewFile::unnamed(open()?, None)?.unwrap()]
    {
        assert_eq!(
            new.take_name(OsStr::new("taken")).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        assert_eq!(names(dir.path()), ["settings", "taken"]);
    }
    // Names have at most 255 bytes, whatever the characters.
    let long = OsStr::new("ä").to_os_string().into_string().unwrap().repeat(127);
    drop(NewFile::named(open()?, OsStr::new(&long), None)?);
    // Nor need they be UTF-8.
    let new = NewFile::named(open()?, OsStr::from_bytes(b"b\xfccher"), None)?;
    let found = fs::read_dir(dir.path())?.map(|entry| entry.map(|entry| entry.file_name()));
    let found: Vec<_> = found.collect::<io::Result<_>>()?;
    assert!(found.iter().any(|name| name.as_bytes().starts_with(b".b\xfccher.")), "{found:?}");
    drop(new);
    Ok(())
}

/// Temporary names left by an earlier process with the same ID do not collide.
#[test]
fn temporary_names_do_not_collide() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let open = || fs::File::open(dir.path()).map(ringway_core::File::from);
    let many: Vec<NewFile> = (0..100)
        .map(|_| NewFile::named(open()?, OsStr::new("x"), None))
        .collect::<io::Result<_>>()?;
    assert_eq!(names(dir.path()).len(), many.len());
    Ok(())
}

#[test]
fn a_dropped_or_failed_copy_leaves_a_prefix_and_the_source() {
    let plan = FaultPlan::new(5).delay(200, 3).short(200).errors(30);
    for engine in engines(None).chain(engines(Some(plan))) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let content: Vec<u8> = (0..20_000_000u32).map(|byte| (byte % 251) as u8).collect();
        fs::write(&from, &content).unwrap();
        let mut whole = 0;
        for polls in (0..20).chain([10_000]) {
            fs::write(&to, OLD).unwrap();
            let done = poll_and_drop(engine.fs().copy(&from, &to), polls);
            settle(&engine);
            let copied = fs::read(&to).unwrap();
            assert!(
                copied == OLD || content.starts_with(&copied),
                "{polls} polls: {} bytes",
                copied.len()
            );
            if let Some(Ok(bytes)) = done {
                assert_eq!((bytes, copied.len()), (content.len() as u64, content.len()));
                whole += 1;
            }
            assert!(fs::read(&from).unwrap() == content);
        }
        println!("{}: {whole} complete copies", engine.backend());
    }
}

/// Calls that hang do not delay other operations. Calls that have not started are dropped with
/// their futures.
#[test]
fn hanging_calls_delay_nothing_else() {
    for engine in engines(None) {
        let dir = tempfile::tempdir().unwrap();
        old(dir.path());
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let mut hanging: Vec<_> = (0..1500)
            .map(|_| {
                let wait = Arc::clone(&wait);
                // Blocks until the sender is dropped.
                Box::pin(engine.call(move || Ok(wait.lock().unwrap().recv().is_err())))
            })
            .collect();
        for call in &mut hanging {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        block_on(async {
            let path = dir.path().join("settings");
            stat(&engine, op::statx(&path)).await.unwrap();
            let file = OpenOptions::new().write(true).engine(&engine).open(&path).await.unwrap();
            file.write_all_at(b"new".to_vec(), 0).await.0.unwrap();
            file.sync_all().await.unwrap();
            assert_eq!(&engine.open(&path).await.unwrap().read(0..3).await.unwrap()[..], b"new");
        });
        drop(hanging);
        drop(go);
        settle(&engine);
        assert_eq!(Arc::strong_count(&wait), 1, "all closures are dropped");
    }
}
