//! Statements typed at a terminal.

use crate::runner::{End, Runner};
use crate::{one_line, statements};
use anyhow::Result;
use std::io::{self, Write};
use tokio::sync::mpsc;

const HELP: &str = "\
End a statement with a semicolon; it may have several lines. Ctrl-C cancels a query, or drops what
is typed so far; Ctrl-D or \\q quits; SHOW TABLES lists the tables.";

/// Reads and runs statements until the input ends. A statement that fails ends nothing.
pub async fn run(runner: &mut Runner) -> Result<()> {
    eprintln!("ringway-sql {}: \\? for help", env!("CARGO_PKG_VERSION"));
    let mut lines = lines();
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
        if statements::is_complete(&typed) {
            match runner.run(&std::mem::take(&mut typed)).await {
                Ok(End::Done) => {}
                Ok(End::Cancelled) => eprintln!("cancelled"),
                Err(error) => eprintln!("{}", one_line(&error)),
            }
        } else if typed.trim().is_empty() {
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

/// The lines of standard input. They are read by a thread of their own, so that Ctrl-C is noticed
/// while nothing is typed; the thread ends with the program.
fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let line = match io::stdin().read_line(&mut line) {
                Ok(0) => return,
                Ok(_) => Ok(line),
                Err(error) => Err(error),
            };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
