//! `ringway-sql`: SQL over folders of files, through ringway or DataFusion's own store.

mod args;
mod cost;
mod folder;
mod input;
mod interrupts;
mod output;
mod runner;
mod script;
mod statements;
mod tables;
mod terminal;

use anyhow::{Context, Result};
use args::{Args, Store};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use interrupts::interrupts;
use runner::{End, Runner};
use script::Script;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.store == Store::Local && (args.direct || args.backend.is_some()) {
        let text = "--direct and --backend need --store ringway";
        Args::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    match run(args) {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Cancelled) => {
            note("ringway-sql: cancelled");
            // As a shell reports a program that SIGINT ended.
            ExitCode::from(130)
        }
        // A reader that closes the pipe early (`| head`) is not a failure.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("ringway-sql: {}", one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<End> {
    let mut script = script(&args)?;
    let runtime = Runtime::new()?;
    let (first, opened) = runtime.block_on(async {
        let first = match &mut script {
            Some(script) => script.next().await?,
            None => None,
        };
        anyhow::Ok((first, runner::open(&args).await?))
    })?;
    // Until here, Ctrl-C ends the program.
    let mut runner = Runner::new(args, script.is_none(), opened, interrupts()?)?;
    let end = runtime.block_on(async {
        match script {
            Some(script) => script.run(first, &mut runner).await,
            None => terminal::run(&mut runner).await.map(|()| End::Done),
        }
    });
    runner.finish();
    end
}

/// The statements to run; `None` if they are typed at a terminal.
fn script(args: &Args) -> Result<Option<Script>> {
    Ok(match &args.file {
        Some(file) if file == Path::new("-") => Some(Script::of_input()),
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            Some(Script::of_texts([text]))
        }
        None if !args.command.is_empty() => Some(Script::of_texts(args.command.clone())),
        None if io::stdin().is_terminal() => None,
        None => Some(Script::of_input()),
    })
}

/// An error with its causes, in one line. DataFusion's messages may have several lines, and often
/// contain those of their causes.
fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Prints a line on standard error. If nobody reads it, nothing else changes: `eprintln!` would
/// panic.
fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
