//! Statements that come from arguments, a file, or standard input that is no terminal.

use crate::input;
use crate::runner::{End, Runner};
use crate::statements::take_complete;
use anyhow::{Context, Error, Result};
use datafusion::sql::parser::DFParser;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use tokio::sync::mpsc::Receiver;

/// Statements, one after the other.
pub struct Script {
    statements: VecDeque<String>,
    /// The beginning of the next statement.
    partial: String,
    lines: Option<Receiver<io::Result<String>>>,
    /// Where the statement that `next` returned begins, and where it ends.
    place: Range<Place>,
}

/// A place in the text of all statements.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Lines before this one.
    lines: usize,
    /// Characters before this one in its line.
    columns: usize,
}

impl Script {
    /// The statements of these texts. The last of each text needs no semicolon.
    pub fn of_texts(texts: impl IntoIterator<Item = String>) -> Self {
        let mut script = Self::new(None);
        for mut text in texts {
            strip_mark(&mut text);
            // The next text begins a line.
            text.push('\n');
            script.statements.extend(take_complete(&mut text));
            script.statements.push_back(text);
        }
        script
    }

    /// The statements of standard input.
    pub fn of_input() -> Self {
        Self::new(Some(input::lines()))
    }

    fn new(lines: Option<Receiver<io::Result<String>>>) -> Self {
        let place = Place::default()..Place::default();
        Self { statements: VecDeque::new(), partial: String::new(), lines, place }
    }

    /// The next statement, as soon as its semicolon has come; `None` at the end. Dropping the
    /// future loses no input.
    pub async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(statement) = self.statements.pop_front() {
                self.place = self.place.end..self.place.end.after(&statement);
                return Ok(Some(statement));
            }
            let Some(lines) = &mut self.lines else { return Ok(None) };
            let Some(line) = lines.recv().await else {
                self.lines = None;
                self.statements.push_back(std::mem::take(&mut self.partial));
                continue;
            };
            self.partial.push_str(&line.context("standard input")?);
            // All lines that are there, since each look for a semicolon begins at the statement's
            // start.
            while let Ok(line) = lines.try_recv() {
                self.partial.push_str(&line.context("standard input")?);
            }
            strip_mark(&mut self.partial);
            if self.partial.contains(';') {
                self.statements.extend(take_complete(&mut self.partial));
            }
        }
    }

    /// Runs the first statement and those after it; stops at the first that fails or is cancelled.
    pub async fn run(mut self, first: Option<String>, runner: &mut Runner) -> Result<End> {
        let mut next = first;
        while let Some(statement) = next {
            match runner.run(&statement).await {
                Ok(End::Done) => {}
                Ok(End::Cancelled) => return Ok(End::Cancelled),
                Err(error) => return Err(self.placed(&statement).unwrap_or(error)),
            }
            next = tokio::select! {
                next = self.next() => next?,
                () = runner.interrupted() => return Ok(End::Cancelled),
            };
        }
        Ok(End::Done)
    }

    /// The error of parsing a statement, with its line and column in the script.
    fn placed(&self, statement: &str) -> Option<Error> {
        let Place { lines, columns } = self.place.start;
        let text = "\n".repeat(lines) + &" ".repeat(columns) + statement;
        DFParser::parse_sql(&text).err().map(Error::from)
    }
}

impl Place {
    fn after(self, text: &str) -> Self {
        match text.rsplit_once('\n') {
            Some((before, last)) => Self {
                lines: self.lines + before.matches('\n').count() + 1,
                columns: last.chars().count(),
            },
            None => Self { columns: self.columns + text.chars().count(), ..self },
        }
    }
}

/// Removes the byte order mark that some editors write at the beginning of a file.
fn strip_mark(text: &mut String) {
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_statement_is_there_when_its_semicolon_has_come() {
        let (sender, receiver) = mpsc::channel(8);
        let mut script = Script::new(Some(receiver));
        for line in ["\u{feff}SELECT\n", "1; SELECT 2; SEL\n"] {
            sender.send(Ok(line.to_owned())).await.unwrap();
        }
        assert_eq!(script.next().await.unwrap().unwrap(), "SELECT\n1;");
        assert_eq!(script.next().await.unwrap().unwrap(), " SELECT 2;");
        sender.send(Ok("ECT 3".to_owned())).await.unwrap();
        drop(sender);
        assert_eq!(script.next().await.unwrap().unwrap(), " SEL\nECT 3");
        assert_eq!(script.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn texts_are_scripts_of_their_own() {
        let texts = ["\u{feff}SELECT 1 -- one", "SELECT 2; SELECT 3"];
        let mut script = Script::of_texts(texts.map(str::to_owned));
        for expected in ["SELECT 1 -- one\n", "SELECT 2;", " SELECT 3\n"] {
            assert_eq!(script.next().await.unwrap().unwrap(), expected);
        }
        assert_eq!(script.next().await.unwrap(), None);
    }
}
