//! Functions on a file system that fails, lies and changes files: what ringway returns is what the
//! standard library returns there.

use crate::common::{BACKENDS, skip};
use crate::comparison::Outcome;
use crate::wait;
use ringway::Engine;
use ringway::fs::{self, File, OpenOptions};
use ringway_hostile::Hostile;
use ringway_torture::is_long;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const LEN: usize = 10_000;

/// A function of ringway, and the same of the standard library.
struct Pair {
    name: &'static str,
    ours: fn(&Path) -> Outcome,
    std: fn(&Path) -> Outcome,
}

/// Content in an outcome: its length and its bytes, briefly.
fn digest(bytes: Vec<u8>) -> (usize, u64) {
    let sum = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    (bytes.len(), bytes.iter().fold(0, sum))
}

fn other(path: &Path) -> std::path::PathBuf {
    path.with_file_name("other")
}

macro_rules! pairs {
    ($($name:literal, |$path:ident| $ours:expr, $std:expr;)*) => {
        &[$(Pair {
            name: $name,
            ours: |$path| Outcome::from(wait(async { $ours })),
            std: |$path| {
                let call = || -> io::Result<_> { $std };
                Outcome::from(call())
            },
        },)*]
    };
}

const PAIRS: &[Pair] = pairs! {
    "read", |path| fs::read(path).await.map(digest), std::fs::read(path).map(digest);
    "write", |path| fs::write(path, vec![7; LEN]).await, std::fs::write(path, vec![7; LEN]);
    "copy", |path| fs::copy(path, other(path)).await, std::fs::copy(path, other(path));
    "metadata",
        |path| fs::metadata(path).await.map(|found| found.len()),
        std::fs::metadata(path).map(|found| found.len());
    "exists", |path| fs::try_exists(path).await, std::fs::exists(path);
    "remove_file", |path| fs::remove_file(path).await, std::fs::remove_file(path);
    "rename", |path| fs::rename(path, other(path)).await, std::fs::rename(path, other(path));
    "read_at",
        |path| {
            let file = File::open(path).await?;
            let (read, mut bytes) = file.read_at(vec![0; LEN], 0).await;
            bytes.truncate(read?);
            Ok(digest(bytes))
        },
        {
            let mut bytes = vec![0; LEN];
            let read = std::fs::File::open(path)?.read_at(&mut bytes, 0)?;
            bytes.truncate(read);
            Ok(digest(bytes))
        };
    "read_exact_at",
        |path| {
            let file = File::open(path).await?;
            let (read, bytes) = file.read_exact_at(vec![0; 3000], 5000).await;
            read.map(|()| digest(bytes))
        },
        {
            let mut bytes = vec![0; 3000];
            std::fs::File::open(path)?.read_exact_at(&mut bytes, 5000)?;
            Ok(digest(bytes))
        };
    "write_at",
        |path| {
            let file = OpenOptions::new().write(true).open(path).await?;
            file.write_at(vec![7; LEN], 100).await.0
        },
        std::fs::File::options().write(true).open(path)?.write_at(&[7; LEN], 100);
    "write_all_at and sync",
        |path| {
            let file = OpenOptions::new().write(true).open(path).await?;
            file.write_all_at(vec![7; LEN], 100).await.0?;
            file.sync_all().await
        },
        {
            let file = std::fs::File::options().write(true).open(path)?;
            file.write_all_at(&[7; LEN], 100)?;
            file.sync_all()
        };
    "append",
        |path| {
            let file = OpenOptions::new().append(true).open(path).await?;
            file.write_all_at(vec![7; 5000], ringway::Position::Current).await.0
        },
        std::fs::File::options().append(true).open(path)?.write_all(&[7; 5000]);
    "set_len",
        |path| OpenOptions::new().write(true).open(path).await?.set_len(3333).await,
        std::fs::File::options().write(true).open(path)?.set_len(3333);
    "from the current position",
        |path| {
            let file = File::open(path).await?;
            let (read, bytes) = file.read_exact_at(vec![0; 2500], ringway::Position::Current).await;
            read?;
            let position = rustix::fs::tell(&file)?;
            Ok((digest(bytes), position))
        },
        {
            let mut file = std::fs::File::open(path)?;
            let mut bytes = vec![0; 2500];
            file.read_exact(&mut bytes)?;
            let position = file.stream_position()?;
            Ok((digest(bytes), position))
        };
};

/// Rules for one call. `OP` stands for each operation.
const RULES: &[&str] = &[
    "",
    "file OP fail 5",
    "file OP fail 116",
    "file OP fail 116 1",
    "file OP fail 11",
    "file OP fail 11 1",
    "file OP fail 11 3",
    "file OP fail 4 1",
    "file OP delay 5",
];

const OPERATIONS: &[&str] =
    &["lookup", "getattr", "setattr", "open", "read", "write", "flush", "release", "fsync"];

/// Rules about lengths.
const LENGTHS: &[&str] = &[
    "file read short 37",
    "file read short 999",
    "file read short 4096",
    "file write short 37",
    "file write short 999",
    "file size 0",
    "file size 100",
    "file size 1000000",
    "file grow 100",
    "file grow 5000",
    "file grow -100",
    "file grow -5000",
];

fn rules() -> Vec<String> {
    let of_operations = OPERATIONS.iter().flat_map(|operation| {
        RULES.iter().filter(|rule| !rule.is_empty()).map(|rule| rule.replace("OP", operation))
    });
    let lengths = LENGTHS.iter().map(|rule| (*rule).to_owned());
    [String::new()].into_iter().chain(of_operations).chain(lengths).collect()
}

/// Whether how often a call asks for the attributes decides about its result, or whether it ends.
fn depends_on_requests(pair: &Pair, rule: &str) -> bool {
    rule.contains("grow ") && ["read", "read_at", "read_exact_at", "copy"].contains(&pair.name)
}

/// What ringway must return where std returns this. A server that interrupts a sync
/// may report lost data so, and the kernel tells of that once. The standard library makes another
/// sync, which succeeds; ringway returns the error. Nor does it ignore an error of the close of a
/// file that it has written.
fn expected(pair: &Pair, rule: &str, std: String) -> String {
    let errno = match (pair.name, rule) {
        ("write_all_at and sync", "file fsync fail 4 1") => Some(libc::EINTR),
        ("write", rule) => error_of_close(rule),
        _ => None,
    };
    let Some(errno) = errno else { return std };
    let succeeds = Outcome::from(Ok::<_, io::Error>(()));
    let fails = Outcome::from(Err::<(), _>(io::Error::from_raw_os_error(errno)));
    let (succeeds, fails) = (format!("{succeeds:?}"), format!("{fails:?}"));
    assert!(std.contains(&succeeds), "{std}");
    std.replace(&succeeds, &fails)
}

/// The error of each close under this rule. EINTR is none (`close(2)`, NOTES), and EAGAIN would say
/// that nothing was written.
fn error_of_close(rule: &str) -> Option<i32> {
    match rule.strip_prefix("file flush fail ")?.split(' ').next()?.parse().ok()? {
        libc::EINTR => None,
        libc::EAGAIN => Some(libc::EIO),
        errno => Some(errno),
    }
}

/// Whether ringway's result may be that without the rule although the standard library's is not.
fn may_ignore(pair: &Pair, rule: &str) -> bool {
    // An error that passes: ringway and the kernel's queues try again.
    let passes = rule.ends_with(" 1") || rule.ends_with(" 3");
    // The standard library copies until the kernel copies nothing, which a false length and a
    // short read bring about too early.
    let hides_the_end =
        ["file size ", "file read short "].iter().any(|start| rule.starts_with(start));
    passes || (hides_the_end && pair.name == "copy")
}

/// Restores the files, and sets the rules.
fn prepare(hostile: &Hostile, rule: &str, direct: bool) {
    hostile.set("clear").unwrap();
    let content: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
    std::fs::write(hostile.backing().join("file"), content).unwrap();
    let _ = std::fs::remove_file(hostile.backing().join("other"));
    let how = if direct { "file direct on\n" } else { "" };
    hostile.set(&format!("{how}{rule}")).unwrap();
}

/// Everything behind the file system.
fn behind(hostile: &Hostile) -> Vec<Option<(usize, u64)>> {
    ["file", "other"]
        .map(|name| std::fs::read(hostile.backing().join(name)).ok().map(digest))
        .to_vec()
}

#[test]
fn each_function_under_each_rule() {
    let hostile = match Hostile::mount(&[]) {
        Ok(hostile) => hostile,
        Err(error) => return skip(&error.to_string()),
    };
    let path = hostile.path().join("file");
    let (mut count, mut wrong) = (0, Vec::new());
    let backend = Engine::global().unwrap().backend();
    let turn = BACKENDS.iter().position(|kind| *kind == backend).unwrap();
    for rule in rules() {
        for direct in [true, false] {
            for pair in PAIRS.iter().filter(|pair| !depends_on_requests(pair, &rule)) {
                let run = |function: fn(&Path) -> Outcome, rule: &str| {
                    prepare(&hostile, rule, direct);
                    let outcome = function(&path);
                    hostile.set("clear").unwrap();
                    // How much a file has grown depends on how often its attributes were asked for.
                    if rule.contains("grow ") {
                        format!("{outcome:?}")
                    } else {
                        format!("{outcome:?}, then {:?}", behind(&hostile))
                    }
                };
                count += 1;
                // Each backend has a share of its own, unless tests take their time.
                if !is_long() && count % BACKENDS.len() != turn {
                    continue;
                }
                let (std, ours) = (run(pair.std, &rule), run(pair.ours, &rule));
                let expected = expected(pair, &rule, std.clone());
                let may_ignore =
                    (expected == std || error_of_close(&rule).is_some()) && may_ignore(pair, &rule);
                if expected != ours && !(may_ignore && ours == run(pair.std, "")) {
                    let case = format!("{} with {rule:?}, direct: {direct}", pair.name);
                    wrong.push(format!("{case}\n    std  {std}\n    ours {ours}"));
                }
            }
        }
    }
    println!("{count} calls under rules, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The new content is on the disk before the name is: if it cannot be written and synced, the old
/// file stays. Nothing else is left when the error is returned, however long the removal takes.
#[test]
fn an_atomic_write_that_fails_keeps_the_old_content() {
    let hostile = match Hostile::mount(&[]) {
        Ok(hostile) => hostile,
        Err(error) => return skip(&error.to_string()),
    };
    let names = || {
        let entries = std::fs::read_dir(hostile.backing()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let path = hostile.path().join("file");
    let whole = || wait(fs::write_atomic(&path, b"new".to_vec()));
    let in_pieces = || {
        wait(async {
            let mut file = fs::AtomicFile::create(&path).await?;
            file.write_all(b"new").await?;
            file.commit().await
        })
    };
    let ways: [&dyn Fn() -> io::Result<()>; 2] = [&whole, &in_pieces];
    for step in ["setattr", "write", "fsync", "rename"] {
        for replace in ways {
            // (A server that keeps no pages fails the write itself.)
            prepare(&hostile, &format!("* {step} fail 5\n* unlink delay 200"), true);
            let before = (behind(&hostile), names());
            let error = replace().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{step}: {error}");
            assert_eq!((behind(&hostile), names()), before, "{step}: or a temporary file is left");
        }
    }
    for replace in ways {
        prepare(&hostile, "", false);
        replace().unwrap();
        assert_eq!(behind(&hostile)[0], Some(digest(b"new".to_vec())));
    }
}

/// The standard library makes these calls again, too. A server may interrupt one for ever.
#[test]
fn calls_that_are_interrupted_are_made_again() {
    let hostile = match Hostile::mount(&[]) {
        Ok(hostile) => hostile,
        Err(error) => return skip(&error.to_string()),
    };
    let replace = || wait(fs::write_atomic(hostile.path().join("file"), b"new".to_vec()));
    for step in ["create", "setattr"] {
        prepare(&hostile, &format!("* {step} fail 4 2"), false);
        replace().unwrap_or_else(|error| panic!("{step}: {error}"));
        assert_eq!(behind(&hostile)[0], Some(digest(b"new".to_vec())), "{step}");
        prepare(&hostile, &format!("* {step} fail 4"), false);
        assert_eq!(replace().unwrap_err().raw_os_error(), Some(libc::EINTR), "{step}");
    }
    let outer = hostile.path().join("outer");
    let ways: [fn(&Path) -> io::Result<()>; 2] =
        [|path| std::fs::remove_dir_all(path), |path| wait(fs::remove_dir_all(path))];
    for remove in ways {
        prepare(&hostile, "", false);
        std::fs::create_dir_all(hostile.backing().join("outer/inner/empty")).unwrap();
        hostile.set("inner lookup fail 4 2").unwrap();
        remove(&outer).unwrap();
        assert!(!outer.exists());
    }
}
