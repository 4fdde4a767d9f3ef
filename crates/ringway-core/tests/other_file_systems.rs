//! Guarantee 5 on file systems other than the local disk: the cases of `conformance/` on FUSE and
//! overlayfs. On each, the results of all backends are the same, and those of the data except for
//! what [`DIFFERENT`] lists. `RINGWAY_CASE=part-of-a-name` selects cases.

#![cfg(ringway_linux)]

#[path = "common/cases.rs"]
#[allow(dead_code, unused_imports, reason = "the conformance suite uses the rest")]
mod cases;
#[path = "common/places.rs"]
mod places;
#[path = "common/skip.rs"]
mod skip;

use cases::{Case, Stop};
use places::Place;
use ringway_core::device::AlignmentSource;
use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, File, OpId, OpenOptions, Options, PushError, Reason, op,
};
use ringway_torture::watchdog::Watchdog;
use skip::skip;
use std::env;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Instant;

/// Threads first: they make the system calls of the standard library.
const KINDS: [BackendKind; 3] = [BackendKind::Threads, BackendKind::Uring, BackendKind::Kaio];

/// Where they run unless `RINGWAY_FILE_SYSTEMS=all`.
const FEW: &[&str] =
    &["FUSE with short transfers", "FUSE with a write-back cache", "overlayfs on disk"];

/// Cases that transfer hundreds of megabytes.
const LONG: &[&str] = &[
    "long append direct",
    "long append direct at the current position",
    "a long direct write at the current position",
    "long transfers",
    "long vectored transfers",
];

/// Cases whose results differ on a file system, for every program, and why. The first column is
/// part of the place's name.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("FUSE", "search permission denied", "the server asks for no permission"),
    ("FUSE", "read permission denied", "the server asks for no permission"),
    ("FUSE", "open a FIFO without a reader", "the server makes no FIFOs"),
    ("FUSE", "statx", "the server makes no FIFOs"),
    ("FUSE", "fifo", "the server makes no FIFOs"),
    ("FUSE", "open an unnamed temporary file", "the server makes no unnamed files"),
    ("FUSE", "link", "the server gives each name an inode number of its own"),
    ("FUSE", "link of a symbolic link", "the server gives each name an inode number of its own"),
    ("NFS", "fallocate", "it cannot allocate behind the end and keep the size"),
    ("NFS", "open an unnamed temporary file", "it has none"),
    ("NFS", "rename with flags", "it has no flags"),
    ("NFS", "an unlinked file can still be used", "the client gives it another name"),
    ("virtiofs", "open an unnamed temporary file", "the server makes no unnamed files"),
    ("ramfs", "fallocate", "it has none"),
    ("ramfs", "fallocate punches holes", "it has none"),
    ("ramfs", "file size limit", "it has no fallocate"),
];

/// Cases that push several operations, of which any may be the first that is short.
const UNORDERED: &[&str] = &[
    "a chain and single operations",
    "failures in a batch",
    "direct failures in a batch",
    "more completions than completion queue entries",
];

/// The result of a case.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Outcome {
    fn text(&self) -> &str {
        match self {
            Self::Passed => "passed",
            Self::Skipped(why) | Self::Failed(why) => why,
        }
    }

    /// Whether it is the same on another backend.
    fn is(&self, other: &Self, case: &Case) -> bool {
        let is_alike = std::mem::discriminant(self) == std::mem::discriminant(other);
        // Times and inode numbers are not compared.
        let is_same = |one: &str, other: &str| {
            one.split(": Metadata").next() == other.split(": Metadata").next()
        };
        let is_ordered = !UNORDERED.contains(&case.name.as_str());
        is_alike && (is_same(self.text(), other.text()) || !is_ordered)
    }
}

fn run(case: &Case, kind: BackendKind, place: &Place) -> Outcome {
    let _watched = Watchdog::new(&format!("{} on {}, {kind}", case.name, place.name));
    match cases::run(case, Options::new(), kind, &place.path().join("case")) {
        Ok(_) => Outcome::Passed,
        Err(Stop::Skipped(why)) => Outcome::Skipped(why),
        Err(Stop::Failed(why)) => Outcome::Failed(why),
    }
}

fn reason(place: &Place, case: &Case) -> Option<&'static str> {
    let is_here = |entry: &&(&str, &str, _)| place.name.contains(entry.0) && case.name == entry.1;
    DIFFERENT.iter().find(is_here).map(|(_, _, why)| *why)
}

/// Runs all cases in a place. Returns how many ran, and what is wrong.
fn run_all(cases: &[&Case], kinds: &[BackendKind], place: &Place) -> (usize, Vec<String>) {
    let mut wrong = Vec::new();
    for case in cases {
        let reference = run(case, kinds[0], place);
        let differs = matches!(reference, Outcome::Failed(_));
        match reason(place, case) {
            None if differs && !place.is_short => wrong.push(reference.text().to_owned()),
            Some(why) if !differs => wrong.push(format!("{} is as elsewhere: {why}", case.name)),
            _ => {}
        }
        for &kind in &kinds[1..] {
            let found = run(case, kind, place);
            if !found.is(&reference, case) {
                let (found, reference) = (found.text(), reference.text());
                wrong.push(format!("{kind}: {found}\n    {}: {reference}", kinds[0]));
            }
        }
    }
    (cases.len() * kinds.len(), wrong)
}

/// One test, because cases change the working directory and the limits of the process.
#[test]
fn all_cases() {
    let data = cases::load();
    let only = env::var("RINGWAY_CASE").unwrap_or_default();
    let is_long = |case: &&Case| LONG.contains(&case.name.as_str());
    assert_eq!(data.iter().filter(is_long).count(), LONG.len());
    let mut data: Vec<_> = data.iter().filter(|case| case.name.contains(&only)).collect();
    assert!(!data.is_empty(), "no case is named {only}");
    data.retain(|case| places::is_thorough() || !is_long(case));
    // On these file systems the threads make all transfers, whatever the backend. Of their EAGAIN
    // nobody knows that it was injected, so it is the file system's answer.
    data.retain(|case| !cases::injects_faults(case));
    cases::prepare_process();
    let mut kinds = KINDS.to_vec();
    kinds.retain(|kind| match Options::new().backend(*kind).build() {
        Ok(_) => true,
        Err(error) => {
            skip(&format!("{kind}: {error}"));
            false
        }
    });
    let mut failed = Vec::new();
    let mut places = 0;
    places::each(FEW, skip, |place| {
        let begin = Instant::now();
        places += 1;
        let (count, wrong) = run_all(&data, &kinds, place);
        println!("{}: {count} cases in {:.1?}", place.name, begin.elapsed());
        failed.extend(wrong.iter().map(|why| format!("{}: {why}", place.name)));
    });
    if places == 0
        && places::is_thorough()
        && let Some(why) = places::no_writable()
    {
        println!("skipped: {why}");
    }
    assert!(failed.is_empty(), "{} differ:\n{}", failed.len(), failed.join("\n"));
}

/// Of memory that does not begin at a page, zram would transfer other bytes. Nothing is submitted.
#[test]
fn memory_within_a_page_is_refused_on_zram() {
    const PAGE: usize = 4096;
    places::on_zram(skip, |dir| {
        let path = dir.join("file");
        let content: Vec<u8> = (0..4 * PAGE).map(|at| (at / 16) as u8).collect();
        fs::write(&path, &content).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let mut options = fs::File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(file));
        let direct = file.direct_io();
        assert_eq!((direct.memory_align, direct.source), (4096, AlignmentSource::Driver));
        for kind in KINDS {
            let Ok(mut queue) = Options::new().backend(kind).build() else {
                skip(&format!("{kind} is refused"));
                continue;
            };
            let refused = |result: Result<OpId, PushError>| {
                let Err(refusal) = result else { panic!("{kind}: taken") };
                let Reason::Invalid(why) = refusal.reason() else { panic!("{kind}: {refusal}") };
                assert!(why.contains("zram") && why.contains("4096"), "{why}");
            };
            for skew in [1, 512, 2048] {
                let part =
                    || Buffer::from(AlignedBuffer::new(2 * PAGE, PAGE)).slice(skew..skew + PAGE);
                refused(queue.push(op::read(&file, part(), 0)));
                refused(queue.push(op::write(&file, part(), 0)));
                let mut spare: Vec<u8> = Vec::with_capacity(2 * PAGE);
                spare.resize(usize::from(spare.as_ptr().addr().is_multiple_of(PAGE)), 0);
                refused(queue.push(op::read_spare(&file, spare, 0)));
                refused(queue.push(op::readv(&file, op::Vectored::new(vec![part()]), 0)));
            }
            queue.push(op::read(&file, AlignedBuffer::new(2 * PAGE, PAGE), 0)).unwrap();
            let read = queue.reap(1).unwrap().next().unwrap();
            assert_eq!(read.result, Ok(2 * PAGE as u64));
            assert!(read.into_buffer().unwrap().as_slice() == &content[..2 * PAGE]);
        }
        assert!(fs::read(&path).unwrap() == content);
    });
}

/// XFS needs a larger alignment once blocks are shared, also through an overlay.
#[test]
fn an_alignment_that_has_grown_below_an_overlay_is_known() {
    places::on(&["XFS", "overlay on XFS"], skip, |name, dir| {
        let path = dir.join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let open = || OpenOptions::new().write(true).direct(true).open(&path).unwrap();
        let file = open();
        assert_eq!(file.direct_io_of(0, 512), file.direct_io(), "{name}");
        let mut copy = Command::new("cp");
        copy.arg("--reflink=always").args([&path, &path.with_extension("copy")]);
        assert!(copy.status().unwrap().success(), "{name}");
        let align = open().direct_io().offset_align;
        println!("{name}: {} bytes, then {align}", file.direct_io().offset_align);
        assert_eq!(file.direct_io_of(0, 512).offset_align, align, "{name}");
        assert_eq!(file.direct_io().offset_align, align, "{name}");
    });
}
