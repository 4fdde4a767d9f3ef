//! The examples work as documented, on every backend.

use crate::common::{fifo, has_reader, on_each_backend, pattern, scratch, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Cargo builds the examples with the tests, in a directory next to theirs.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --examples` first", path.display());
    path
}

#[test]
fn own_loop_prints_sums() {
    let dir = scratch();
    let mut paths = Vec::new();
    for (number, len) in [0, 1, 65_536, 65_537, 1_000_000].into_iter().enumerate() {
        paths.push(dir.path().join(number.to_string()));
        std::fs::write(&paths[number], pattern(0, len)).unwrap();
    }
    on_each_backend("own_loop", |kind| {
        let output = Command::new(example("own_loop"))
            .env("RINGWAY_BACKEND", kind.name())
            .args(&paths)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines: Vec<String> = output.stdout.lines().map(Result::unwrap).collect();
        lines.sort();
        let mut expected: Vec<String> = paths
            .iter()
            .map(|path| {
                let sum: u64 = std::fs::read(path).unwrap().into_iter().map(u64::from).sum();
                format!("{sum} {}", path.display())
            })
            .collect();
        expected.sort();
        assert_eq!(lines, expected, "{kind}");
    });
}

#[test]
fn select_timeout_continues_after_a_timeout() {
    on_each_backend("select_timeout", |kind| {
        let dir = scratch();
        let path = dir.path().join("fifo");
        fifo(&path);
        // Open for reading and writing, so that the example's open succeeds and the FIFO does not
        // end early.
        let mut writer = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut command = Command::new(example("select_timeout"));
        let mut child = command
            .env("RINGWAY_BACKEND", kind.name())
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for text in ["hello", "again"] {
            // No timed-out read takes the next line, unless that comes while the read is being
            // cancelled. Then it is written again.
            assert_eq!(lines.next().as_deref(), Some("nothing for 200 ms"));
            let is_read = (0..10).any(|_| {
                writeln!(writer, "{text}").unwrap();
                let line = lines.by_ref().take(3).find(|line| line != "nothing for 200 ms");
                line.inspect(|line| assert_eq!(line, text)).is_some()
            });
            assert!(is_read, "timed-out reads took the line {text:?} ten times");
        }
        drop(writer);
        assert!(lines.all(|line| line == "nothing for 200 ms"));
        assert!(child.wait().unwrap().success());
        wait_for("the FIFO to be closed", || !has_reader(&path));
    });
}
