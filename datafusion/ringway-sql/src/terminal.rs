//! Statements typed at a terminal.

use crate::runner::{End, Runner};
use crate::statements::take_complete;
use crate::{input, one_line};
use anyhow::Result;
use std::io::{self, Write};

const HELP: &str = "\
End a statement with a semicolon; it may have several lines. Ctrl-C cancels a query, or drops what
is typed so far; Ctrl-D or \\q quits; SHOW TABLES lists the tables.";

/// Reads and runs statements until the input ends. A statement that fails ends nothing.
pub async fn run(runner: &mut Runner) -> Result<()> {
    eprintln!("ringway-sql {}: \\? for help", env!("CARGO_PKG_VERSION"));
    let mut lines = input::lines();
    let mut typed = String::new();
    loop {
        prompt(if typed.is_empty() { "> " } else { ". " })?;
        let line = tokio::select! {
            line = lines.recv() => line.transpose()?,
            () = runner.interrupted() => {
                typed.clear();
                eprintln!();
                continue;
            }
        };
        let Some(line) = line else { break };
        match line.trim() {
            "\\q" => return Ok(()),
            "\\?" => {
                eprintln!("{HELP}");
                continue;
            }
            _ => typed.push_str(&line),
        }
        for statement in take_complete(&mut typed) {
            match runner.run(&statement).await {
                Ok(End::Done) => continue,
                Ok(End::Cancelled) => eprintln!("cancelled"),
                Err(error) => eprintln!("{}", one_line(&error)),
            }
            // Those after it may need it.
            typed.clear();
            break;
        }
        if typed.trim().is_empty() {
            typed.clear();
        }
    }
    eprintln!();
    Ok(())
}

fn prompt(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr();
    write!(stderr, "{text}")?;
    stderr.flush()
}
