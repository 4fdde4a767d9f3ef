//! The command as a user runs it: tables, formats, statistics, errors, exit status, Ctrl-C.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test waits for something that must happen soon.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with tables of each format.
fn tables() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("fruit.csv", "id,name\n1,apple\n2,pear\n");
    write("prices.ndjson", "{\"id\":1,\"price\":1.5}\n{\"id\":2,\"price\":2.5}\n");
    write("sales/year=2025/a.csv", "id,count\n1,10\n");
    write("sales/year=2026/a.csv", "id,count\n1,20\n2,30\n");
    folder
}

fn command(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway-sql"));
    command.args(args).arg(folder).stdin(Stdio::null());
    command
}

fn run(args: &[&str], folder: &Path) -> Output {
    command(args, folder).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of an error, and the exit status.
fn failure(output: &Output) -> (String, i32) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    (stderr, output.status.code().unwrap())
}

const JOIN: &str = "SELECT name, sum(price * count) AS paid, min(year) AS first \
                    FROM sales JOIN prices USING (id) JOIN fruit USING (id) \
                    GROUP BY name ORDER BY name";

#[test]
fn both_stores_answer_alike_in_each_format() {
    let folder = tables();
    for (format, expected) in [
        ("csv", "name,paid,first\napple,45.0,2025\npear,75.0,2026\n"),
        (
            "json",
            "{\"name\":\"apple\",\"paid\":45.0,\"first\":\"2025\"}\n\
             {\"name\":\"pear\",\"paid\":75.0,\"first\":\"2026\"}\n",
        ),
    ] {
        for store in ["local", "ringway"] {
            let output = run(&["--store", store, "--format", format, "-c", JOIN], folder.path());
            assert_eq!(stdout(&output), expected, "{store}");
        }
    }
    let output = run(&["--direct", "--backend", "threads", "-c", JOIN], folder.path());
    assert!(stdout(&output).contains("| apple | 45.0 | 2025  |"));
}

#[test]
fn parquet_and_compressed_files_are_tables() {
    let folder = tables();
    let other = tempfile::tempdir().unwrap();
    let copies = [
        ("a.parquet", "STORED AS PARQUET"),
        ("b.csv.gz", "STORED AS CSV OPTIONS ('format.compression' 'gzip')"),
        ("c.json.zst", "STORED AS JSON OPTIONS ('format.compression' 'zstd')"),
    ]
    .map(|(name, form)| {
        format!("COPY (SELECT * FROM fruit) TO '{}' {form}", other.path().join(name).display())
    });
    stdout(&run(&["-c", &copies.join("; ")], folder.path()));
    let query = "SELECT a.id, c.name FROM a JOIN b USING (id) JOIN c USING (id) ORDER BY id";
    let output = run(&["--format", "csv", "-c", query], other.path());
    assert_eq!(stdout(&output), "id,name\n1,apple\n2,pear\n");
}

#[test]
fn statements_come_from_arguments_files_and_standard_input() {
    let folder = tables();
    let script = folder.path().join("_script.sql");
    fs::write(&script, "SELECT 1 AS a; -- one\nSELECT ';' AS b;\n").unwrap();
    let expected = "a\n1\nb\n;\n";
    let args = ["--format", "csv", "-c", "-- one\nSELECT 1 AS a", "-c", "SELECT ';' AS b"];
    assert_eq!(stdout(&run(&args, folder.path())), expected);
    let args = ["--format", "csv", "-f", script.to_str().unwrap()];
    assert_eq!(stdout(&run(&args, folder.path())), expected);
    for args in [&["--format", "csv"][..], &["--format", "csv", "-f", "-"]] {
        let mut command = command(args, folder.path());
        let input = fs::File::open(&script).unwrap();
        assert_eq!(stdout(&command.stdin(input).output().unwrap()), expected);
    }
    // With a byte order mark.
    fs::write(&script, "\u{feff}SELECT 1 AS a; -- one\nSELECT ';' AS b\n").unwrap();
    let args = ["--format", "csv", "-f", script.to_str().unwrap()];
    assert_eq!(stdout(&run(&args, folder.path())), expected);
}

/// Each statement from a pipe is answered while the pipe stays open.
#[test]
fn a_statement_from_a_pipe_runs_when_its_semicolon_has_come() {
    let folder = tables();
    let mut command = command(&["--format", "csv"], folder.path());
    let mut child = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut input = child.0.stdin.take().unwrap();
    let mut output = BufReader::new(child.0.stdout.take().unwrap()).lines();
    for name in ["a", "b"] {
        writeln!(input, "SELECT 1 AS {name}; -- {name}").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), name);
        assert_eq!(output.next().unwrap().unwrap(), "1");
    }
    input.write_all(b"SELECT 2 AS c").unwrap();
    drop(input);
    assert_eq!(output.map(Result::unwrap).collect::<Vec<_>>(), ["c", "2"]);
    assert!(child.0.wait().unwrap().success());
}

/// Ctrl-C while the command waits for the statement after the first.
#[test]
fn ctrl_c_between_statements_cancels() {
    let folder = tables();
    let mut command = command(&["--format", "csv"], folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().unwrap());
    let mut input = child.0.stdin.take().unwrap();
    writeln!(input, "SELECT 1 AS a;").unwrap();
    let mut output = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "a");
    interrupt(&child.0);
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
}

/// All files of a folder are read, also if their extensions differ.
#[test]
fn a_folder_of_several_extensions_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("j"), folder.path().join("c"));
    for name in ["j/1.json", "j/2.ndjson", "j/3.jsonl", "p/y=1/1.json", "p/y=2/2.ndjson"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{\"id\":1}\n{\"id\":2,\"name\":\"x\"}\n").unwrap();
    }
    fs::create_dir(&csv).unwrap();
    fs::write(csv.join("1.csv"), "id,name\n1,x\n2,y\n").unwrap();
    fs::write(csv.join("0.csv.zst"), "").unwrap();
    let copy = format!(
        "COPY (SELECT 3 AS id, 'z' AS name) TO '{}' STORED AS CSV \
         OPTIONS ('format.compression' 'gzip')",
        csv.join("2.csv.gz").display()
    );
    stdout(&run(&["-c", &copy], &json));
    let query = "SELECT count(*) AS n, sum(id) AS s, count(name) AS m FROM j; \
                 SELECT count(*) AS n, sum(id) AS s, max(name) AS m FROM c; \
                 SELECT y, count(*) AS n FROM p WHERE id = 2 GROUP BY y ORDER BY y";
    for store in ["local", "ringway"] {
        let output = run(&["--store", store, "--format", "csv", "-c", query], folder.path());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout(&output), "n,s,m\n6,9,3\nn,s,m\n3,6,z\ny,n\n1,1\n2,1\n", "{store}");
    }
}

/// What is no table is reported, and the other tables work. A query of it says why.
#[test]
fn an_entry_that_is_no_table_is_reported() {
    let folder = tables();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("broken/1.parquet", "");
    write("broken/2.parquet", "no Parquet file");
    write("deep/sub/1.csv", "id\n1\n");
    fs::create_dir(folder.path().join("empty")).unwrap();
    write("fruit.json", "{\"id\":1}");
    write("mixed/1.csv", "id\n1\n");
    write("mixed/1.parquet", "");
    write("nothing.parquet", "");
    write("types/1.csv", "id\n1\n");
    write("types/2.CSV", "id\nx\n");
    std::os::unix::fs::symlink("nowhere", folder.path().join("link.csv")).unwrap();
    let reasons = [
        ("broken", "broken/2.parquet: Parquet error"),
        ("deep", "deep/sub/1.csv: sub is no partition"),
        ("empty", "empty: no Parquet, CSV or JSON files"),
        ("fruit", "fruit.json have the same name"),
        ("link", "link.csv: a link to nowhere: No such file or directory"),
        ("mixed", "mixed/1.parquet have different formats"),
        ("nothing", "nothing.parquet: it has no columns, since it is empty"),
        ("types", "types: "),
    ];
    for store in ["local", "ringway"] {
        let args = ["--store", store, "--format", "csv", "-c", "SELECT count(*) AS n FROM sales"];
        let output = run(&args, folder.path());
        assert_eq!(stdout(&output), "n\n3\n");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.lines().count(), reasons.len(), "{stderr}");
        for (line, (name, reason)) in stderr.lines().zip(reasons) {
            assert!(line.starts_with(&format!("ringway-sql: no table {name}: /")), "{line}");
            assert!(line.contains(reason), "{line}");
        }
        let query = "SELECT * FROM sales JOIN \"deep\" USING (id)";
        let output = run(&["--store", store, "-c", query], folder.path());
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let error = stderr.lines().last().unwrap();
        assert!(error.contains("no table deep: /") && error.contains("not found"), "{error}");
    }
}

/// A statement runs even if one after it cannot be parsed.
#[test]
fn a_syntax_error_stops_no_earlier_statement() {
    let folder = tables();
    let script = folder.path().join("_script.sql");
    fs::write(&script, "SELECT 1 AS a;\n-- two\n SELEC 2; SELECT 3 AS b").unwrap();
    for args in [
        &["--format", "csv", "-f", script.to_str().unwrap()][..],
        &["--format", "csv", "-c", "SELECT 1 AS a;\n\n SELEC 2; SELECT 3 AS b"],
    ] {
        let output = run(args, folder.path());
        assert_eq!(output.stdout, b"a\n1\n");
        let (error, status) = failure(&output);
        assert!(error.contains("found: SELEC at Line: 3, Column: 2"), "{error}");
        assert_eq!(status, 1);
    }
}

#[test]
fn statistics_are_comparable() {
    let folder = tables();
    for store in ["local", "ringway"] {
        let args = ["--store", store, "--stats=json", "-c", "SELECT * FROM fruit; SELECT 1"];
        let output = run(&args, folder.path());
        stdout(&output);
        let stats = String::from_utf8(output.stderr).unwrap();
        let stats: Vec<serde_json::Value> =
            stats.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(stats.len(), 3);
        assert_eq!(stats[0]["tables"], 3);
        assert_eq!(stats[1]["rows"], 2);
        for stats in &stats {
            assert!(stats["wall"].as_f64().unwrap() > 0.0);
            assert!(stats["peak_rss"].as_u64().unwrap() > 0);
            assert_eq!(stats["engine"].is_null(), store == "local");
        }
        if store == "ringway" {
            // Both read: to infer the columns, and for the statement.
            for stats in &stats[..2] {
                let engine = &stats["engine"];
                let done = ["cached", "operations"].map(|key| engine[key].as_u64().unwrap());
                assert!(done.iter().sum::<u64>() > 0, "{engine}");
            }
            assert_eq!(stats[2]["engine"]["in_flight"], 0);
        }
    }
    let output = run(&["--stats", "-c", "SELECT * FROM fruit"], folder.path());
    stdout(&output);
    let stats = String::from_utf8(output.stderr).unwrap();
    assert!(stats.starts_with("3 tables in "), "{stats}");
    assert!(stats.contains("\n2 rows in "), "{stats}");
}

#[test]
fn explain_analyze_works() {
    let folder = tables();
    let output = run(&["-c", "EXPLAIN ANALYZE SELECT count(*) FROM sales"], folder.path());
    assert!(stdout(&output).contains("DataSourceExec"));
}

#[test]
fn errors_are_one_line() {
    let folder = tables();
    let (error, status) = failure(&run(&["-c", "SELECT x FROM fruit"], folder.path()));
    assert!(error.starts_with("ringway-sql: "), "{error}");
    assert_eq!(error.matches("No field named x").count(), 1, "{error}");
    assert_eq!(status, 1);

    let (error, status) = failure(&run(&["-c", "SELECT 1; SELEC 2"], folder.path()));
    assert!(error.contains("SELEC"), "{error}");
    assert_eq!(status, 1);

    let (error, status) = failure(&run(&["-c", "SELECT 1"], &folder.path().join("missing")));
    assert!(error.contains("missing: No such file or directory"), "{error}");
    assert_eq!(status, 1);

    let args = ["--store", "local", "--direct", "-c", "SELECT 1"];
    let output = run(&args, folder.path());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tables();
    let sql = "SELECT * FROM generate_series(1, 10000000)";
    let mut command = command(&["--format", "csv", "-c", sql], folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs the command with a pipe for standard error that nobody reads. Returns standard output and
/// the exit status.
fn without_reader(args: &[&str], folder: &Path) -> (String, Option<i32>) {
    let mut command = command(args, folder);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// Statistics and reports that nobody reads keep no statement from running.
#[test]
fn a_closed_pipe_of_standard_error_changes_nothing() {
    let folder = tables();
    fs::write(folder.path().join("broken.parquet"), "no Parquet file").unwrap();
    for stats in ["--stats", "--stats=json"] {
        let args = ["--format", "csv", stats, "-c", "SELECT 1 AS a; SELECT 2 AS b"];
        let (output, status) = without_reader(&args, folder.path());
        assert_eq!((output.as_str(), status), ("a\n1\nb\n2\n", Some(0)), "{stats}");
    }
    let args = ["--format", "csv", "-c", "SELECT 1 AS a; SELECT 2 AS b; SELEC"];
    let (output, status) = without_reader(&args, folder.path());
    assert_eq!((output.as_str(), status), ("a\n1\nb\n2\n", Some(1)));
}

/// Its operator keeps all threads busy for hours, and looks for nothing else meanwhile.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 10000000) a(x) \
                    CROSS JOIN generate_series(1, 10000000) b(y) WHERE x * y % 7 = 8";

/// Waits until a process has used two seconds of CPU time.
fn until_busy(pid: u32) {
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // Field 3: the state. 14 and 15: hundredths of a second in the program and in the kernel.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        assert!(!fields.starts_with(" Z"), "it has ended");
        let used: u64 =
            fields.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
        if used > 200 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ctrl-C ends a query that would run for hours, with the exit status that shells use.
#[test]
fn ctrl_c_cancels() {
    let folder = tables();
    let mut command = command(&["--format", "csv", "-c", LONG], folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_busy(child.id());
    interrupt(&child);
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("the query goes on");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(failure(&output), ("ringway-sql: cancelled\n".to_owned(), 130));
}

fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push(path.display().to_string());
    }
    found
}

/// A query that is cancelled or fails leaves nothing of what it has spilled or was writing.
#[test]
fn no_files_are_left() {
    let folder = tables();
    let numbers = "SELECT * FROM generate_series(1, 100000000000) t(x)";
    let sorted = format!("{numbers} ORDER BY x * 7919 % 10007");
    let to = tempfile::tempdir().unwrap();
    let path = to.path().join("numbers.csv");
    let copied = format!("COPY ({numbers}) TO '{}'", path.display());
    // DataFusion's own store leaves what a runtime that ends has not removed.
    for (store, sql) in [("local", &sorted), ("ringway", &sorted), ("ringway", &copied)] {
        let args = ["--store", store, "--memory-limit", "64m", "-c", sql];
        let mut command = command(&args, folder.path());
        command.env("TMPDIR", to.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Ended(command.spawn().unwrap());
        let start = Instant::now();
        while !files(to.path()).iter().any(|path| Path::new(path).is_file()) {
            assert_eq!(child.0.try_wait().unwrap(), None, "{store}: {sql}");
            assert!(start.elapsed() < LIMIT, "{store}: no file of {sql}");
            std::thread::sleep(Duration::from_millis(20));
        }
        interrupt(&child.0);
        assert_eq!(child.0.wait().unwrap().code(), Some(130));
        assert_eq!(files(to.path()), [""; 0], "{store}: {sql}");
    }
}

/// Before the first statement, while the script is read from a pipe that stays open.
#[test]
fn ctrl_c_ends_the_command_while_it_waits_for_a_script() {
    let folder = tables();
    let mut command = command(&[], folder.path());
    let mut child = Ended(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    // More than fits into a pipe: when it is written, the command reads.
    let mut input = child.0.stdin.take().unwrap();
    input.write_all(&vec![b' '; 1 << 20]).unwrap();
    interrupt(&child.0);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < LIMIT, "it still waits");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.signal(), Some(2), "{status}");
}

/// Ends the process, also when the test fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// At a terminal, the statement after a cancelled one is answered, even while the cancelled one
/// still computes.
#[test]
fn the_next_statement_is_answered_after_ctrl_c() {
    let folder = tables();
    let exe = env!("CARGO_BIN_EXE_ringway-sql");
    let shell = format!("echo $$; exec {exe} {}", folder.path().display());
    // `script` runs the command on a terminal of its own.
    let mut script = Command::new("script");
    script.args(["-qec", &shell, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match script.spawn() {
        Ok(child) => Ended(child),
        Err(error) => {
            println!("skipped: script: {error}");
            return;
        }
    };
    let mut input = child.0.stdin.take().unwrap();
    let mut output = child.0.stdout.take().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut bytes) {
            let _ = sender.send(bytes[..read].to_vec());
        }
    });
    let mut text = String::new();
    let mut until = |wanted: &str| {
        while !text.contains(wanted) {
            let more = receiver.recv_timeout(LIMIT);
            let more = more.unwrap_or_else(|error| panic!("{error}: no {wanted:?} in {text:?}"));
            text.push_str(&String::from_utf8_lossy(&more));
        }
        let end = text.find(wanted).unwrap() + wanted.len();
        text.drain(..end).collect::<String>()
    };
    let pid = until("\n").trim().parse().unwrap();
    until("> ");
    input.write_all(format!("{LONG};\n").as_bytes()).unwrap();
    until_busy(pid);
    input.write_all(b"\x03").unwrap();
    until("cancelled");
    until("> ");
    input.write_all(b"SELECT 6 * 7 AS x;\n").unwrap();
    until("| 42 |");
    until("> ");
    input.write_all(b"\x04").unwrap();
    assert!(child.0.wait().unwrap().success());
}

/// Where statements do not come from a terminal, an error ends the command.
#[test]
fn a_script_ends_at_its_first_error() {
    let folder = tables();
    let mut command = command(&["--format", "csv"], folder.path());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let script = b"SELECT 1 AS a; SELECT * FROM missing; SELECT 2 AS b;";
    child.stdin.take().unwrap().write_all(script).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"a\n1\n");
    assert_eq!(failure(&output).1, 1);
}
