//! The command line of `ringway`, and the man pages and shell completions made from it.

use crate::bench::options::BenchArgs;
use crate::probe::ProbeArgs;
use crate::sum::options::SumArgs;
use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ringway_core::refusal::errno_text;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Probe and benchmark file I/O on this machine, and compute checksums
///
/// ringway uses io_uring, Linux AIO or threads for file I/O, whichever this machine supports.
#[derive(Parser)]
#[command(name = "ringway", version, arg_required_else_help = true, max_term_width = 80)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Show what this machine supports and how to fix the rest
    ///
    /// Tests every backend and every option with a real read. For each refusal, it shows the
    /// kernel's error, its meaning on this machine, and the fix.
    #[command(after_long_help = PROBE_EXAMPLES)]
    Probe(ProbeArgs),
    /// Compare backends and their options on this machine
    ///
    /// Without options, it measures every backend that this machine supports, on a scratch file, in
    /// about a minute, and prints a table and a summary. It never writes to an existing file or
    /// device, unless --overwrite is given and the workload writes, or --fill is given too.
    Bench(Box<BenchArgs>),
    /// Compute and check checksums of files and trees
    ///
    /// Reads many files at a time and far ahead in each, and hashes on all processors. It writes
    /// and reads the lines of b3sum and sha256sum.
    Sum(Box<SumArgs>),
    /// Write man pages and shell completions into a folder, for installation
    #[command(hide = true)]
    Generate {
        /// The folder, which is created
        dir: PathBuf,
    },
}

const PROBE_EXAMPLES: &str = "\
Examples:
  ringway probe
      This machine
  ringway probe /data
      This machine, and the file system and device of /data
  ringway probe --json | jq .backends.uring.available
      For scripts";

/// Writes a report to standard output. A reader that closes the pipe early (`| head`) is not a
/// failure.
///
/// # Errors
///
/// Those of writing.
pub(crate) fn print(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(report.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// The text of an error, with the name of each errno: `/data: ENOENT (No such file or directory)`
/// where the standard library writes `No such file or directory (os error 2)`.
pub fn error_text(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let mut parts = text.split(" (os error ");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let errno =
            part.split_once(')').and_then(|(errno, rest)| Some((errno.parse().ok()?, rest)));
        let plain = errno.and_then(|(errno, rest)| {
            let words = io::Error::from_raw_os_error(errno).to_string();
            let words = words.strip_suffix(&format!(" (os error {errno})"))?;
            Some((named.strip_suffix(words)?.to_owned(), errno, rest))
        });
        named = match plain {
            Some((before, errno, rest)) => before + &errno_text(errno) + rest,
            None => named + " (os error " + part,
        };
    }
    named
}

/// Writes `man1/*.1` and `completions/*` for bash, zsh and fish into a folder.
///
/// # Errors
///
/// Those of writing files.
pub fn generate(dir: &Path) -> anyhow::Result<()> {
    let (pages, completions) = (dir.join("man1"), dir.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    clap_mangen::generate_to(Cli::command(), &pages).context("write the man pages")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "ringway", &completions)
            .context("write the completions")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal() {
        for name in ["probe", "bench", "sum"] {
            let error = Cli::try_parse_from(["ringway", name, "--help"]).err().unwrap();
            for line in error.to_string().lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }

    #[test]
    fn errors_have_the_names_of_their_errnos() {
        let error = |errno| io::Error::from_raw_os_error(errno);
        let within = anyhow::Error::from(error(libc::ENOENT)).context("/data");
        assert_eq!(error_text(&within), "/data: ENOENT (No such file or directory)");
        let joined = anyhow::anyhow!("a: {}; b: {}", error(libc::EINVAL), error(9999));
        assert_eq!(error_text(&joined), "a: EINVAL (Invalid argument); b: errno 9999");
        for other in ["plain", "a file called x (os error 2)", "(os error", " (os error 2", ""] {
            assert_eq!(error_text(&anyhow::anyhow!("{other}")), other);
        }
    }

    #[test]
    fn a_misspelt_option_or_value_has_a_suggestion() {
        for (line, suggestion) in [
            ("bench --deph 4", "'--depth'"),
            ("bench --fixed-bufers", "'--fixed-buffers'"),
            ("bench --backend urng", "'uring'"),
            ("bench --rw randraed", "'randread'"),
            ("probe --jsn", "'--json'"),
            ("sum --chekc", "'--check'"),
            ("sum --algo sha265", "'sha256'"),
            ("prob", "'probe'"),
        ] {
            let words = std::iter::once("ringway").chain(line.split(' '));
            let error = Cli::try_parse_from(words).err().unwrap().to_string();
            assert!(error.contains("similar") && error.contains(suggestion), "{line}: {error}");
        }
    }
}
