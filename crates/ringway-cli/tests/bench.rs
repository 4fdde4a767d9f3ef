//! `ringway bench` as a user runs it: the whole command, in tiny runs. How fast anything is, is never asserted.

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SHORT: [&str; 6] = ["--runtime", "60ms", "--ramp", "10ms", "--repeat", "1"];

/// No run here takes more than some seconds, even on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn ringway(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.current_dir(folder).stdin(Stdio::null()).env_remove("RINGWAY_BACKEND");
    command
}

fn bench(folder: &Path, args: &[&str]) -> Output {
    let mut command = ringway(folder);
    command.arg("bench").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let id = child.id() as i32;
    let (done, is_done) = mpsc::channel::<()>();
    // A run that hangs should fail its own test, not stop all of them.
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the call takes numbers; the child has not been waited for to its end, so the id is its own.
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
    assert!(output.status.success(), "{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Asserts the exit status, and that all of this is said.
fn failed(output: &Output, status: i32, told: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{}\n{stderr}", text(&output.stdout));
    for told in told {
        assert!(stderr.contains(told), "`{told}` in: {stderr}");
    }
}

/// A folder on the file system of the build, and one in memory.
fn folders() -> Vec<tempfile::TempDir> {
    let build = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm");
    std::iter::once(build).chain(memory.ok()).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn jobs(report: &Value) -> &Vec<Value> {
    report["jobs"].as_array().expect("jobs")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// Sums that hold in every report.
fn check_sums(report: &Value, block_size: u64) {
    for job in jobs(report) {
        for direction in ["read", "write"] {
            let direction = &job[direction];
            assert_eq!(number(&direction["total_ios"]) * block_size, number(&direction["io_bytes"]), "{job}");
        }
        let ops = number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]);
        assert!(ops > 0, "{job}");
    }
}

#[test]
fn every_backend_reads_and_writes_on_every_file_system() {
    for folder in folders() {
        let args = ["--size", "2m", "--rw", "randread,randwrite,read,write,randrw,rw", "--depth", "1,8", "--json", "-"];
        let output =
            bench(folder.path(), &[&args[..], &["--requests", "200", "--ramp", "0", "--repeat", "2"]].concat());
        let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
        // Null has no direct I/O, and so as many cells as any other.
        assert_eq!(jobs(&report).len(), 6 * 2 * 4);
        check_sums(&report, 4096);
        for job in jobs(&report) {
            let ops = number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]);
            assert_eq!(ops % 200, 0, "{job}");
        }
        assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn options_of_the_ring_run_or_say_why_not() {
    let folder = folder();
    let args = ["--size", "2m", "--backend", "uring,kaio", "--depth", "4", "--sqpoll", "0,1", "--fixed-buffers"];
    let more = ["--fixed-files", "--iopoll", "0,1", "--batch", "2", "--jobs", "2", "--json", "-"];
    let report: Value =
        serde_json::from_str(&succeeded(&bench(folder.path(), &[&args[..], &more, &SHORT].concat()))).unwrap();
    check_sums(&report, 4096);
}

#[test]
fn all_reports_are_written() {
    let folder = folder();
    let args = ["--size", "2m", "--depth", "1,4", "--json", "out.json", "--csv", "out.csv", "--html", "out.html"];
    let table = succeeded(&bench(folder.path(), &[&args[..], &SHORT].concat()));
    assert!(table.contains("uring") || table.contains("refused"), "{table}");

    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    check_sums(&serde_json::from_str(&read("out.json")).unwrap(), 4096);
    let mut csv = csv::Reader::from_reader(fs::File::open(folder.path().join("out.csv")).unwrap());
    assert!(csv.records().map(Result::unwrap).count() >= 8);
    assert!(read("out.html").contains("<svg"));
}

#[test]
fn what_was_there_is_not_written_to_without_leave() {
    let folder = folder();
    let path = folder.path().join("precious");
    let content = vec![0x5a; 1 << 20];
    fs::write(&path, &content).unwrap();
    for args in [&["--rw", "randwrite"][..], &["--rw", "randrw", "--size", "1m"], &["--size", "2m"]] {
        failed(&bench(folder.path(), &[args, &SHORT, &["precious"]].concat()), 1, &["precious", "--overwrite"]);
        assert!(fs::read(&path).unwrap() == content);
    }
    // Reading is no matter, also where nobody may write, and every byte can be checked.
    let read = ["--verify", "--depth", "4", "--json", "-", "precious"];
    let report: Value = serde_json::from_str(&succeeded(&bench(folder.path(), &[&SHORT[..], &read].concat()))).unwrap();
    check_sums(&report, 4096);
    assert!(fs::read(&path).unwrap() == content);
    succeeded(&bench(
        folder.path(),
        &[&SHORT[..], &["--rw", "write", "--overwrite", "--depth", "4", "precious"]].concat(),
    ));
    assert!(fs::read(&path).unwrap() != content);
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = folder();
    failed(&bench(folder.path(), &["/dev/null"]), 1, &["/dev/null", "neither a file nor a block device"]);
    failed(&bench(folder.path(), &["--overwrite", "."]), 1, &["is a directory"]);
    failed(&bench(folder.path(), &["missing"]), 1, &["missing does not exist"]);
    failed(&bench(folder.path(), &["--size", "4000t"]), 1, &["nothing was written", "--scratch"]);
    failed(&bench(folder.path(), &["--depth", "0"]), 2, &["--depth"]);
}

#[test]
fn verify_checks_every_backend_and_finds_nothing_wrong() {
    for folder in folders() {
        let args = ["--size", "1m", "--rw", "randread,write,randwrite,randrw", "--depth", "1,8", "--jobs", "2"];
        let more =
            ["--bs", "4k,16k", "--verify", "--direct", "0,1", "--csv", "-", "--requests", "100", "--repeat", "2"];
        let csv = succeeded(&bench(folder.path(), &[&args[..], &more].concat()));
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let headers = csv.headers().unwrap().clone();
        let at = |name| headers.iter().position(|header| header == name).unwrap();
        for row in csv.records().map(Result::unwrap).filter(|row| &row[at("backend")] != "null") {
            if row[at("verified_blocks")].is_empty() {
                // Refused on this machine, which is said.
                assert!(!row[at("notes")].is_empty(), "{row:?}");
                continue;
            }
            assert!(row[at("verified_blocks")].parse::<u64>().is_ok_and(|blocks| blocks > 0), "{row:?}");
            assert_eq!(&row[at("verified_wrong_blocks")], "0", "{row:?}");
        }
    }
}

#[test]
fn verify_finds_bytes_that_somebody_else_changed() {
    let folder = folder();
    let path = folder.path().join("file");
    let mut child = ringway(folder.path())
        .args([
            "bench",
            "--verify",
            "--overwrite",
            "--size",
            "64k",
            "--direct",
            "0",
            "--depth",
            "2",
            "--backend",
            "threads",
        ])
        .args(["--runtime", "500ms", "--repeat", "1", "file"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The file is written first: a byte of it is changed until the command is done.
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the command ends");
        if let Ok(file) = fs::OpenOptions::new().write(true).open(&path) {
            file.write_all_at(&[0xff, 0xff], 5000).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    failed(&child.wait_with_output().unwrap(), 3, &["were not what they should have been"]);
}

#[test]
fn nothing_is_left_behind_when_it_is_stopped() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let folder = folder();
        let mut child = ringway(folder.path())
            .args(["bench", "--size", "4m", "--depth", "2", "--runtime", "30s"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so when the scratch file is there and the runs begin.
        let mut stderr = child.stderr.take().unwrap();
        let mut said = Vec::new();
        while !text(&said).contains("runs:") {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", text(&said));
            said.push(byte[0]);
        }
        // SAFETY: the call takes numbers; the child has not been waited for, so the id is still its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_fixed_rate_is_kept() {
    let folder = folder();
    let args = ["--size", "1m", "--rate", "500", "--depth", "16", "--runtime", "400ms", "--repeat", "1", "--json", "-"];
    let report: Value = serde_json::from_str(&succeeded(&bench(folder.path(), &args))).unwrap();
    for job in jobs(&report) {
        let ops = number(&job["read"]["total_ios"]);
        // 500 a second for 400 ms; those of the ramp that complete late belong to it too.
        assert!(ops <= 200 + 60, "{job}");
    }
}

#[test]
fn syncs_follow_writes() {
    let folder = folder();
    let args =
        ["--size", "1m", "--rw", "write", "--depth", "1,4", "--fdatasync", "4", "--requests", "40", "--ramp", "0"];
    let output = bench(folder.path(), &[&args[..], &["--repeat", "1", "--json", "-"]].concat());
    let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    check_sums(&report, 4096);
    for job in jobs(&report) {
        assert_eq!(number(&job["write"]["total_ios"]), 40);
        // The one behind the last writes is not needed any more.
        assert_eq!(number(&job["sync"]["total_ios"]), 9, "{job}");
    }
}

/// The two job files of a published comparison of Linux AIO with io_uring, but for time, size and place.
const ARTICLE: [&str; 2] = [
    "[global]\nioengine=libaio\ndirect=0\nrandrepeat=1\nthreads=8\nruntime=1\ntime_based\nsize=1M\n\
     directory=test-data\ngroup_reporting\n[read256B-rand]\nbs=4096\nrw=randread\nnumjobs=1\niodepth=128\n",
    "[global]\nioengine=io_uring\nsqthread_poll=1 #开启io_uring sq_poll模式\ndirect=1\nrandrepeat=1\nthreads=8\n\
     runtime=1\ntime_based\nsize=1M\ndirectory=test-data\ngroup_reporting\n[read256B-rand]\nbs=4096\nrw=randread\n\
     numjobs=1\niodepth=128\n",
];

#[test]
fn job_files_run() {
    let folder = folder();
    for (name, job) in ["aio.fio", "uring.fio"].into_iter().zip(ARTICLE) {
        fs::write(folder.path().join(name), job).unwrap();
    }
    let output = bench(folder.path(), &["aio.fio", "uring.fio", "--json", "-"]);
    let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    check_sums(&report, 4096);
    assert_eq!(jobs(&report).len(), 2);
    assert!(jobs(&report).iter().all(|job| job["jobname"] == "read256B-rand"));
    // Kept, and named as fio names it.
    assert_eq!(fs::metadata(folder.path().join("test-data/read256B-rand.0.0")).unwrap().len(), 1 << 20);
}

#[test]
fn job_files_end_after_their_size_and_may_have_any_name() {
    let folder = folder();
    let job = "[global]\nsize=256k\nioengine=io_uring\n[fill]\nrw=write\nnumjobs=2\nbs=16k\n[fill]\nrw=randread\n\
               filename=named\n[again]\nrw=randrw\nfilename=named\n";
    fs::write(folder.path().join("job"), job).unwrap();
    let report: Value =
        serde_json::from_str(&succeeded(&bench(folder.path(), &["job", "--json", "-", "--verify"]))).unwrap();
    let bytes = |job: &Value| number(&job["read"]["io_bytes"]) + number(&job["write"]["io_bytes"]);
    assert_eq!(jobs(&report).iter().map(bytes).collect::<Vec<_>>(), [512 << 10, 256 << 10, 256 << 10]);
    let mut names: Vec<_> = entries(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["fill.0.0", "fill.1.0", "job", "named"]);
    // They are there now, and to be written to again only with leave.
    failed(&bench(folder.path(), &["job"]), 1, &["fill.0.0", "--overwrite"]);
    succeeded(&bench(folder.path(), &["job", "--overwrite"]));
}

#[test]
fn mistakes_in_job_files_are_told_with_line_and_key() {
    let folder = folder();
    fs::write(folder.path().join("job.fio"), "[job]\nsize=1m\niodpeth=32\n").unwrap();
    failed(&bench(folder.path(), &["job.fio"]), 1, &["job.fio", "line 3", "`iodpeth`"]);
    fs::write(folder.path().join("job.fio"), "[job]\nsize=1m\n").unwrap();
    failed(&bench(folder.path(), &["job.fio", "--depth", "4"]), 1, &["--depth cannot be used with a job file"]);
    assert_eq!(entries(folder.path()).len(), 1);
}

#[test]
fn a_backend_that_is_refused_has_a_reason_and_the_others_run() {
    let folder = folder();
    // A block size that direct I/O does not take stands for any refusal.
    let args =
        ["--size", "1m", "--bs", "4k,1000", "--direct", "1", "--depth", "2", "--backend", "threads", "--csv", "-"];
    let output = bench(folder.path(), &[&args[..], &SHORT].concat());
    let csv = succeeded(&output);
    let buffered = text(&output.stderr).contains("there is no direct I/O") || !csv.contains(",true,");
    assert!(buffered || csv.contains("direct I/O on this file takes multiples of"), "{csv}");
}

#[test]
fn probe_and_version_answer() {
    let folder = folder();
    let run = |args: &[&str]| succeeded(&ringway(folder.path()).args(args).output().unwrap());
    assert!(run(&["--version"]).starts_with("ringway "));
    assert!(run(&["probe"]).contains("kernel"));
    assert!(serde_json::from_str::<Value>(&run(&["probe", ".", "--json"])).is_ok());
    assert!(run(&["bench", "--help"]).contains("Exit status"));
}
