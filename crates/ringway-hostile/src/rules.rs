//! The rules of a hostile file system, what they are read from, and the counters. Pure data; the
//! waiting is in `server.rs`.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

/// The operations that rules name.
pub const OPERATIONS: [&str; 16] = [
    "lookup",
    "getattr",
    "setattr",
    "open",
    "create",
    "read",
    "write",
    "flush",
    "release",
    "fsync",
    "unlink",
    "rename",
    "mkdir",
    "readdir",
    "statfs",
    "fallocate",
];

/// What is done to one operation on one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub delay: Duration,
    /// An errno, and how often it is still the answer.
    pub fail: Option<(i32, u64)>,
    pub frozen: bool,
    /// The most bytes of a read or write.
    pub short: Option<u64>,
}

/// What is untrue of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRule {
    pub size: Option<u64>,
    pub grow: i64,
    pub direct: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    requests: u64,
    inside: u64,
    most: u64,
}

/// All rules, by file and operation; `*` is any.
#[derive(Debug, Default)]
pub struct Rules {
    operations: HashMap<(String, String), Rule>,
    files: HashMap<String, FileRule>,
    counts: HashMap<&'static str, Count>,
}

impl Rules {
    /// The rule for an operation on the file of this name.
    pub fn of(&mut self, name: &str, operation: &str) -> Option<&mut Rule> {
        let keys = [(name, operation), (name, "*"), ("*", operation), ("*", "*")];
        let found = keys
            .map(|(name, operation)| (name.to_owned(), operation.to_owned()))
            .into_iter()
            .find(|key| self.operations.contains_key(key))?;
        self.operations.get_mut(&found)
    }

    /// The errno with which this request fails, if it does.
    pub fn failure(&mut self, name: &str, operation: &str) -> Option<i32> {
        let (errno, times) = self.of(name, operation)?.fail.as_mut()?;
        *times = times.checked_sub(1)?;
        Some(*errno)
    }

    pub fn file(&self, name: &str) -> FileRule {
        self.files.get(name).or_else(|| self.files.get("*")).copied().unwrap_or_default()
    }

    pub fn begin(&mut self, operation: &'static str) {
        let count = self.counts.entry(operation).or_default();
        count.requests += 1;
        count.inside += 1;
        count.most = count.most.max(count.inside);
    }

    pub fn end(&mut self, operation: &'static str) {
        self.counts.entry(operation).or_default().inside -= 1;
    }

    /// The counters as text.
    pub fn counts(&self) -> String {
        let mut text = String::new();
        for operation in OPERATIONS {
            if let Some(Count { requests, inside, most }) = self.counts.get(operation) {
                let _ = writeln!(text, "{operation} {requests} {inside} {most}");
            }
        }
        text
    }

    /// Sets one rule. `None` if the line is none.
    pub fn set(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["clear"] => (self.operations, self.files) = Default::default(),
            [file, "size", "real"] => self.file_mut(file).size = None,
            [file, "size", bytes] => self.file_mut(file).size = Some(bytes.parse().ok()?),
            [file, "grow", bytes] => self.file_mut(file).grow = bytes.parse().ok()?,
            [file, "direct", "on"] => self.file_mut(file).direct = true,
            [file, "direct", "off"] => self.file_mut(file).direct = false,
            [file, operation, ref what @ ..] => {
                if operation != "*" && !OPERATIONS.contains(&operation) {
                    return None;
                }
                let key = (file.to_owned(), operation.to_owned());
                let mut rule = self.operations.get(&key).copied().unwrap_or_default();
                match *what {
                    ["delay", ms] => rule.delay = Duration::from_millis(ms.parse().ok()?),
                    ["fail", errno] => rule.fail = Some((errno.parse().ok()?, u64::MAX)),
                    ["fail", errno, times] => {
                        rule.fail = Some((errno.parse().ok()?, times.parse().ok()?));
                    }
                    ["freeze"] => rule.frozen = true,
                    ["thaw"] => rule.frozen = false,
                    ["short", bytes] => rule.short = Some(bytes.parse().ok()?),
                    _ => return None,
                }
                self.operations.insert(key, rule);
            }
            _ => return None,
        }
        Some(())
    }

    fn file_mut(&mut self, name: &str) -> &mut FileRule {
        let general = self.file(name);
        self.files.entry(name.to_owned()).or_insert(general)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_a_name_goes_before_one_for_all() {
        let mut rules = Rules::default();
        for line in ["* read delay 5", "log * fail 5 1", "log read short 7", "", "a size 3"] {
            assert_eq!(rules.set(line), Some(()), "{line}");
        }
        assert_eq!(rules.of("a", "read").unwrap().delay, Duration::from_millis(5));
        assert_eq!(rules.of("log", "read").unwrap().short, Some(7));
        assert_eq!((rules.failure("log", "fsync"), rules.failure("log", "fsync")), (Some(5), None));
        assert_eq!(rules.of("a", "write"), None);
        assert_eq!((rules.file("a").size, rules.file("b").size), (Some(3), None));
        assert_eq!(rules.set("clear"), Some(()));
        assert_eq!(rules.of("a", "read"), None);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for line in ["x", "a fly", "a fly away", "a read delay", "a read delay x", "a size -1"] {
            assert_eq!(Rules::default().set(line), None, "{line}");
        }
    }

    #[test]
    fn requests_are_counted() {
        let mut rules = Rules::default();
        for _ in 0..3 {
            rules.begin("read");
        }
        rules.end("read");
        assert_eq!(rules.counts(), "read 3 2 3\n");
    }
}
