//! `ringway sum` as a user runs it, compared with sha256sum and b3sum.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The default block size; files around multiples of it are tested.
const BLOCK: usize = 512 << 10;
/// The published hashes of an empty input and of test vectors.
const KNOWN: [(&str, &[u8], &str); 7] = [
    ("blake3", b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
    ("blake3", b"abc", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
    ("sha256", b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ("sha256", b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ("crc32c", b"", "00000000"),
    ("crc32c", b"123456789", "e3069283"),
    ("xxh3", b"", "XXH3_2d06800538d394c2"),
];

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn run(program: impl AsRef<OsStr>, folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    command.current_dir(folder).args(args).env("LC_ALL", "C").env_remove("RINGWAY_BACKEND");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command need not read all of it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the command ends");
    writer.join().unwrap();
    output
}

fn sum_of(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    run(env!("CARGO_BIN_EXE_ringway"), folder, &[&["sum"], args].concat(), input)
}

fn sum(folder: &Path, args: &[&str]) -> Output {
    sum_of(folder, args, b"")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts the exit status, standard output and standard error.
#[track_caller]
fn prints(output: &Output, status: i32, stdout: &str, stderr: &[&str]) {
    assert_eq!(text(&output.stdout), stdout, "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().collect::<Vec<_>>(), stderr);
    assert_eq!(output.status.code(), Some(status));
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

/// Files with sizes around the boundaries of blocks.
fn sized_files(folder: &Path) -> Vec<String> {
    let blocks = [0, 1, 2, 3, 9].map(|blocks| blocks * BLOCK);
    let sizes = blocks
        .iter()
        .flat_map(|size| [size.saturating_sub(1), *size, size + 1])
        .chain([1024, 4096, 5000]);
    let write = |size: usize| {
        let name = format!("size-{size:08}");
        fs::write(folder.join(&name), bytes(size)).unwrap();
        name
    };
    sizes.map(write).collect()
}

fn as_strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[test]
fn known_hashes() {
    let folder = folder();
    for (algorithm, content, hash) in KNOWN {
        fs::write(folder.path().join("file"), content).unwrap();
        prints(
            &sum(folder.path(), &["--algo", algorithm, "file"]),
            0,
            &format!("{hash}  file\n"),
            &[],
        );
        prints(
            &sum_of(folder.path(), &["--algo", algorithm], content),
            0,
            &format!("{hash}  -\n"),
            &[],
        );
    }
}

#[test]
fn sha256_matches_sha256sum_for_all_sizes_and_options() {
    let folder = folder();
    let names = sized_files(folder.path());
    let names = as_strs(&names);
    let expected = succeeded(&run("sha256sum", folder.path(), &names, b""));
    for way in [
        &[][..],
        &["--direct"],
        &["--dont-cache"],
        &["--files", "1", "--depth", "1"],
        &["--block", "64k"],
        &["--direct", "--block", "4m"],
    ] {
        let args = [&["--algo", "sha256"], way, &names].concat();
        assert_eq!(succeeded(&sum(folder.path(), &args)), expected, "{way:?}");
    }
}

#[test]
fn reading_options_do_not_change_the_hash() {
    let folder = folder();
    let names = sized_files(folder.path());
    let names = as_strs(&names);
    for algorithm in ["blake3", "crc32c", "xxh3"] {
        let hash = |way: &[&str]| {
            succeeded(&sum(folder.path(), &[&["--algo", algorithm], way, &names].concat()))
        };
        let expected = hash(&[]);
        for way in
            [&["--direct"][..], &["--block", "64k", "--depth", "3"], &["--block", "4m", "--direct"]]
        {
            assert_eq!(hash(way), expected, "{algorithm} {way:?}");
        }
        for (name, line) in names.iter().zip(expected.lines()) {
            let content = fs::read(folder.path().join(name)).unwrap();
            let piped = succeeded(&sum_of(folder.path(), &["--algo", algorithm, "-"], &content));
            assert_eq!(
                piped.split_whitespace().next(),
                line.split_whitespace().next(),
                "{algorithm} {name}"
            );
        }
    }
}

#[test]
fn backends_do_not_change_the_hash() {
    let folder = folder();
    let names = sized_files(folder.path());
    let expected = succeeded(&sum(folder.path(), &as_strs(&names)));
    for backend in ["uring", "kaio", "threads"] {
        for direct in [&[][..], &["--direct"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
            command
                .arg("sum")
                .args(direct)
                .args(&names)
                .current_dir(folder.path())
                .env("RINGWAY_BACKEND", backend);
            let output = command.output().unwrap();
            if !output.status.success() && text(&output.stderr).contains(backend) {
                println!("skipped: {backend} is refused: {}", text(&output.stderr));
                continue;
            }
            assert_eq!(succeeded(&output), expected, "{backend} {direct:?}");
        }
    }
}

/// A variable that nobody could mean is not ignored, in no command. fio's names are for options.
#[test]
fn an_unknown_backend_in_the_environment_is_refused() {
    let folder = folder();
    fs::write(folder.path().join("file"), "x").unwrap();
    for name in ["io_uring", "libaio", "URING", "null", "auto"] {
        let refused =
            format!("RINGWAY_BACKEND: `{name}` is not a backend; use one of uring, kaio, threads");
        let run = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
            command.args(args).current_dir(folder.path()).env("RINGWAY_BACKEND", name);
            command.output().unwrap()
        };
        let output = run(&["sum", "file"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(text(&output.stderr).contains(&refused), "{}", text(&output.stderr));
        // The backend that a queue chooses itself; the others are the command's choice.
        let short = ["--size", "64k", "--requests", "9", "--depth", "1", "--csv", "-"];
        let output = run(&[&["bench", "--backend", "auto"][..], &short].concat());
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(text(&output.stdout).contains(&refused), "{}", text(&output.stdout));
        let output = run(&[&["bench", "--backend", "threads"][..], &short].concat());
        assert_eq!(output.status.code(), Some(0), "{name}");
    }
}

#[test]
fn b3sum_prints_and_reads_the_same() {
    let folder = folder();
    let names = sized_files(folder.path());
    let names = as_strs(&names);
    if Command::new("b3sum").arg("--version").output().is_err() {
        println!("skipped: b3sum is not installed");
        return;
    }
    assert_eq!(
        succeeded(&sum(folder.path(), &names)),
        succeeded(&run("b3sum", folder.path(), &names, b""))
    );
    for tag in [&[][..], &["--tag"]] {
        let ours = sum(folder.path(), &[tag, &names].concat()).stdout;
        succeeded(&run("b3sum", folder.path(), &["--check", "-"], &ours));
        let theirs = run("b3sum", folder.path(), &[tag, &names].concat(), b"").stdout;
        succeeded(&sum_of(folder.path(), &["--check"], &theirs));
    }
}

/// Names that need escapes or look like other syntax, and one that is not UTF-8.
fn odd_names(folder: &Path) -> Vec<OsString> {
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"back\\slash",
        b"car\rret",
        b" space ",
        b"*star",
        b"a) = b",
        b"\\",
        b"latin\xe9",
        b"#comment",
    ];
    let names = names.map(|name| OsString::from_vec(name.to_vec()));
    for name in &names {
        fs::write(folder.join(name), name.as_encoded_bytes()).unwrap();
    }
    names.into()
}

#[test]
fn odd_names_are_exchanged_with_sha256sum() {
    let folder = folder();
    let names = odd_names(folder.path());
    let ours = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command
            .current_dir(folder.path())
            .args(["sum", "--algo", "sha256"])
            .args(args)
            .arg("--")
            .args(&names);
        command.output().unwrap()
    };
    let theirs = |args: &[&str]| {
        let mut command = Command::new("sha256sum");
        command.current_dir(folder.path()).args(args).arg("--").args(&names).output().unwrap()
    };
    for form in [&[][..], &["--tag"], &["--zero"], &["--zero", "--tag"]] {
        let (ours, theirs) = (ours(form), theirs(form));
        assert!(
            ours.status.success() && theirs.status.success(),
            "{form:?}: {}",
            text(&theirs.stderr)
        );
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{form:?}");
    }
    for form in [&[][..], &["--tag"]] {
        let lines = ours(form).stdout;
        succeeded(&run("sha256sum", folder.path(), &["--check"], &lines));
        let printed = succeeded(&sum_of(folder.path(), &["--check", "--algo", "sha256"], &lines));
        // Each is on one line.
        assert_eq!(
            printed.lines().filter(|line| line.ends_with(": OK")).count(),
            names.len(),
            "{printed}"
        );
    }
    let read =
        sum_of(folder.path(), &["-cz", "--algo", "sha256", "--quiet"], &ours(&["-z"]).stdout);
    prints(&read, 0, "", &[]);
    let binary = theirs(&["--binary"]).stdout;
    prints(&sum_of(folder.path(), &["-c", "--algo", "sha256", "--quiet"], &binary), 0, "", &[]);
}

#[test]
fn trees_are_sorted_and_links_left_out() {
    let folder = folder();
    let root = folder.path().join("tree");
    fs::create_dir_all(root.join("b/deep")).unwrap();
    for name in ["z", "b/deep/2", "b/deep/1", "b/a", "a"] {
        fs::write(root.join(name), name).unwrap();
    }
    symlink("..", root.join("b/loop")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    let lines = succeeded(&sum(folder.path(), &["-r", "--algo", "crc32c", "tree/z", "tree"]));
    let names: Vec<&str> = lines.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    assert_eq!(names, ["tree/z", "tree/a", "tree/b/a", "tree/b/deep/1", "tree/b/deep/2", "tree/z"]);

    let output = sum(folder.path(), &["-rv", "tree"]);
    let left_out =
        ["tree/b/loop: left out: a symbolic link", "tree/dangling: left out: a symbolic link"];
    let left_out = [&left_out[..], &["tree/fifo: left out: not a regular file"]].concat();
    assert_eq!(
        text(&output.stderr),
        left_out.iter().map(|line| format!("ringway: {line}\n")).collect::<String>()
    );
    assert_eq!(output.status.code(), Some(0));

    // A link on the command line is followed.
    symlink("tree", folder.path().join("link")).unwrap();
    let linked = succeeded(&sum(folder.path(), &["-r", "--algo", "crc32c", "link", "link/a"]));
    assert_eq!(linked.lines().count(), 6);
}

#[test]
fn many_files_are_printed_in_order() {
    let folder = folder();
    fs::write(folder.path().join("0000"), bytes(20 * BLOCK)).unwrap();
    for number in 1..3000 {
        fs::write(folder.path().join(format!("{number:04}")), number.to_string()).unwrap();
    }
    let ours = succeeded(&sum(folder.path(), &["-r", "--algo", "sha256", "."]));
    let names: Vec<String> = (0..3000).map(|number| format!("./{number:04}")).collect();
    assert_eq!(ours, succeeded(&run("sha256sum", folder.path(), &as_strs(&names), b"")));
}

#[test]
fn unreadable_files_are_reported_and_the_rest_processed() {
    let folder = folder();
    fs::create_dir(folder.path().join("folder")).unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    symlink("round", folder.path().join("round")).unwrap();
    fs::write(folder.path().join("a"), "123456789").unwrap();
    let args = ["--algo", "crc32c", "a", "folder", "dangling", "missing", "round", "a/b", "a"];
    let line = "e3069283  a\n";
    let errors = [
        "ringway: folder: EISDIR (Is a directory)",
        "ringway: dangling: ENOENT (No such file or directory)",
        "ringway: missing: ENOENT (No such file or directory)",
        "ringway: round: ELOOP (Too many levels of symbolic links)",
        "ringway: a/b: ENOTDIR (Not a directory)",
    ];
    prints(&sum(folder.path(), &args), 1, &[line, line].concat(), &errors);
}

#[test]
fn a_read_error_is_reported() {
    let folder = folder();
    // Reading where nothing is mapped fails with EIO.
    prints(
        &sum(folder.path(), &["/proc/self/mem"]),
        1,
        "",
        &["ringway: /proc/self/mem: EIO (Input/output error)"],
    );
}

#[test]
fn files_without_permission_are_reported() {
    // SAFETY: the call takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: changing the user needs root");
        return;
    }
    // A folder that another user can enter.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ringway");
    fs::copy(env!("CARGO_BIN_EXE_ringway"), &program).unwrap();
    for (path, mode) in [("tree/secret/file", 0o644), ("tree/closed", 0o600), ("tree/open", 0o644)]
    {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "123456789").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for (path, mode) in [("", 0o755), ("tree/secret", 0o700)] {
        fs::set_permissions(folder.path().join(path), Permissions::from_mode(mode)).unwrap();
    }
    let user =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "--", program.to_str().unwrap()];
    for direct in [&[][..], &["--direct"]] {
        let args = [&user[..], &["sum", "-r", "--algo", "crc32c", "tree"], direct].concat();
        let errors = ["tree/closed", "tree/secret"]
            .map(|name| format!("ringway: {name}: EACCES (Permission denied)"));
        prints(
            &run("setpriv", folder.path(), &args, b""),
            1,
            "e3069283  tree/open\n",
            &as_strs(&errors),
        );
    }
}

#[test]
fn fifos_and_devices_are_streamed() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let content = bytes(3 * BLOCK + 7);
    let (path, written) = (fifo.clone(), content.clone());
    let writer = std::thread::spawn(move || fs::write(path, written));
    let through_fifo = succeeded(&sum(folder.path(), &["--algo", "sha256", "fifo", "/dev/null"]));
    writer.join().unwrap().unwrap();
    fs::write(folder.path().join("file"), content).unwrap();
    let expected = succeeded(&run("sha256sum", folder.path(), &["file", "/dev/null"], b""));
    assert_eq!(through_fifo, expected.replace("file", "fifo"));
}

#[test]
fn files_without_direct_io_are_read_without_it() {
    let folder = folder();
    // Its metadata have the length 0.
    let expected = succeeded(&run("sha256sum", folder.path(), &["/proc/version"], b""));
    let message = ["ringway: /proc/version: not read directly: the file system has no direct I/O"];
    let args = ["--algo", "sha256", "--direct", "/proc/version"];
    prints(&sum(folder.path(), &args), 0, &expected, &[]);
    prints(&sum(folder.path(), &[&args[..], &["-v"]].concat()), 0, &expected, &message);
}

/// A refused flag is no error: the file is read, and `-v` has the reason.
#[test]
fn files_whose_pages_stay_are_read_all_the_same() {
    let folder = folder();
    let expected = succeeded(&run("sha256sum", folder.path(), &["/proc/version"], b""));
    let args = ["--algo", "sha256", "--dont-cache", "/proc/version"];
    prints(&sum(folder.path(), &args), 0, &expected, &[]);
    let output = sum(folder.path(), &[&args[..], &["-v"]].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*printed), (Some(0), &*expected));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("ringway: /proc/version: pages stay in the page cache: "), "{said}");
    assert!(said.contains("EOPNOTSUPP") && said.lines().count() == 1, "{said}");
    fs::write(folder.path().join("list"), &expected).unwrap();
    let check = ["--algo", "sha256", "--dont-cache", "--check", "list"];
    assert_eq!(sum(folder.path(), &check).status.code(), Some(0));
}

#[test]
fn standard_input_is_read_from_its_position_and_once() {
    let folder = folder();
    let (all, rest) = (bytes(2 * BLOCK), &bytes(2 * BLOCK)[1000..]);
    fs::write(folder.path().join("file"), &all).unwrap();
    fs::write(folder.path().join("rest"), rest).unwrap();
    let script =
        format!("(head -c 1000 > /dev/null; {} sum - -) < file", env!("CARGO_BIN_EXE_ringway"));
    let output = run("sh", folder.path(), &["-c", &script], b"");
    let rest = succeeded(&sum(folder.path(), &["rest", "/dev/null"]));
    let expected = rest.replace("rest", "-").replace("/dev/null", "-");
    // `head` seeks back to the end of what it printed.
    prints(&output, 0, &expected, &[]);
    let closed = format!("{} sum <&-", env!("CARGO_BIN_EXE_ringway"));
    assert!(run("sh", folder.path(), &["-c", &closed], b"").status.code().is_some());
}

#[test]
fn a_file_that_changes_its_length_is_hashed_as_read() {
    let folder = folder();
    let path = folder.path().join("file");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
    let stopped = stop.clone();
    let changing = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            file.set_len(0).unwrap();
            file.write_all_at(b"end", 40 * BLOCK as u64).unwrap();
        }
    });
    for algorithm in ["blake3", "sha256"] {
        for _ in 0..20 {
            succeeded(&sum(folder.path(), &["--algo", algorithm, "file", "--block", "64k"]));
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    changing.join().unwrap();
}

/// A list of a matching file, a changed one, a missing one and one that cannot be read.
fn checked(folder: &Path) -> String {
    for (name, content) in
        [("good", "good"), ("bad", "bad"), ("gone", "gone"), ("closed", "closed")]
    {
        fs::write(folder.join(name), content).unwrap();
    }
    let lines =
        succeeded(&sum(folder, &["--algo", "sha256", "--tag", "good", "bad", "gone", "closed"]));
    fs::write(folder.join("bad"), "worse").unwrap();
    fs::remove_file(folder.join("gone")).unwrap();
    fs::remove_file(folder.join("closed")).unwrap();
    fs::create_dir(folder.join("closed")).unwrap();
    lines
}

#[test]
fn a_check_prints_what_sha256sum_prints() {
    let folder = folder();
    let lines = checked(folder.path());
    let (good, missing) = (lines.lines().next().unwrap(), "SHA256 (missing) = ");
    let missing = format!("{missing}{}", "0".repeat(64));
    let lists = [
        lines.clone(),
        format!("{good}\nnonsense\n\n{good}\n"),
        format!("{good}\n{missing}\n"),
        format!("{missing}\n"),
        format!("{good}\nnonsense\n"),
        "nonsense\n".to_owned(),
        "# only a comment\n".to_owned(),
        String::new(),
    ];
    let options: [&[&str]; 9] = [
        &[],
        &["--quiet"],
        &["--status"],
        &["--strict"],
        &["--warn"],
        &["--ignore-missing"],
        &["--ignore-missing", "--quiet"],
        &["--ignore-missing", "--status"],
        &["--strict", "--warn"],
    ];
    for list in &lists {
        fs::write(folder.path().join("list"), list).unwrap();
        for options in options {
            let args = [&["--check", "list"], options].concat();
            let (ours, theirs) =
                (sum(folder.path(), &args), run("sha256sum", folder.path(), &args, b""));
            assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{options:?} {list}");
            assert_eq!(ours.status.code(), theirs.status.code(), "{options:?} {list}");
            assert_eq!(
                in_the_words_of_sha256sum(&ours),
                text(&theirs.stderr),
                "{options:?} {list}"
            );
        }
    }
}

/// Standard error without the names of the program, the errno and the digest.
fn in_the_words_of_sha256sum(output: &Output) -> String {
    let line = |line: &str| {
        let line = line
            .replace("ringway: ", "sha256sum: ")
            .replace("formatted checksum line", "formatted SHA256 checksum line");
        let line = line.replace("no properly formatted SHA256", "no properly formatted");
        match line.rsplit_once(" (") {
            Some((before, text)) => {
                let before = before.rsplit_once(' ').map_or(before, |(before, _)| before);
                format!("{before} {}\n", text.trim_end_matches(')'))
            }
            None => format!("{line}\n"),
        }
    };
    text(&output.stderr).lines().map(line).collect()
}

#[test]
fn a_wrong_guess_of_the_digest_has_a_hint() {
    let folder = folder();
    fs::write(folder.path().join("a"), "abc").unwrap();
    let lines = succeeded(&sum(folder.path(), &["--algo", "sha256", "a"]));
    let output = sum_of(folder.path(), &["--check"], lines.as_bytes());
    let expected = [
        "ringway: WARNING: 1 computed checksum did NOT match",
        "ringway: hashes of 64 digits were read as BLAKE3; use --algo sha256 for SHA-256",
    ];
    prints(&output, 1, "a: FAILED\n", &expected);
    prints(
        &sum_of(folder.path(), &["--check", "--algo", "sha256"], lines.as_bytes()),
        0,
        "a: OK\n",
        &[],
    );
}

#[test]
fn lines_of_every_digest_and_format_are_checked() {
    let folder = folder();
    let names = sized_files(folder.path());
    let names = as_strs(&names);
    for form in [&[][..], &["--tag"]] {
        let lines =
            |algorithm| sum(folder.path(), &[form, &["--algo", algorithm], &names].concat()).stdout;
        // The digest follows from each line.
        let list = ["blake3", "crc32c", "xxh3"].map(lines).concat();
        let checked = succeeded(&sum_of(folder.path(), &["--check", "--direct"], &list));
        assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), 3 * names.len());
    }
}

#[test]
fn lists_are_checked_in_order() {
    let folder = folder();
    fs::write(folder.path().join("a"), "123456789").unwrap();
    fs::write(folder.path().join("list"), "e3069283  a\n").unwrap();
    fs::write(folder.path().join("wrong"), "00000000  a\n").unwrap();
    let output = sum_of(folder.path(), &["-c", "list", "none", "wrong", "-"], b"e3069283  a\n");
    let expected = [
        "ringway: none: ENOENT (No such file or directory)",
        "ringway: WARNING: 1 computed checksum did NOT match",
    ];
    prints(&output, 1, "a: OK\na: FAILED\na: OK\n", &expected);
    // A line may name standard input if no list is read from it.
    fs::write(folder.path().join("list"), "e3069283  -\n").unwrap();
    prints(&sum_of(folder.path(), &["-c", "list"], b"123456789"), 0, "-: OK\n", &[]);
}

#[test]
fn a_list_of_random_bytes_is_refused() {
    let folder = folder();
    fs::write(folder.path().join("list"), bytes(5 << 20)).unwrap();
    let expected = ["ringway: list: no properly formatted checksum lines found"];
    prints(&sum(folder.path(), &["-c", "list"]), 1, "", &expected);
}

#[test]
fn errors_on_the_command_line_have_status_2() {
    let folder = folder();
    for args in
        [&["--algo", "md5"][..], &["--quiet", "a"], &["--block", "3k", "a"], &["--files", "0", "a"]]
    {
        assert_eq!(sum(folder.path(), args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let folder = folder();
    let paths: Vec<PathBuf> =
        (0..2000).map(|number| folder.path().join(number.to_string())).collect();
    for path in &paths {
        fs::write(path, "x").unwrap();
    }
    let script = format!(
        "{} sum -r . | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_ringway")
    );
    assert_eq!(text(&run("bash", folder.path(), &["-c", &script], b"").stdout), "0\n");
}

/// The exit status if standard output is this.
fn status_with_stdout(folder: &Path, stdout: impl Into<Stdio>, args: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.current_dir(folder).arg("sum").args(args).stdout(stdout).stderr(Stdio::null());
    command.status().unwrap().code()
}

#[test]
fn a_closed_pipe_hides_no_failure() {
    let folder = folder();
    fs::write(folder.path().join("file"), "abc").unwrap();
    fs::write(folder.path().join("list"), "00000000  file\n".repeat(10)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for args in [&["--check", "list"][..], &["missing", "file"]] {
        let stdout = writer.try_clone().unwrap();
        assert_eq!(status_with_stdout(folder.path(), stdout, args), Some(1), "{args:?}");
    }
}

#[test]
fn output_that_is_lost_is_an_error() {
    let folder = folder();
    fs::write(folder.path().join("file"), "abc").unwrap();
    for args in [&["file"][..], &["--zero", "file"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(status_with_stdout(folder.path(), full, args), Some(1), "{args:?}");
    }
}
