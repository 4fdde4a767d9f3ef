//! `ringway bench` as a user runs it: the whole command, in tiny runs. No test asserts speed.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Ends after requests, because a busy machine may complete none in a fixed time.
const SHORT: &str = "--requests 50 --ramp 0 --repeat 1";

/// Much longer than any test takes, even on a busy machine; a test that hangs fails after it.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A new folder, in which the command runs.
struct Folder(tempfile::TempDir);

impl Folder {
    /// On the file system of the build.
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// One on the file system of the build, and one on tmpfs.
    fn on_each_file_system() -> impl Iterator<Item = Self> {
        let memory = tempfile::tempdir_in("/dev/shm").ok();
        std::iter::once(Self::new()).chain(memory.map(Self))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn open(&self, name: &str) -> fs::File {
        fs::OpenOptions::new().write(true).open(self.path(name)).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The names of its files, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn ringway(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.current_dir(&self.0).stdin(Stdio::null()).env_remove("RINGWAY_BACKEND");
        command
    }

    /// `ringway bench` with these arguments, several of which may be in one string. Its output is
    /// read.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.ringway();
        command.arg("bench").args(args.iter().flat_map(|words| words.split_whitespace()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn bench(&self, args: &[&str]) -> Output {
        finish(self.command(args).spawn().expect("the command starts"))
    }

    /// Like [`bench`](Self::bench), with a file size limit.
    fn bench_with_file_limit(&self, limit: u64, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let set_limit = move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: the call reads one live `rlimit`.
            match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec the closure makes one async-signal-safe call and takes no
        // lock.
        unsafe { command.pre_exec(set_limit) };
        finish(command.spawn().expect("the command starts"))
    }

    /// What the bench writes to standard output.
    fn succeeds(&self, args: &[&str]) -> String {
        succeeded(&self.bench(args))
    }

    /// The JSON that the bench writes to standard output.
    fn report(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.succeeds(args)).unwrap()
    }

    /// Asserts the exit status, and that standard error contains these texts.
    fn fails(&self, args: &[&str], status: i32, texts: &[&str]) {
        failed(&self.bench(args), status, texts);
    }
}

/// Waits for the child, and kills it after the timeout.
fn finish(child: Child) -> Output {
    let id = child.id() as i32;
    let (done, is_done) = mpsc::channel::<()>();
    // A run that hangs fails its own test instead of blocking all tests.
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the call takes numbers; the child has not been reaped, so the id is its own.
            unsafe { libc::kill(id, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().expect("the command ends");
    drop(done);
    watch.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Asserts the exit status, and that standard error contains these texts.
fn failed(output: &Output, status: i32, texts: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{}\n{stderr}", text(&output.stdout));
    for part in texts {
        assert!(stderr.contains(part), "`{part}` in: {stderr}");
    }
}

fn jobs(report: &Value) -> &Vec<Value> {
    report["jobs"].as_array().expect("jobs")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// The reads and writes of a job: how many, or their bytes.
fn sum(job: &Value, of: &str) -> u64 {
    number(&job["read"][of]) + number(&job["write"][of])
}

/// Checks sums that are the same in every report.
fn check_sums(report: &Value, block_size: u64) {
    for job in jobs(report) {
        for direction in [&job["read"], &job["write"]] {
            let ops = number(&direction["total_ios"]);
            assert_eq!(ops * block_size, number(&direction["io_bytes"]), "{job}");
        }
        assert!(sum(job, "total_ios") > 0, "{job}");
    }
}

#[test]
fn every_backend_reads_and_writes_on_every_file_system() {
    for folder in Folder::on_each_file_system() {
        let args = "--size 2m --rw randread,randwrite,read,write,randrw,rw --depth 1,8 --json -";
        let report = folder.report(&[args, "--requests 200 --ramp 0 --repeat 2"]);
        // The null backend has one configuration for direct and buffered I/O, like the others here.
        assert_eq!(jobs(&report).len(), 6 * 2 * 4);
        check_sums(&report, 4096);
        let is_whole = |job: &Value| sum(job, "total_ios").is_multiple_of(200);
        assert!(jobs(&report).iter().all(is_whole), "{report}");
        assert_eq!(folder.names(), [""; 0]);
    }
}

#[test]
fn options_of_the_ring_run_or_have_a_reason() {
    let args = "--size 2m --backend uring,kaio --depth 4 --sqpoll 0,1 --fixed-buffers";
    let more = "--fixed-files --iopoll 0,1 --batch 2 --jobs 2 --json -";
    check_sums(&Folder::new().report(&[args, more, SHORT]), 4096);
}

#[test]
fn all_reports_are_written() {
    let folder = Folder::new();
    let args = "--size 2m --depth 1,4 --json out.json --csv out.csv --html out.html";
    let table = folder.succeeds(&[args, SHORT]);
    assert!(table.contains("uring") || table.contains("refused"), "{table}");

    let read = |name| text(&folder.read(name));
    check_sums(&serde_json::from_str(&read("out.json")).unwrap(), 4096);
    let mut csv = csv::Reader::from_reader(fs::File::open(folder.path("out.csv")).unwrap());
    assert!(csv.records().map(Result::unwrap).count() >= 8);
    assert!(read("out.html").contains("<svg"));
}

#[test]
fn a_report_that_cannot_be_written_does_not_lose_the_others() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let folder = Folder::new();
    // The second one is a pipe without a reader, which is not that of standard output.
    for report in ["/dev/full", "/dev/stdin"] {
        let args = "--backend null --depth 1 --csv out.csv --json";
        let mut command = folder.command(&[SHORT, args, report]);
        command.stdin(writer.try_clone().unwrap());
        let output = finish(command.spawn().unwrap());
        failed(&output, 1, &[report]);
        for report in [output.stdout, folder.read("out.csv")] {
            assert!(text(&report).contains("null"), "{}", text(&report));
        }
    }
}

#[test]
fn every_report_that_cannot_be_written_is_named() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let folder = Folder::new();
    let args = "--backend null --depth 1 --html out.html --csv /dev/stdin --json /dev/full";
    let mut command = folder.command(&[SHORT, args]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = finish(command.stdin(writer).stdout(full).spawn().unwrap());
    failed(&output, 1, &["/dev/stdin: ", "/dev/full: ", "standard output: "]);
    assert!(text(&folder.read("out.html")).contains("null"));
}

#[test]
fn a_refusal_leaves_no_file() {
    let folder = Folder::new();
    folder.write("old.json", "old");
    folder.fails(&["--json new.json --csv old.json missing"], 1, &["missing does not exist"]);
    folder.fails(&["--passthrough --size 1m file --html new.html"], 1, &["whole NVMe disk"]);
    assert_eq!(folder.names(), ["old.json"]);
    assert_eq!(folder.read("old.json"), b"old");
}

#[test]
fn existing_files_are_not_written_to_without_overwrite() {
    let folder = Folder::new();
    let content = vec![0x5a; 1 << 20];
    folder.write("precious", &content);
    for args in ["--rw randwrite", "--rw randrw --size 1m", "--fill"] {
        folder.fails(&[args, SHORT, "precious"], 1, &["precious", "--overwrite"]);
        assert!(folder.read("precious") == content);
    }
    // Reading needs no permission to write, and every byte can be checked.
    let report = folder.report(&[SHORT, "--verify --depth 4 --json - precious"]);
    check_sums(&report, 4096);
    assert!(folder.read("precious") == content);
    folder.succeeds(&[SHORT, "--rw write --overwrite --depth 4 precious"]);
    assert!(folder.read("precious") != content);
}

#[test]
fn reading_writes_nothing_even_with_overwrite() {
    let folder = Folder::new();
    let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    folder.write("precious", &content);
    let modified = || fs::metadata(folder.path("precious")).unwrap().modified().unwrap();
    let before = modified();
    let job =
        "[job]\nfilename=precious\nrw=randread\nsize=1m\n[other]\nstonewall\nfilename=precious\n";
    folder.write("job.fio", job);
    let read = "--overwrite --verify --rw randread,read --depth 4";
    for args in [
        &[read, SHORT, "precious"][..],
        &[read, SHORT, "--size 512k precious"],
        &["--overwrite --verify job.fio"],
    ] {
        folder.succeeds(args);
        assert!(folder.read("precious") == content && modified() == before, "{args:?}");
    }
    folder.fails(&[read, SHORT, "--size 2m precious"], 1, &["--fill"]);
    assert!(folder.read("precious") == content);
}

#[test]
fn reading_verifies_what_an_earlier_run_wrote() {
    let folder = Folder::new();
    for lay in ["--rw write --verify --size 1m", "--rw read --fill"] {
        let whole = "--requests 256 --ramp 0 --repeat 1 --depth 4 --backend threads";
        folder.succeeds(&[lay, whole, "--overwrite file"]);
        let read = ["--rw read --verify file", whole];
        assert!(!folder.succeeds(&read).contains("plain reads"));
        folder.open("file").write_all_at(b"damaged", 700_001).unwrap();
        folder.fails(&read, 3, &["1 blocks of 512 bytes"]);
    }
}

#[test]
fn a_report_does_not_overwrite_files_of_the_bench() {
    let folder = Folder::new();
    folder.write("precious", [7; 8192]);
    std::os::unix::fs::symlink(folder.path("precious"), folder.path("link")).unwrap();
    let job = "[job]\nfilename=precious\n";
    folder.write("job.fio", job);
    folder.write("including.fio", "[job]\nfilename=precious\ninclude included\n");
    folder.write("included", "rw=read\n");
    for args in [
        "--json precious precious",
        "--overwrite --rw write --csv link precious",
        "--html link job.fio",
        "--json job.fio job.fio",
        "--json included including.fio",
        "--json new --csv ./new precious",
        "--json made --overwrite --size 8k made",
    ] {
        folder.fails(&[args], 1, &["give another file for the report"]);
        assert!(folder.read("precious") == [7; 8192] && folder.read("job.fio") == job.as_bytes());
        assert_eq!(folder.read("included"), b"rw=read\n");
    }
    // Whatever its name is.
    let other = folder.0.path().join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&other).unwrap();
    for name in ["including.fio", "included"] {
        fs::rename(folder.path(name), other.join(name)).unwrap();
    }
    let mut command = folder.command(&["--json"]);
    command.args([other.join("included"), other.join("including.fio")]);
    let output = finish(command.spawn().unwrap());
    failed(&output, 1, &["give another file for the report"]);
    assert_eq!(fs::read(other.join("included")).unwrap(), b"rw=read\n");
}

#[test]
fn failed_requests_have_their_own_status() {
    // The file size limit stands for a device with bad blocks: every second request exceeds it.
    let job =
        |more: &str| format!("[job]\nrw=write\nsize=1m\nfallocate=none\nioengine=psync\n{more}\n");
    for (more, expected) in [
        // As in fio, the first error ends a job.
        ("", "1 of 129 requests failed (0.775 %)"),
        ("continue_on_error=all", "128 of 256 requests failed (50.000 %)"),
        ("offset=512k\ncontinue_on_error=1", "256 of 256 requests failed (100.000 %)"),
    ] {
        let folder = Folder::new();
        folder.write("job.fio", job(more));
        let output = folder.bench_with_file_limit(512 << 10, &["job.fio"]);
        failed(&output, 4, &[expected]);
        assert!(text(&output.stdout).contains("File too large"), "{}", text(&output.stdout));
    }
}

#[test]
fn running_the_harness_alone_is_an_error() {
    let folder = Folder::new();
    folder.write("file", [7; 100]);
    for backend in ["", "--backend null,uring"] {
        let args = [SHORT, "--depth 1 file", backend];
        folder.fails(&args, 1, &["no configuration can run here"]);
    }
    folder.succeeds(&[SHORT, "--depth 1 file --backend null"]);
}

#[test]
fn a_file_that_becomes_shorter_is_an_error() {
    for backend in ["uring", "kaio", "threads", "psync"] {
        let folder = Folder::new();
        folder.write("file", vec![7; 1 << 20]);
        let args = "--verify --depth 2 --runtime 1s --repeat 1 --direct 0 file --backend";
        let mut child = folder.command(&[args, backend]).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut seen = read_until(&mut stderr, "runs:");
        folder.open("file").set_len(1 << 18).unwrap();
        stderr.read_to_end(&mut seen).unwrap();
        let output = finish(child);
        if output.status.code() == Some(1) && text(&seen).contains("no configuration can run here")
        {
            eprintln!("skipped: {backend} is refused here\n{}", text(&output.stdout));
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{backend}: {}", text(&seen));
        assert!(text(&output.stdout).contains("the end of the file"), "{}", text(&output.stdout));
    }
}

#[test]
fn a_busy_machine_is_warned_about() {
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let args = "--size 1m --backend threads --depth 1 --repeat 1 --runtime 300ms --json -";
        let output = Folder::new().bench(&[args]);
        ended.store(true, Ordering::Relaxed);
        output
    });
    let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    let others = &jobs(&report)[0]["ringway"]["other_processors"];
    assert!(others.as_f64().is_some_and(|processors| processors > 0.0), "{others}");
    let warnings = report["ringway"]["summary"]["warnings"].to_string();
    assert!(warnings.contains("The machine was busy: other programs used"), "{warnings}");
}

#[test]
fn a_job_that_cannot_run_has_a_status_and_the_others_run() {
    let folder = Folder::new();
    let job = "[global]\nsize=64k\nfilename=file\n[odd]\ndirect=1\nbs=1000\n[even]\nbs=4k\n";
    folder.write("job.fio", job);
    let output = folder.bench(&["job.fio", "--json", "-"]);
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    if report["ringway"]["not_run"].as_array().unwrap().is_empty() {
        eprintln!("skipped: this file system refuses no size of direct I/O");
        return;
    }
    failed(&output, 1, &["not run: odd"]);
    assert_eq!(jobs(&report).len(), 1);
}

/// The amounts that fio 3.33 moves for these job files, recorded by `scripts/compare-fio-jobs.py`.
#[test]
fn job_files_move_what_fio_moves() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("fio_jobs.json")).unwrap();
    for case in &cases {
        let folder = Folder::new();
        for (name, size) in case["before"].as_object().into_iter().flatten() {
            fs::File::create(folder.path(name)).unwrap().set_len(number(size)).unwrap();
        }
        for (name, text) in case["beside"].as_object().into_iter().flatten() {
            folder.write(name, text.as_str().unwrap());
        }
        folder.write("job.fio", case["job"].as_str().unwrap());
        let report = folder.report(&["job.fio", "--json", "-", "--overwrite"]);
        let theirs = case["fio"]["jobs"].as_array().unwrap();
        assert_eq!(jobs(&report).len(), theirs.len(), "{case}");
        for (ours, theirs) in jobs(&report).iter().zip(theirs) {
            assert_eq!(ours["job options"]["ioengine"], theirs["ioengine"], "{case}");
            for direction in ["read", "write"].into_iter().filter(|_| case["random"].is_null()) {
                assert_eq!(ours[direction]["total_ios"], theirs[direction][0], "{case}");
            }
        }
        let bytes = jobs(&report).iter().map(|job| sum(job, "io_bytes"));
        let their_bytes =
            theirs.iter().map(|job| number(&job["read"][1]) + number(&job["write"][1]));
        assert_eq!(bytes.sum::<u64>(), their_bytes.sum::<u64>(), "{case}");
        let syncs: u64 = jobs(&report).iter().map(|job| number(&job["sync"]["total_ios"])).sum();
        assert_eq!(syncs, number(&case["fio"]["syncs"]), "{case}");
        for (name, size) in case["fio"]["files"].as_object().unwrap() {
            assert_eq!(folder.read(name).len() as u64, number(size), "{name} of {case}");
        }
    }
}

#[test]
fn other_kinds_of_files_are_refused() {
    let folder = Folder::new();
    for (args, status, texts) in [
        ("/dev/null", 1, &["/dev/null", "neither a file nor a block device"][..]),
        ("--overwrite .", 1, &["is a directory"]),
        ("missing", 1, &["missing does not exist; give --size"]),
        (
            "--passthrough /dev/ringway-missing",
            1,
            &["ringway: /dev/ringway-missing does not exist\n"],
        ),
        ("--passthrough --size 1m file", 1, &["whole NVMe disk", "this is a regular file"]),
        ("--size 4000t", 1, &["nothing was written", "--scratch"]),
        ("--depth 0", 2, &["--depth"]),
    ] {
        folder.fails(&[args], status, texts);
    }
}

#[test]
fn verify_checks_every_backend_and_finds_nothing_wrong() {
    for folder in Folder::on_each_file_system() {
        let args = "--size 1m --rw randread,write,randwrite,randrw --depth 8 --jobs 2";
        let more = "--bs 4k,16k --verify --direct 0,1 --csv - --requests 100 --repeat 1";
        let csv = folder.succeeds(&[args, more]);
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let headers = csv.headers().unwrap().clone();
        let at = |name| headers.iter().position(|header| header == name).unwrap();
        for row in csv.records().map(Result::unwrap).filter(|row| &row[at("backend")] != "null") {
            if row[at("verified_blocks")].is_empty() {
                // Refused on this machine, with a note.
                assert!(!row[at("notes")].is_empty(), "{row:?}");
                continue;
            }
            assert!(row[at("verified_blocks")].parse::<u64>().unwrap() > 0, "{row:?}");
            assert_eq!(&row[at("verified_wrong_blocks")], "0", "{row:?}");
        }
    }
}

#[test]
fn verify_detects_changed_bytes() {
    let folder = Folder::new();
    let path = folder.path("file");
    let args = "--verify --size 64k --direct 0 --depth 2 --backend threads --repeat 1";
    let more = "--runtime 500ms file";
    let mut child = folder.command(&[args, more]).spawn().unwrap();
    // The command fills the file first. Two bytes are changed again and again until it ends.
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the command ends");
        if let Ok(file) = fs::OpenOptions::new().write(true).open(&path) {
            file.write_all_at(&[0xff, 0xff], 5000).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    failed(&child.wait_with_output().unwrap(), 3, &["had wrong bytes"]);
}

/// Starts the command with the default action of the signals that end it. A child inherits it, and
/// this test may run with some of them ignored (SIGHUP below `nohup`) or blocked.
fn start_interruptible(mut command: Command) -> Child {
    let restore = || {
        // SAFETY: all these calls are async-signal-safe, and the `sigset_t` is a live local
        // variable.
        unsafe {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes async-signal-safe calls only and takes no
    // lock.
    unsafe { command.pre_exec(restore) };
    command.spawn().expect("the command starts")
}

/// Reads until the text is there, and returns what was read.
fn read_until(stderr: &mut impl Read, when: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    while !text(&seen).contains(when) {
        let mut byte = [0];
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", text(&seen));
        seen.push(byte[0]);
    }
    seen
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: the call takes numbers; the child has not been reaped, so the id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Sends a signal when standard error contains `when`, and returns the rest of the output and the
/// status.
fn stop(mut child: Child, when: &str, signal: i32) -> Output {
    let mut stderr = child.stderr.take().unwrap();
    read_until(&mut stderr, when);
    kill(&child, signal);
    finish(child)
}

#[test]
fn nothing_is_left_behind_after_a_signal() {
    // While the scratch file is written, and while the bench runs.
    for (size, when) in [("2g", "writing"), ("4m", "runs:")] {
        for signal in [libc::SIGINT, libc::SIGKILL] {
            let folder = Folder::new();
            let args = ["--depth 2 --runtime 30s --size", size];
            let mut command = folder.command(&args);
            command.stdout(Stdio::null());
            let status = stop(start_interruptible(command), when, signal).status;
            let is_reported = when == "runs:" && signal == libc::SIGINT;
            let expected = if is_reported { (Some(130), None) } else { (None, Some(signal)) };
            assert_eq!((status.code(), status.signal()), expected, "{when}");
            assert_eq!(folder.names(), [""; 0]);
        }
    }
}

#[test]
fn a_signal_removes_a_file_that_is_half_filled() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let folder = Folder::new();
        let start = |more: &str| {
            let mut command = folder.command(&["--runtime 30s --size 2g", more]);
            command.stdout(Stdio::null());
            start_interruptible(command)
        };
        let status = stop(start("new"), "writing", signal).status;
        assert_eq!((status.code(), status.signal()), (None, Some(signal)));
        assert_eq!(folder.names(), [""; 0]);
        // Only a file that the command has created.
        folder.write("old", "content");
        let status = stop(start("old --fill --overwrite"), "writing", signal).status;
        assert_eq!((status.code(), status.signal()), (None, Some(signal)));
        assert_eq!(folder.names(), ["old"]);
    }
}

/// A bench that would take minutes.
fn start_long_bench(folder: &Folder, more: &str, stdout: Stdio) -> Child {
    let args = "--size 1m --backend threads,null --depth 1 --ramp 0 --repeat 1000";
    let mut command = folder.command(&[args, "--runtime 100ms", more]);
    command.stdout(stdout);
    start_interruptible(command)
}

#[test]
fn the_finished_runs_of_an_interrupted_bench_are_reported() {
    let folder = Folder::new();
    let outputs = "--json out.json --csv out.csv --html out.html";
    let read = |name| text(&folder.read(name));
    // How long until a run finishes depends on the machine.
    let (mut seconds, mut finished) = (1, 0);
    let (report, output, stderr) = loop {
        let mut child = start_long_bench(&folder, outputs, Stdio::piped());
        let mut stderr = child.stderr.take().unwrap();
        read_until(&mut stderr, "runs:");
        std::thread::sleep(Duration::from_secs(seconds));
        kill(&child, libc::SIGINT);
        let output = finish(child);
        let stderr = std::io::read_to_string(stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        let report: Value = serde_json::from_str(&read("out.json")).unwrap();
        let interrupted = &report["ringway"]["interrupted"];
        finished += number(&interrupted["finished"]);
        assert!(finished < 2000 && interrupted["planned"] == 2000, "{interrupted}");
        if finished > 0 {
            break (report, output, stderr);
        }
        seconds *= 2;
        assert!(seconds < TIMEOUT.as_secs(), "no run finishes");
    };
    let runs = |job: &Value| job["ringway"]["runs"].as_array().unwrap().len() as u64;
    assert_eq!(jobs(&report).iter().map(runs).sum::<u64>(), finished);
    let stdout = text(&output.stdout);
    let sentence = format!("interrupted: {finished} of 2000 runs finished");
    assert!(stderr.contains(&sentence), "{stderr}");
    let stdout_words = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stdout_words.contains(&sentence.replace("int", "Int")), "{stdout}");
    let missing = format!("interrupted: {} of 1,000 runs finished", runs(&jobs(&report)[0]));
    for output in [stdout_words, read("out.csv"), read("out.html"), read("out.json")] {
        assert!(output.contains(&missing), "{missing}: {output}");
    }
}

#[test]
fn an_interrupt_ends_long_runs_and_pauses() {
    let folder = Folder::new();
    folder.write("job.fio", "[job]\nrw=read\nsize=1m\nthinktime=1h\n");
    for args in ["job.fio", "--size 1m --runtime 1h --verify"] {
        let child = start_interruptible(folder.command(&[args]));
        let output = stop(child, "runs:", libc::SIGINT);
        assert_eq!(output.status.code(), Some(130), "{args:?}");
        assert!(text(&output.stdout).contains("Interrupted: 0 of"), "{}", text(&output.stdout));
    }
}

/// Ctrl-C ends the other programs of a pipeline too.
#[test]
fn a_closed_pipe_does_not_change_the_exit_status() {
    let folder = Folder::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = start_long_bench(&folder, "", writer.into());
    let output = stop(child, "runs:", libc::SIGINT);
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn a_second_interrupt_ends_the_bench_at_once() {
    let folder = Folder::new();
    // The report cannot be written, because the pipe is full.
    let (_reader, writer) = std::io::pipe().unwrap();
    let set_flags = |flags: i32| {
        // SAFETY: the call takes numbers and changes the flags of a live pipe.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) }, 0);
    };
    set_flags(libc::O_NONBLOCK);
    while std::io::Write::write(&mut &writer, &[0; 4096]).is_ok() {}
    set_flags(0);
    let mut child = start_long_bench(&folder, "--json out.json", writer.into());
    let mut stderr = child.stderr.take().unwrap();
    read_until(&mut stderr, "runs:");
    std::thread::sleep(Duration::from_millis(200));
    kill(&child, libc::SIGINT);
    let until = Instant::now() + TIMEOUT;
    while folder.read("out.json").is_empty() {
        assert!(Instant::now() < until, "the other report is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for the pipe");
    kill(&child, libc::SIGINT);
    assert_eq!(finish(child).status.signal(), Some(libc::SIGINT));
}

#[test]
fn requests_and_syncs_are_counted() {
    type Check = fn(&Value) -> bool;
    // The options, the numbers of jobs, and what each must show.
    let cases: [(&str, RangeInclusive<usize>, Check); 4] = [
        // psync makes one system call for each request.
        (
            "--backend psync --depth 8 --rw randread,randwrite --jobs 2 --requests 100 --ramp 0",
            2..=2,
            |job| {
                let own = &job["ringway"];
                let is_200 = own["system_calls"] == 200 && own["ops"] == 200;
                is_200 && job["job options"]["iodepth"] == "1"
            },
        ),
        // 500 a second for 400 ms; requests of the ramp that complete late count too.
        ("--rate 500 --depth 16 --runtime 400ms", 1..=9, |job| {
            number(&job["read"]["total_ios"]) <= 200 + 60
        }),
        // 200 writes were due, however slow the device is: syncs do not count against the rate.
        (
            "--rw write --rate 400 --fdatasync 1 --runtime 500ms --ramp 0 --depth 1,4",
            2..=9,
            |job| {
                let due =
                    number(&job["write"]["total_ios"]) + number(&job["ringway"]["not_started"]);
                (199..=201).contains(&due)
            },
        ),
        // The last writes are not followed by a sync.
        ("--rw write --depth 1,4 --fdatasync 4 --requests 40 --ramp 0", 2..=9, |job| {
            job["write"]["total_ios"] == 40 && job["sync"]["total_ios"] == 9
        }),
    ];
    for (args, count, is_right) in cases {
        let report = Folder::new().report(&["--size 1m --repeat 1 --json -", args]);
        assert!(count.contains(&jobs(&report).len()), "{args}: {report}");
        check_sums(&report, 4096);
        for job in jobs(&report) {
            assert!(is_right(job), "{args}: {job}");
        }
    }
}

/// However many of them the harness makes, all that were due are counted.
#[test]
fn requests_of_several_sizes_that_were_due_are_counted() {
    let folder = Folder::new();
    let job = "[job]\nioengine=null\nsize=1m\nfilename=file\nrw=randread\nbssplit=4k/50:64k/50\n";
    folder.write("job.fio", format!("{job}rate=1t\nruntime=200ms\ntime_based\n"));
    let report = folder.report(&["--json - job.fio"]);
    let job = &jobs(&report)[0];
    let (made, bytes) = (sum(job, "total_ios") as f64, sum(job, "io_bytes") as f64);
    // On a busy machine none may have been made.
    let average = if made > 0.0 { bytes / made } else { 4096.0 };
    let due = number(&job["ringway"]["not_started"]) as f64 * average + bytes;
    let share = due / (0.2 * (1u64 << 40) as f64);
    assert!((0.99..1.01).contains(&share), "{share}");
}

/// The two job files of a published comparison of Linux AIO with io_uring, with a shorter time, a
/// smaller size and another folder: what each begins with, and what both have.
const ARTICLES: [(&str, &str); 2] = [
    ("aio.fio", "[global]\nioengine=libaio\ndirect=0\n"),
    (
        "uring.fio",
        "[global]\nioengine=io_uring\nsqthread_poll=1 #开启io_uring sq_poll模式\ndirect=1\n",
    ),
];
const ARTICLE: &str = "randrepeat=1\nthreads=8\nruntime=1\ntime_based\nsize=1M\n\
                       directory=test-data\ngroup_reporting\n[read256B-rand]\nbs=4096\n\
                       rw=randread\nnumjobs=1\niodepth=128\n";

#[test]
fn job_files_run() {
    let folder = Folder::new();
    for (name, head) in ARTICLES {
        folder.write(name, format!("{head}{ARTICLE}"));
    }
    let report = folder.report(&["aio.fio", "uring.fio", "--json", "-"]);
    check_sums(&report, 4096);
    assert_eq!(jobs(&report).len(), 2);
    assert!(jobs(&report).iter().all(|job| job["jobname"] == "read256B-rand"));
    // The file is kept under the name that fio gives it.
    assert_eq!(folder.read("test-data/read256B-rand.0.0").len(), 1 << 20);
}

#[test]
fn job_files_end_after_their_size_and_may_have_any_name() {
    let folder = Folder::new();
    let job = "[global]\nsize=256k\nioengine=io_uring\n[fill]\nrw=write\nnumjobs=2\nbs=16k\n\
               [fill]\nrw=randread\nfilename=named\n[again]\nrw=randrw\nfilename=named\n";
    folder.write("job", job);
    let report = folder.report(&["job", "--json", "-", "--verify"]);
    let bytes = jobs(&report).iter().map(|job| sum(job, "io_bytes"));
    assert_eq!(bytes.collect::<Vec<_>>(), [256 << 10; 4]);
    assert_eq!(folder.names(), ["fill.0.0", "fill.1.0", "job", "named"]);
    // They exist now, so writing to them needs --overwrite.
    folder.fails(&["job"], 1, &["fill.0.0", "--overwrite"]);
    folder.succeeds(&["job", "--overwrite"]);
}

#[test]
fn errors_in_job_files_have_line_and_key() {
    let folder = Folder::new();
    folder.write("job.fio", "[job]\nsize=1m\niodpeth=32\n");
    let texts = ["job.fio", "line 3", "`iodpeth`", "did you mean `iodepth`?"];
    folder.fails(&["job.fio"], 1, &texts);
    folder.write("job.fio", "[job]\nsize=1m\n");
    folder.fails(&["job.fio --depth 4"], 1, &["--depth cannot be used with a job file"]);
    assert_eq!(folder.names(), ["job.fio"]);
}

#[test]
fn a_refused_configuration_has_a_reason_and_the_others_run() {
    // A block size that direct I/O does not support stands for any refusal.
    let args = "--size 1m --bs 4k,1000 --direct 1 --depth 2 --backend threads --csv -";
    let csv = Folder::new().succeeds(&[args, SHORT]);
    let buffered = csv.contains("does not support direct I/O") || !csv.contains(",true,");
    assert!(buffered || csv.contains("direct I/O on this file needs multiples of"), "{csv}");
}

#[test]
fn control_characters_of_a_missing_path_have_no_effect() {
    for command in ["probe", "bench"] {
        let output = Folder::new().ringway().args([command, "\x1b[31m"]).output().unwrap();
        failed(&output, 1, &["\u{fffd}[31m"]);
        assert!(!output.stderr.contains(&0x1b), "{command}");
    }
}

#[test]
fn probe_and_version_work() {
    let folder = Folder::new();
    let run = |args: &[&str]| succeeded(&folder.ringway().args(args).output().unwrap());
    assert!(run(&["--version"]).starts_with("ringway "));
    assert!(run(&["probe"]).contains("kernel"));
    assert!(serde_json::from_str::<Value>(&run(&["probe", ".", "--json"])).is_ok());
    assert!(run(&["bench", "--help"]).contains("Exit status"));
}

#[test]
fn a_dry_run_shows_jobs_and_differences_and_creates_nothing() {
    let folder = Folder::new();
    let job = "[a]\nsize=1m\nioengine=sync\nbs=4KiB\n[b]\nsize=1m\nrw=randrw\nrate_iops=5\n";
    folder.write("job.fio", job);
    let output = folder.succeeds(&["--dry-run job.fio"]);
    let shown = output.replace("\n    ", " ");
    for part in [
        "a: psync batch=1, read, 4 KiB, buffered, depth 1, 1 job, 1 file a job of 1 MiB\n   in .\n",
        "Differences from fio\n",
        "line 3: `ioengine`: uses pread and pwrite",
        "line 4: `bs`: `4KiB` is 4096; in fio this unit is a power of 1000",
        "the sections run one after another",
        "[b]: the rate limits reads and writes together; in fio it limits each",
    ] {
        assert!(shown.contains(part), "`{part}` in {output}");
    }
    assert_eq!(folder.names(), ["job.fio"]);
    folder.write("job.fio", "[a]\nsize=1m\n");
    let output = folder.succeeds(&["--dry-run job.fio"]);
    assert!(output.contains("All keys have the meaning of fio."), "{output}");
    assert!(folder.succeeds(&["--dry-run --size 1m"]).contains("randread-4k-32"));
}

#[test]
fn every_json_key_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = Folder::new();
    let rate = "--rate 1000 --runtime 100ms --repeat 1 --verify --json -";
    let bench = folder.report(&["--size 1m --backend threads --depth 1", rate]);
    let probe = folder.ringway().args(["probe", ".", "--json"]).output().unwrap();
    let probe: Value = serde_json::from_str(&succeeded(&probe)).unwrap();
    for object in [
        &bench["ringway"],
        &bench["ringway"]["summary"],
        &bench["jobs"][0]["ringway"],
        &probe,
        &probe["machine"],
        &probe["backends"],
        &probe["backends"]["kaio"],
        &probe["path"],
    ] {
        for key in object.as_object().unwrap().keys().filter(|key| *key != "latency") {
            let is_named =
                [format!("{key}`"), format!("`{key}.")].iter().any(|name| page.contains(name));
            assert!(is_named, "`{key}` is not in docs/command-line.md");
        }
    }
}
