//! Checks what files of hashes say.

use super::hash::{Reading, hash};
use super::in_order::in_order;
use super::line::Entry;
use super::list::{List, NotUnderstood, Rules};
use super::options::SumArgs;
use super::progress::Progress;
use super::source::{self, Input, Inputs};
use super::tally::{Outcome, Tally};
use std::io;
use tokio::sync::mpsc;

/// Lines that are read ahead of the files that they name.
const READ: usize = 256;

/// A line to be looked at.
enum Line {
    Entry(Entry, Input),
    NotUnderstood(NotUnderstood),
    /// It cannot be read, nor anything after it.
    Broken(io::Error),
}

/// Checks what all files of hashes say; whether it is so.
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
    let mut all_is_well = true;
    for list in lists {
        let (send, lines) = mpsc::channel(READ);
        tokio::spawn(feed(list.clone(), rules, inputs.clone(), send));
        let reading = Reading::new(args, progress);
        let mut tally = Tally::new(list.name(), args, progress);
        in_order(
            lines,
            args.files.into(),
            move |line| check(line, reading.clone()),
            |outcome| tally.add(outcome),
        )
        .await?;
        all_is_well &= tally.sum_up();
    }
    Ok(all_is_well)
}

/// Reads a list into `lines`. Standard input is only for a line that names it if no list has it.
async fn feed(list: Input, rules: Rules, mut inputs: Inputs, lines: mpsc::Sender<Vec<Line>>) {
    let mut list = match List::open(&list, rules).await {
        Ok(list) => list,
        Err(error) => return drop(lines.send(vec![Line::Broken(error)]).await),
    };
    loop {
        let line = match list.next().await {
            Ok(None) => return,
            Ok(Some(Ok(entry))) => {
                let input = inputs.of(&entry.path);
                Line::Entry(entry, input)
            }
            Ok(Some(Err(line))) => Line::NotUnderstood(line),
            Err(error) => return drop(lines.send(vec![Line::Broken(error)]).await),
        };
        if lines.send(vec![line]).await.is_err() {
            return;
        }
    }
}

async fn check(line: Line, reading: Reading) -> Outcome {
    match line {
        Line::Entry(entry, input) => {
            let hashed = hash(&input, entry.algorithm, &reading).await;
            Outcome::Read(entry, hashed)
        }
        Line::NotUnderstood(line) => Outcome::NotUnderstood(line),
        Line::Broken(error) => Outcome::Broken(error),
    }
}

/// The bytes that there are to read, as far as can be told beforehand. Errors will be told when
/// they are met again.
async fn total(lists: &[Input], rules: Rules) -> u64 {
    let mut total = 0;
    for list in lists.iter().filter(|list| matches!(list, Input::Path(_))) {
        let Ok(mut list) = List::open(list, rules).await else { continue };
        while let Ok(Some(entry)) = list.next().await {
            if let Ok(entry) = entry {
                total += source::len(&entry.path).await;
            }
        }
    }
    total
}
