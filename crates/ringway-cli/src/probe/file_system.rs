//! What was observed of file systems of a path's type: the rows of docs/file-systems.md, in words
//! that a user acts on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rows, recorded by the tests of `ringway-survey`.
const RECORDED: &str = include_str!("file_systems.json");

/// The rows of one kernel, as in "6.18".
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Observed {
    pub(super) kernel: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    file_system: String,
    cells: BTreeMap<String, String>,
}

/// What was observed of this type on the running kernel; otherwise on the newest one before it, or
/// on the oldest one. `None` if nothing was. `fuse.sshfs` and others are served as `fuse`.
pub(super) fn observed(file_system: &str, running: &str) -> Option<Observed> {
    let (file_system, _) = file_system.split_once('.').unwrap_or((file_system, ""));
    let mut kernels: Vec<Observed> =
        serde_json::from_str(RECORDED).expect("a test reads what is recorded");
    for kernel in &mut kernels {
        kernel.rows.retain(|row| row.file_system == file_system);
    }
    kernels.retain(|kernel| !kernel.rows.is_empty());
    kernels.sort_by_key(|kernel| version(&kernel.kernel));
    let before = |kernel: &Observed| version(&kernel.kernel) <= version(running);
    let at = kernels.iter().rposition(before).unwrap_or(0);
    kernels.into_iter().nth(at)
}

/// The first two numbers of a release.
fn version(release: &str) -> Vec<u32> {
    release.split(['.', '-']).take(2).filter_map(|number| number.parse().ok()).collect()
}

/// Makes an answer from a row.
type Answer = fn(&Row) -> Option<String>;

/// What a user asks for, and the answer.
const QUESTIONS: &[(&str, Answer)] = &[
    ("cached reads", cached_reads),
    ("other reads", |row| row.served("cold read")),
    ("direct reads", direct_reads),
    ("direct overwrites", direct_overwrites),
    ("direct appends", |row| row.served("direct append")),
    ("buffered writes", |row| row.served("buffered write")),
    ("durable overwrites", durable_overwrites),
    ("RWF_DONTCACHE", dont_cache),
    ("RWF_ATOMIC", atomic_writes),
    ("reflink copies", |row| row.cell("reflink").map(yes_or_refused)),
];

impl Observed {
    /// Whether files could be opened with `O_DIRECT` in every row.
    pub(super) fn opens_direct(&self) -> bool {
        self.rows.iter().all(|row| row.cell("direct open").is_none_or(|answer| answer == "yes"))
    }

    /// The answers, as far as there are some. Where the rows of the type differ, or some have no
    /// answer, each is named.
    pub(super) fn answers(&self) -> Vec<(&'static str, String)> {
        let answer = |(question, of): &(&'static str, Answer)| {
            let mut answers: Vec<(String, Vec<&str>)> = Vec::new();
            for row in &self.rows {
                let Some(text) = of(row) else { continue };
                match answers.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, names)) => names.push(&row.name),
                    None => answers.push((text, vec![&row.name])),
                }
            }
            // The plain one needs no name.
            let plain = self.rows.first().map(|row| row.name.as_str());
            let plain = plain.filter(|name| name.eq_ignore_ascii_case(&self.rows[0].file_system));
            let named = |(text, names): &(String, Vec<&str>)| {
                let are_all = names.len() == self.rows.len();
                if are_all || names.iter().any(|name| Some(*name) == plain) {
                    text.clone()
                } else {
                    format!("{text} ({})", names.join("; "))
                }
            };
            let text = answers.iter().map(named).collect::<Vec<_>>().join("; ");
            if text.is_empty() {
                return None;
            }
            Some((*question, text))
        };
        QUESTIONS.iter().filter_map(answer).collect()
    }
}

impl Row {
    fn cell(&self, name: &str) -> Option<&str> {
        self.cells.get(name).map(String::as_str)
    }

    /// Who serves a request, in words.
    fn served(&self, name: &str) -> Option<String> {
        let words = |answer: &str| match answer {
            "worker" => "a worker of the kernel".to_owned(),
            other => other.to_owned(),
        };
        Some(self.cell(name)?.split(" or ").map(words).collect::<Vec<_>>().join(" or "))
    }
}

fn yes_or_refused(answer: &str) -> String {
    match answer {
        "yes" => "yes".to_owned(),
        errno => format!("refused, {errno}"),
    }
}

fn cached_reads(row: &Row) -> Option<String> {
    let plain = row.served("cached read")?;
    Some(match (row.cell("cached, O_NONBLOCK")?, row.cell("cold, O_NONBLOCK")?) {
        ("in place", _) if plain == "in place" => plain,
        ("in place", "in place") if row.file_system == "tmpfs" => {
            format!("{plain}; ringway reads in place while there is no swap")
        }
        ("in place", "in place") => {
            format!("{plain}; in place with O_NONBLOCK, which also waits in place for other reads")
        }
        ("in place", _) => format!("{plain}; in place with O_NONBLOCK"),
        _ => plain,
    })
}

fn direct_reads(row: &Row) -> Option<String> {
    match row.cell("direct open")? {
        "yes" => row.served("direct read"),
        errno => Some(format!("open is refused, {errno}")),
    }
}

fn direct_overwrites(row: &Row) -> Option<String> {
    let (soon, later) = (row.served("direct overwrite")?, row.served("overwrite after 20 ms")?);
    Some(if soon == later { soon } else { format!("{soon}; {later} when the time stamp is due") })
}

fn durable_overwrites(row: &Row) -> Option<String> {
    let (flag, calls) = (row.cell("flushes, RWF_DSYNC")?, row.cell("flushes, fdatasync")?);
    let flushes = |count| format!("{count} flush{}", if count == "1" { "" } else { "es" });
    Some(if flag == calls {
        format!("{} with RWF_DSYNC, as with fdatasync", flushes(flag))
    } else {
        format!("{} with RWF_DSYNC, {} with fdatasync", flushes(flag), flushes(calls))
    })
}

fn dont_cache(row: &Row) -> Option<String> {
    let read = yes_or_refused(row.cell("RWF_DONTCACHE read")?);
    Some(match row.cell("RWF_DONTCACHE write").map(yes_or_refused) {
        Some(write) if write != read => format!("reads: {read}; writes: {write}"),
        _ => read,
    })
}

fn atomic_writes(row: &Row) -> Option<String> {
    let (units, answer) = row.cell("atomic write")?.split_once("; ")?;
    Some(match answer {
        "yes" => format!("{units} bytes"),
        errno => format!("refused, {errno}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_kernel_is_chosen() {
        let chosen = |running| observed("ext4", running).unwrap().kernel;
        assert_eq!(chosen("6.18.44-cloud"), "6.18");
        assert_eq!(chosen("99.1"), chosen("99.2-rc1"));
        // Older than all, and no version at all.
        assert_eq!(chosen("2.6.32"), chosen("unknown"));
        assert!(observed("a type that nobody has", "6.18").is_none());
    }

    #[test]
    fn answers_name_what_differs() {
        let row = |name: &str, cells: &[(&str, &str)]| Row {
            name: name.to_owned(),
            file_system: "x".to_owned(),
            cells: cells.iter().map(|(cell, text)| ((*cell).into(), (*text).into())).collect(),
        };
        let observed = Observed {
            kernel: "6.18".to_owned(),
            rows: vec![
                row("x", &[("cold read", "worker"), ("reflink", "yes")]),
                row("x, small", &[("cold read", "asynchronous or worker"), ("reflink", "yes")]),
                row("x, read-only", &[("cold read", "worker"), ("direct append", "worker")]),
            ],
        };
        let expected = [
            (
                "other reads",
                "a worker of the kernel; asynchronous or a worker of the kernel (x, small)",
            ),
            // What one row shows is not said of the others.
            ("direct appends", "a worker of the kernel (x, read-only)"),
            ("reflink copies", "yes"),
        ];
        assert_eq!(observed.answers(), expected.map(|(label, text)| (label, text.to_owned())));
    }

    /// Each type that was observed has something to say.
    #[test]
    fn what_is_recorded_can_be_read() {
        for file_system in
            ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "squashfs", "fuse.sshfs", "virtiofs"]
        {
            let answers = observed(file_system, "6.18").unwrap().answers();
            assert!(answers.iter().any(|(label, _)| *label == "cached reads"), "{file_system}");
        }
        let answer = |file_system, question| {
            let answers = observed(file_system, "6.18").unwrap().answers();
            answers.into_iter().find(|(label, _)| *label == question).unwrap().1
        };
        for (file_system, question, part) in [
            ("xfs", "direct overwrites", "when the time stamp is due"),
            ("overlay", "cached reads", "in place with O_NONBLOCK"),
            ("tmpfs", "cached reads", "ringway reads in place while there is no swap"),
            ("squashfs", "cached reads", "which also waits in place"),
            ("fuse", "durable overwrites", "as with fdatasync (FUSE, passthrough)"),
        ] {
            let text = answer(file_system, question);
            assert!(text.contains(part), "{file_system}: {text}");
        }
    }
}
