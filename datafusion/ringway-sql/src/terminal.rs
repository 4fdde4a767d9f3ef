//! Statements typed at a terminal.

use crate::runner::{End, Runner};
use crate::statements::take_complete;
use crate::{input, note, one_line};
use anyhow::Result;
use std::io::{self, Write};

const HELP: &str = "\
End a statement with a semicolon; it may have several lines. Ctrl-C cancels a query, or drops what
is typed so far; Ctrl-D or \\q quits; SHOW TABLES lists the tables.";

/// Reads and runs statements until the input ends. A statement that fails ends nothing.
pub async fn run(runner: &mut Runner) -> Result<()> {
    note(concat!("ringway-sql ", env!("CARGO_PKG_VERSION"), ": \\? for help"));
    let mut lines = input::lines();
    let mut typed = String::new();
    loop {
        prompt(if typed.is_empty() { "> " } else { ". " });
        let line = tokio::select! {
            line = lines.recv() => line.transpose()?,
            () = runner.interrupted() => {
                typed.clear();
                note("");
                continue;
            }
        };
        let Some(line) = line else { break };
        match line.trim() {
            "\\q" => return Ok(()),
            "\\?" => {
                note(HELP);
                continue;
            }
            _ => typed.push_str(&line),
        }
        for statement in take_complete(&mut typed) {
            match runner.run(&statement).await {
                Ok(End::Done) => continue,
                Ok(End::Cancelled) => note("cancelled"),
                Err(error) => note(one_line(&error)),
            }
            // Those after it may need it.
            typed.clear();
            break;
        }
        if typed.trim().is_empty() {
            typed.clear();
        }
    }
    note("");
    Ok(())
}

fn prompt(text: &str) {
    // As `note`.
    let _ = write!(io::stderr(), "{text}");
}
