//! Checks files against lists of checksums.

use super::hash::{Reading, hash};
use super::in_order::{in_order, is_closed_early};
use super::line::Entry;
use super::list::{List, Rules};
use super::options::SumArgs;
use super::progress::Progress;
use super::source::{self, Input, Inputs};
use super::tally::{Checked, Tally};
use tokio::sync::mpsc;

/// The number of lines read ahead of their files.
const AHEAD: usize = 256;

/// A line of a list: a file to read, or else its result.
type Line = Result<(Entry, Input), Checked>;

/// Checks the files of all lists; returns whether all match. It has not shown that if the reader of
/// standard output goes early.
///
/// # Errors
///
/// Those of writing.
pub(super) async fn run(args: &SumArgs, progress: &Progress) -> anyhow::Result<bool> {
    let rules = Rules { algorithm: args.algo, zero: args.zero };
    let mut inputs = Inputs::default();
    let lists = inputs.all(&args.inputs);
    if progress.is_shown() {
        let (lists, progress) = (lists.clone(), progress.clone());
        tokio::spawn(async move { progress.total(total(&lists, rules).await) });
    }
    let mut success = true;
    for list in lists {
        let (send, lines) = mpsc::channel(AHEAD);
        tokio::spawn(feed(list.clone(), rules, inputs.clone(), send));
        let reading = Reading::new(args, progress);
        let mut tally = Tally::new(list.name(), args, progress);
        let work = move |line| check(line, reading.clone());
        let checked = in_order(lines, args.files.into(), work, |checked| tally.add(checked));
        if is_closed_early(checked.await)? {
            return Ok(false);
        }
        success &= tally.finish();
    }
    Ok(success)
}

/// Reads a list into `lines`. A line may name standard input only if no list is read from it.
async fn feed(list: Input, rules: Rules, mut inputs: Inputs, lines: mpsc::Sender<Vec<Line>>) {
    let mut list = match List::open(&list, rules).await {
        Ok(list) => list,
        Err(error) => return drop(lines.send(vec![Err(Checked::Unreadable(error))]).await),
    };
    loop {
        let line = match list.next().await {
            Ok(None) => return,
            Ok(Some(Ok(entry))) => {
                let input = inputs.of(&entry.path);
                Ok((entry, input))
            }
            Ok(Some(Err(line))) => Err(Checked::Malformed(line)),
            Err(error) => return drop(lines.send(vec![Err(Checked::Unreadable(error))]).await),
        };
        if lines.send(vec![line]).await.is_err() {
            return;
        }
    }
}

async fn check(line: Line, reading: Reading) -> Checked {
    match line {
        Ok((entry, input)) => {
            let hashed = hash(&input, entry.algorithm, &reading).await;
            Checked::Read(entry, hashed)
        }
        Err(checked) => checked,
    }
}

/// The number of bytes to read, as far as metadata show it. Lists that are no files count nothing:
/// what is read of a pipe here would be missing in the check. Errors are ignored here: they occur
/// again when the files are read.
async fn total(lists: &[Input], rules: Rules) -> u64 {
    let mut total = 0;
    for list in lists {
        let Input::Path(path) = list else { continue };
        if !source::is_file(path).await {
            continue;
        }
        let Ok(mut list) = List::open(list, rules).await else { continue };
        while let Ok(Some(entry)) = list.next().await {
            if let Ok(entry) = entry {
                total += source::len(&entry.path).await;
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read, Write};
    use std::os::fd::AsRawFd;

    /// As that of `<(gzip -dc SUMS.gz)`.
    #[tokio::test]
    async fn the_total_takes_nothing_out_of_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        let line = format!("00112233  {}\n", file.display());
        let rules = Rules { algorithm: None, zero: false };
        let (mut reader, mut writer) = io::pipe().unwrap();
        writer.write_all(line.as_bytes()).unwrap();
        drop(writer);
        let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert_eq!(total(&[Input::Path(pipe.into())], rules).await, 0);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, line);
        let list = folder.path().join("list");
        std::fs::write(&list, &line).unwrap();
        assert_eq!(total(&[Input::Path(list)], rules).await, 5);
    }
}
