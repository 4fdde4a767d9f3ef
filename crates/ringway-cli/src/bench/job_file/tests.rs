//! The meaning of every key, and every error.

use proptest::prelude::*;

use super::settings::DEFAULT_SEED;
use super::*;
use crate::bench::workload::{
    Access, Advice, Amount, Backend, Pause, Rate, Sizes, Stop, Sync, Target, Workload,
};
use clap::ValueEnum;
use std::time::Duration;

/// The two job files of a published comparison of Linux AIO with io_uring. The second has a
/// comment.
const ARTICLES: [&str; 2] = [
    "[global]\nioengine=libaio\ndirect=0",
    "[global]\nioengine=io_uring\nsqthread_poll=1 #开启io_uring sq_poll模式\ndirect=1",
];

/// What both have in common.
const ARTICLE: &str = "
randrepeat=1
threads=8
runtime=15
time_based
size=1G
directory=../test-data
group_reporting
[read256B-rand]
bs=4096
rw=randread
numjobs=1
iodepth=128
";

/// The meaning of `[job]` with `size=1m`: fio's defaults.
fn plain() -> Workload {
    Workload {
        name: "job".to_owned(),
        backend: Backend::Psync,
        access: Access::Read,
        direct: false,
        batch: Some(1),
        stop: Stop::Whole(None),
        seed: 0x89,
        stop_on_error: true,
        target: Target::Directory { path: PathBuf::from("."), size: 1 << 20, files: 1 },
        lay_out: false,
        group_reporting: false,
        ..Workload::default()
    }
}

/// Parses a file that includes no other.
fn parse(text: &str) -> Result<Plan, JobFileError> {
    super::parse(text, &mut |_, name| Err(format!("{name} is not there")))
}

/// The workload of `[job]` with `size=1m`, io_uring and these lines, and all remarks.
fn uring(lines: &str) -> (Workload, Vec<String>) {
    one(&format!("[job]\nsize=1m\nioengine=io_uring\n{lines}\n"))
}

fn one(text: &str) -> (Workload, Vec<String>) {
    let mut file = parse(text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
    assert_eq!(file.workloads.len(), 1, "{text:?}");
    (file.workloads.remove(0), [file.differences, file.notes].concat())
}

#[track_caller]
fn fails(text: &str, line: usize, key: &str, part: &str) {
    let error = parse(text).expect_err(text);
    let found = (error.line, error.key.as_deref().unwrap_or(""));
    assert_eq!(found, (line, key), "{error} in {text:?}");
    let shown = error.to_string();
    assert!(shown.contains(&format!("line {line}")), "{shown}");
    assert!(shown.contains(key) && shown.contains(part), "{shown}");
}

#[test]
fn the_article_s_job_files() {
    let aio = Workload {
        name: "read256B-rand".to_owned(),
        backend: Backend::Kaio,
        access: Access::RandRead,
        depth: 128,
        stop: Stop::After(Duration::from_secs(15)),
        group_reporting: true,
        target: Target::Directory { path: PathBuf::from("../test-data"), size: 1 << 30, files: 1 },
        ..plain()
    };
    let mut uring = Workload { backend: Backend::Uring, ..aio.clone() };
    (uring.direct, uring.sqpoll, uring.fixed_files) = (true, true, true);
    for (article, line, expected) in [(ARTICLES[0], 5, aio), (ARTICLES[1], 6, uring)] {
        let (job, notes) = one(&format!("{article}{ARTICLE}"));
        assert_eq!(job, expected);
        let note = "`threads`: has no effect: jobs are always threads; `numjobs` is their number";
        assert_eq!(notes, [format!("line {line}: {note}")]);
    }
}

#[test]
fn the_defaults_are_those_of_fio() {
    assert_eq!(one("[job]\nsize=1m\n"), (plain(), Vec::new()));
}

/// Each key, with those that it needs, changes its setting and nothing else.
#[test]
fn every_key() {
    type Change = fn(&mut Workload);
    #[rustfmt::skip]
    let cases: &[(&str, Change)] = &[
        ("rw=write", |w| w.access = Access::Write),
        ("rw=read", |w| w.access = Access::Read),
        ("rw=rw", |w| w.access = Access::ReadWrite),
        ("rw=readwrite", |w| w.access = Access::ReadWrite),
        ("rw=randread", |w| w.access = Access::RandRead),
        ("rw=randwrite", |w| w.access = Access::RandWrite),
        ("rw=randrw", |w| w.access = Access::RandRw),
        ("readwrite=rw", |w| w.access = Access::ReadWrite),
        ("rwmixread=70", |w| w.read_percent = 70),
        ("rwmixread=10\nrwmixwrite=20", |w| w.read_percent = 80),
        ("bs=8k", |w| w.block_size = 8192),
        ("blocksize=512", |w| w.block_size = 512),
        ("direct=1", |w| w.direct = true),
        ("direct=1\nbuffered=1", |_| ()),
        ("buffered=0", |w| w.direct = true),
        ("iodepth=32", |w| w.depth = 32),
        ("iodepth=32\niodepth_batch_submit=8", |w| { (w.depth, w.batch) = (32, Some(8)); }),
        ("iodepth_batch=8\niodepth=32", |w| { (w.depth, w.batch) = (32, Some(8)); }),
        ("iodepth=32\niodepth_batch=0", |w| { (w.depth, w.batch) = (32, Some(32)); }),
        ("iodepth=32\niodepth_batch_complete_min=4", |w| { (w.depth, w.complete_min) = (32, 4); }),
        ("iodepth=32\niodepth_batch_complete=0", |w| { (w.depth, w.complete_min) = (32, 0); }),
        ("numjobs=4", |w| w.jobs = 4),
        ("runtime=2m", |w| { w.stop = Stop::Whole(Some(Duration::from_secs(120))); }),
        ("timeout=500ms\ntime_based=1", |w| { w.stop = Stop::After(Duration::from_millis(500)); }),
        ("runtime=0\ntime_based=0", |_| ()),
        ("ramp_time=3", |w| w.ramp = Duration::from_secs(3)),
        ("group_reporting", |w| w.group_reporting = true),
        ("randrepeat=0", |w| w.rand_repeat = false),
        ("randseed=7\nrandrepeat=0", |w| w.seed = 7),
        ("thread", |_| ()),
        ("sqthread_poll", |w| (w.sqpoll, w.fixed_files) = (true, true)),
        ("hipri", |w| w.iopoll = true),
        ("fixedbufs=1", |w| w.fixed_buffers = true),
        ("registerfiles", |w| w.fixed_files = true),
        ("fsync=16", |w| w.sync = Some(Sync { data_only: false, every: 16 })),
        ("fsync=16\nfsync=0\nfdatasync=1", |w| {
            w.sync = Some(Sync { data_only: true, every: 1 });
        }),
        ("rate_iops=10k", |w| w.rate = Some(Rate::Requests(10_240))),
        ("rate_iops=0\nrate=0", |_| ()),
        ("rate=1m", |w| w.rate = Some(Rate::Bytes(1 << 20))),
        ("bsrange=4k-16k", |w| w.sizes = Sizes::UpTo(16_384)),
        ("bs=8k\nblocksize_range=1k-2k", |w| (w.block_size, w.sizes) = (1024, Sizes::UpTo(2048))),
        ("bsrange=4k-16k\nbs=1k", |w| w.block_size = 1024),
        ("bssplit=64k/10:8k/:16k", |w| {
            w.block_size = 8192;
            w.sizes = Sizes::Split(vec![(65_536, 10), (8192, 45), (16_384, 45)]);
        }),
        ("bssplit=4k/:8k/:12k", |w| {
            w.sizes = Sizes::Split(vec![(4096, 34), (8192, 33), (12_288, 33)]);
        }),
        ("offset=8k", |w| w.start = Amount::Bytes(8192)),
        ("offset=25%", |w| w.start = Amount::Percent(25)),
        ("io_size=3m", |w| w.stop = Stop::Bytes(3 << 20, None)),
        ("nrfiles=4", |w| {
            w.target = Target::Directory { path: PathBuf::from("."), size: 1 << 18, files: 4 };
        }),
        ("overwrite=1", |w| w.lay_out = true),
        ("fallocate=none", |w| w.preallocate = false),
        ("fadvise_hint=0", |w| w.advice = Advice::None),
        ("fadvise_hint=random", |w| w.advice = Advice::Random),
        ("continue_on_error=all", |w| w.stop_on_error = false),
        ("thinktime=50", |w| w.pause = Some(Pause { time: Duration::from_micros(50), after: 1 })),
        ("thinktime=2ms\nthinktime_blocks=8", |w| {
            w.pause = Some(Pause { time: Duration::from_millis(2), after: 8 });
        }),
        ("thinktime=0\nthinktime_blocks=8", |_| ()),
        ("norandommap", |w| w.no_random_map = true),
        ("stonewall", |_| ()),
        ("wait_for_previous=0", |_| ()),
        ("name=other", |w| w.name = "other".to_owned()),
    ];
    for (lines, change) in cases {
        let mut expected = plain();
        expected.backend = Backend::Uring;
        change(&mut expected);
        assert_eq!(uring(lines), (expected, Vec::new()), "{lines}");
    }
    // The other keys have separate tests: `ioengine`, `threads`, and those of files.
    let (_, notes) = uring("description=what it is for");
    assert_eq!(notes, ["[job]: what it is for"]);
}

/// The message about an unsupported key must list supported keys only.
#[test]
fn every_listed_key_is_supported() {
    for key in keys() {
        if let Err(error) = parse(&format!("[job]\nsize=1m\n{key}=1\n")) {
            assert!(!error.message.contains("not supported; fio"), "{error}");
        }
    }
}

#[test]
fn engines() {
    for (name, backend) in super::keys::ENGINES {
        let file = parse(&format!("[job]\nsize=1m\nioengine={name}\niodepth=8\n")).unwrap();
        let is_psync = *backend == Backend::Psync;
        let differs = is_psync && *name != "psync";
        assert_eq!(file.differences.len(), usize::from(differs), "{:?}", file.differences);
        assert_eq!(
            (file.workloads[0].backend, file.workloads[0].depth),
            (*backend, if is_psync { 1 } else { 8 })
        );
        assert_eq!(file.notes.iter().any(|note| note.contains("iodepth=8")), is_psync);
    }
}

#[test]
fn files() {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let files = |names: &[&str]| Target::Files { paths: paths(names), size: None };
    let sized = |names: &[&str], size| Target::Files { paths: paths(names), size: Some(size) };
    let own = |size| Target::Directory { path: PathBuf::from("."), size, files: 1 };
    let three = Duration::from_secs(3);
    for (lines, target, stop) in [
        ("filename=/dev/a:/dev/b@3,0\\:c:", files(&["/dev/a", "/dev/b@3,0:c"]), Stop::Whole(None)),
        ("filename=a\nruntime=3", files(&["a"]), Stop::Whole(Some(three))),
        ("filename=a\nruntime=3\ntime_based", files(&["a"]), Stop::After(three)),
        (
            // An absolute name is below the folder too.
            "directory=/d e\\:f\nfilename=a:/b\nsize=10001\nbs=1k",
            sized(&["/d e:f/a", "/d e:f//b"], 5000),
            Stop::Whole(None),
        ),
        ("filename=a:b\nfilesize=1m", sized(&["a", "b"], 1 << 20), Stop::Bytes(2 << 20, None)),
        ("filesize=1m\nsize=3m", own(1 << 20), Stop::Bytes(3 << 20, None)),
        // A percentage is an amount only once the file's size is known.
        ("filename=a\nsize=50%", files(&["a"]), Stop::Whole(None)),
        ("filesize=1m\nsize=50%\nio_size=7k", own(1 << 20), Stop::Bytes(7168, None)),
        ("size=1%\nsize=1m", own(1 << 20), Stop::Whole(None)),
        (
            // The bytes before the offset are a part of the file's size, but not of the amount to
            // move.
            "filename=a\nfilesize=1m\noffset=512k",
            sized(&["a"], 1 << 19),
            Stop::Bytes(1 << 19, None),
        ),
    ] {
        let (job, _) = one(&format!("[job]\n{lines}\n"));
        assert_eq!((job.target, job.stop), (target, stop), "{lines}");
        assert_eq!(job.percent, if lines.contains("=50%") { 50 } else { 100 }, "{lines}");
    }
    // A section may be named after a device if the file is not named after the section.
    assert_eq!(one("[/dev/sdx]\nfilename=/dev/sdx\n").0.name, "/dev/sdx");
}

#[test]
fn globals_apply_to_later_sections() {
    let file = parse(
        "[global]\nsize=4m\niodepth=3\nioengine=libaio\n[a]\nbs=1k\n\
         [global]\niodepth=7\n[b]\nbs=2k\n[b]\nstonewall\niodepth=9\n",
    )
    .unwrap();
    let got: Vec<_> =
        file.workloads.iter().map(|job| (job.name.as_str(), job.depth, job.block_size)).collect();
    assert_eq!(got, [("a", 3, 1024), ("b", 7, 2048), ("b", 9, 4096)]);
    assert_eq!(file.differences.len(), 1);
    assert!(file.differences[0].contains("stonewall"));
}

#[test]
fn included_files_belong_to_their_section() {
    let mut include = |from: Option<&Path>, name: &str| {
        let (path, text) = match (from.and_then(Path::to_str), name) {
            (None, "a.fio") => ("dir/a.fio", "bs=8k\n\ninclude b.fio ; too\n"),
            (Some("dir/a.fio"), "b.fio") => ("dir/b.fio", "iodepth=3\n"),
            (None, "section") => ("section", "bs=1k\n[x]\n"),
            (None, "wrong") => ("wrong", "# fine\nbs=x\n"),
            (_, "self") => ("self", "include self\n"),
            _ => return Err("is not there".to_owned()),
        };
        Ok((PathBuf::from(path), text.to_owned()))
    };
    let text = "[global]\nsize=1m\nioengine=libaio\n[a]\ninclude a.fio\n[b]\nstonewall\n";
    let file = super::parse(text, &mut include).unwrap();
    let got: Vec<_> = file.workloads.iter().map(|job| (job.block_size, job.depth)).collect();
    assert_eq!(got, [(8192, 3), (4096, 1)]);
    for (name, part) in [
        ("section", "in section, line 2: an included file has no sections"),
        ("wrong", "in wrong, line 2: `x` is not accepted"),
        ("self", "included by a file that it includes"),
        ("missing", "not there"),
    ] {
        let error =
            super::parse(&format!("[a]\nsize=1m\ninclude {name}\n"), &mut include).unwrap_err();
        assert_eq!(error.line, 3, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn sections_with_stonewall_are_as_in_fio() {
    let file = parse("[a]\nsize=1m\n[b]\nsize=1m\nstonewall\n").unwrap();
    assert_eq!(file.differences, Vec::<String>::new());
}

#[test]
fn white_space_comments_and_line_ends() {
    let text = "\u{feff}; a comment\r\n\r\n  # 注释 \u{7}\r\n [job] ; end\r\n\
                \tsize = 1m\t# 大小\r\n bs=4096;x\r\n";
    let (job, notes) = one(text);
    assert_eq!(job, plain());
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("line 6"), "{notes:?}");
    assert!(notes[0].contains("`bs=4096`"), "{notes:?}");
}

#[test]
fn reduced_values_are_noted() {
    let (job, notes) = uring("iodepth=4\niodepth_batch=8\niodepth_batch_complete=5");
    assert_eq!((job.batch, job.complete_min), (Some(4), 4));
    assert!(notes[0].contains("iodepth_batch_submit=8"), "{notes:?}");
    assert!(notes[1].contains("iodepth_batch_complete_min=5"), "{notes:?}");
}

#[test]
fn other_remarks() {
    assert!(uring("thread=0").1[0].contains("always threads"));
    assert!(uring("rw=randrw\nrate_iops=5").1[0].contains("limits each"));
    assert!(uring("rw=rw\nrate=5").1[0].contains("limits each"));
    // An inherited io_uring key is left out, as in fio.
    let file = parse(
        "[global]\nioengine=io_uring\nsize=1m\nsqthread_poll\n[a]\n\
         [b]\nstonewall\nioengine=libaio\n",
    )
    .unwrap();
    assert!(file.workloads[0].sqpoll);
    assert!(!file.workloads[1].sqpoll && !file.workloads[1].fixed_files);
    assert_eq!(file.notes, ["[b]: `sqthread_poll` is left out: it needs `ioengine=io_uring`"]);
}

/// Wrong files, with the line and the key of their error and a part of its message.
#[rustfmt::skip]
const WRONG_FILES: &[(&str, usize, &str, &str)] = &[
    ("", 1, "", "no job"),
    ("# only this\n\n", 2, "", "no job"),
    ("[global]\nsize=1m\n", 2, "", "no job"),
    ("size=1m\n[job]\n", 1, "size", "before any section"),
    ("[]\n", 1, "", "needs a name"),
    ("[  ]\n", 1, "", "needs a name"),
    ("[job\n", 1, "", "`]`"),
    ("[job]x\n", 1, "", "`]`"),
    ("[job]\nsize=1m\u{1b}[2J\n", 2, "", "control character"),
    ("[job]\nsize\n", 2, "size", "`=`"),
    ("[job]\nsize=\n", 2, "size", "no value"),
    ("[job]\nsize= # none\n", 2, "size", "no value"),
    ("[job]\ndirect\n", 2, "direct", "`=`"),
    ("[job]\ntime_based=\n", 2, "time_based", "no value"),
    ("[job]\nsize=1m\nverify=crc32c\n", 3, "verify", "iodepth"),
    ("[job]\nSIZE=1m\n", 2, "SIZE", "did you mean `size`?"),
    ("[job]\niodpeth=32\n", 2, "iodpeth", "did you mean `iodepth`?"),
    ("[job]\ngroup-reporting\n", 2, "group-reporting", "`group_reporting`?"),
    ("[job]\nfilname=x\n", 2, "filname", "did you mean `filename`?"),
    ("[job]\nincldue x.fio\n", 2, "incldue x.fio", "`include`?"),
    ("[job]\n\nzonesize=2\n", 3, "zonesize", "supported keys"),
    ("[job]\ninclude x.fio\n", 2, "include", "not there"),
    ("[job]\n=5\n", 2, "", "supported keys"),
    ("[job]\nsize=1m\n[global]\nnope=1\n", 4, "nope", "supported keys"),
    ("[job]\nbs=4k\n", 1, "size", "missing"),
    ("[job]\nsize=4k\nbs=8k\n", 2, "size", "8192 bytes"),
    ("[job]\nfilename=a:b\nsize=4k\n", 3, "size", "each file"),
    ("[job]\nfilesize=1k\nsize=1m\n", 2, "filesize", "block"),
    ("[job]\nfilesize=1m\nsize=1k\n", 3, "size", "block"),
    ("[job]\nfilename=a\nfilesize=1m\noffset=2m\n", 3, "filesize", "block"),
    ("[job]\nfilename=a\nfilesize=1m\noffset=2%\n", 4, "offset", "percentage"),
    ("[job]\nsize=50%\n", 2, "size", "missing"),
    ("[job]\nsize=1m\nrate=1\nrate_iops=1\n", 3, "rate", "combined"),
    ("[job]\nsize=1m\nbs=4k\nbssplit=4k/\n", 4, "bssplit", "combined"),
    ("[job]\nfilename=a:b:c\nfilesize=8191p\n", 3, "filesize", "too large"),
    ("[job]\nsize=1m\ntime_based\n", 3, "time_based", "runtime"),
    ("[job]\nsize=1m\ntime_based\nruntime=0\n", 3, "time_based", "runtime"),
    ("[job]\nsize=1m\nfsync=1\nfdatasync=1\n", 4, "fdatasync", "one of them"),
    ("[/dev/sdx]\nsize=1m\n", 1, "filename", "missing"),
    ("[global]\nsize=4k\n[a]\n[b]\nbs=8k\n", 2, "size", "[b]"),
];

#[test]
fn errors_of_files() {
    for (text, line, key, part) in WRONG_FILES {
        fails(text, *line, key, part);
    }
    for key in ["sqthread_poll", "hipri", "fixedbufs", "registerfiles"] {
        fails(&format!("[job]\nsize=1m\nioengine=libaio\n{key}\n"), 4, key, "io_uring");
    }
}

/// Keys, and wrong values with a part of their message.
const WRONG_VALUES: &str = r"
ioengine: posixaio => io_uring; io_urign => did you mean `io_uring`? give one of
rw: trim => randread; randraed => did you mean `randread`? give one of; randread:8 => randread
rwmixread: 101 => from 0 to 100
rwmixwrite: -1 => from 0 to 100
bs: 0 => from 1; 2g => 2147479552; 4k,8k => ranges; 4k-8k => ranges; 1.5k => whole number;
    50% => percentage
size: 0% => percent; 101% => percent; 5.5% => percent; 0 => from 1; -4k => from 1;
    16384p => from 1; 8192p => 9223372036854775807; ${SIZE} => environment
offset: 101% => percent; -1 => from 0
bsrange: 4k => 4k-16k; 8k-4k => from 8192; 0-4k => from 1; 4k-6k => multiple;
    1k-4k,2k-8k => whole number
bssplit: 4k/60:8k/60 => 100; 4k/30:8k/30 => 100; 4k/:6k/ => multiples;
    4k/50,8k/50 => whole number; : => whole number
io_size: 50% => percentage
nrfiles thinktime_blocks: 0 => from 1
overwrite group_reporting randrepeat sqthread_poll hipri fixedbufs: x => 0 or 1
registerfiles norandommap stonewall: x => 0 or 1
fallocate: x => native
runtime: 1.5s => whole number; 5min => whole number; -1 => seconds
fadvise_hint: x => sequential
continue_on_error: verify => none
thinktime: -1 => microseconds
rate: 1m,2m => ranges
filesize: 1k-2k => ranges
filename: ${FILE} => environment; : => path; - => pipe
directory: a:b => one folder
direct: yes => 0 or 1
buffered time_based: 2 => 0 or 1
iodepth: 0 => from 1; 4294967296 => 4294967295
iodepth_batch_submit iodepth_batch iodepth_batch_complete_min: x => whole number
iodepth_batch_complete randseed threads fsync: x => whole number
numjobs: 0 => from 1; 4097 => 4096
timeout: 1x => seconds
ramp_time: 18446744073709551615h => seconds
thread: 8 => 0 or 1
fdatasync: -1 => whole number
rate_iops: 1000,500 => ranges
";

#[test]
fn errors_of_values() {
    // Indented lines continue the one above.
    let joined = WRONG_VALUES.replace("\n    ", " ");
    for line in joined.lines().filter(|line| !line.is_empty()) {
        let (keys, values) = line.split_once(": ").unwrap();
        for key in keys.split(' ') {
            for case in values.split(';') {
                let (value, part) = case.split_once(" => ").unwrap();
                fails(&format!("[job]\n{key}={}\n", value.trim()), 2, key, part);
            }
        }
    }
}

/// A valid or invalid line.
fn line() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        "[0-9]{1,20}[kmgtpKbi%]{0,3}",
        "0x[0-9a-f]{0,17}",
        "-?[0-9]{1,3}(ms|us|s|m|h|d)?",
        Just("io_uring".to_owned()),
        Just("libaio".to_owned()),
        Just("randrw".to_owned()),
        Just("a:b\\:c".to_owned()),
        ".*",
    ];
    prop_oneof![
        8 => (prop::sample::select(keys()), value)
            .prop_map(|(key, value)| format!("{key}={value}")),
        2 => prop::sample::select(keys()).prop_map(str::to_owned),
        1 => Just("[global]".to_owned()),
        2 => "\\[[a-z/]{0,3}\\]?",
        1 => ".*",
    ]
}

/// A workload that a job file can express.
fn expressible() -> impl Strategy<Value = Workload> {
    let choices = (
        prop::sample::select(Access::value_variants()),
        prop::sample::select(&[Backend::Uring, Backend::Kaio, Backend::Null][..]),
        prop::option::of(1u32..100),
        prop::option::of(1u64..1_000_000),
    );
    let numbers = (0u8..=100, 0u32..=3, 1u32..=512, 1u32..=32, 1u32..=4096, any::<u64>());
    let times = (1u64..1_000_000, 0u64..1_000)
        .prop_map(|(runtime, ramp)| (Duration::from_millis(runtime), Duration::from_secs(ramp)));
    (choices, numbers, times, any::<[bool; 9]>()).prop_map(|(choices, numbers, times, flags)| {
        let (access, backend, fsync, rate) = choices;
        let (percent, shift, depth, batch, jobs, seed) = numbers;
        let mut w = Workload { access, backend, depth, jobs, ramp: times.1, ..plain() };
        let [ring, files, timed] = [flags[0], flags[1], flags[2]];
        [w.direct, w.no_random_map, w.group_reporting] = [flags[3], flags[4], flags[5]];
        if backend == Backend::Uring {
            [w.sqpoll, w.iopoll, w.fixed_buffers] = [flags[6], flags[7], flags[8]];
            w.fixed_files = files || w.sqpoll;
        }
        if access.is_mixed() {
            w.read_percent = percent;
        }
        (w.block_size, w.batch) = (1024 << shift, Some(batch.min(depth)));
        w.stop = if timed { Stop::After(times.0) } else { Stop::Whole(Some(times.0)) };
        w.rate = rate.map(Rate::Requests);
        w.sync = fsync.map(|every| Sync { data_only: ring, every });
        w.seed = if ring { seed } else { DEFAULT_SEED };
        let paths = vec!["a:b".into(), "c".into()];
        w.target = Target::Files { paths, size: Some(8 << 20) };
        w
    })
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_lines_never_panic(lines in prop::collection::vec(line(), 0..12)) {
        match parse(&lines.join("\n")) {
            Ok(file) => prop_assert!(!file.workloads.is_empty()),
            Err(error) => prop_assert!(error.line >= 1),
        }
    }

    /// JSON has the settings as fio's options.
    #[test]
    fn the_options_in_json_are_a_job_file(workload in expressible()) {
        let mut text = "[job]\n".to_owned();
        for (key, value) in crate::bench::report::json::options(&workload) {
            text += &match (key.as_str(), value.as_str().unwrap()) {
                // Of both files together.
                ("size", _) => "size=16m\n".to_owned(),
                (_, value) => format!("{key}={value}\n"),
            };
        }
        let file = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(file.workloads, vec![workload]);
    }
}
