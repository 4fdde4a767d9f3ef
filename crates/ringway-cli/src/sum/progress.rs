//! The progress bar, and messages that must not overwrite it.

use super::line::escape;
use indicatif::{ProgressBar, ProgressStyle};
use ringway::fs::Caching;
use ringway_core::refusal::errno_text;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// While the total is unknown; that of a pipe always is.
const UNKNOWN: &str = "{spinner} {binary_bytes}, {binary_bytes_per_sec}";
const KNOWN: &str =
    "{wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// The bar on standard error, if any. Clones share the bar.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Standard output is a terminal, where the bar may be.
    prints_on_terminal: bool,
}

impl Progress {
    /// A bar, if it is `wanted` and standard error is a terminal.
    pub(super) fn new(wanted: bool) -> Self {
        let bar = if wanted && io::stderr().is_terminal() {
            ProgressBar::no_length().with_style(style(UNKNOWN))
        } else {
            ProgressBar::hidden()
        };
        Self { bar, prints_on_terminal: io::stdout().is_terminal() }
    }

    /// Whether the bar is visible.
    pub(super) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Sets the total.
    pub(super) fn total(&self, bytes: u64) {
        if bytes > 0 {
            self.bar.set_style(style(KNOWN));
            self.bar.set_length(bytes);
        }
    }

    /// Adds bytes that were read.
    pub(super) fn read(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// Removes the bar.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line to standard output, whatever its end: without one, bytes that are only
    /// buffered would be lost without an error.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(super) fn print(&self, line: &[u8]) -> io::Result<()> {
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(line).and_then(|()| out.flush())
        };
        if self.prints_on_terminal { self.bar.suspend(write) } else { write() }
    }

    /// Writes a line to standard error.
    pub(super) fn say(&self, text: &str) {
        self.say_bytes(text.as_bytes());
    }

    /// Writes a line about a path to standard error.
    pub(super) fn say_of(&self, path: &Path, text: &str) {
        let name = escape(path.as_os_str().as_bytes());
        self.say_bytes(&[&name[..], b": ", text.as_bytes()].concat());
    }

    /// Reports the error of a path on standard error.
    pub(super) fn failed(&self, path: &Path, error: &io::Error) {
        self.say_of(path, &error_text(error));
    }

    /// Reports the error, if any, because of which a path was not read with direct I/O.
    pub(super) fn not_direct(&self, path: &Path, error: Option<io::Error>) {
        if let Some(error) = error {
            self.say_of(path, &format!("not read directly: {}", error_text(&error)));
        }
    }

    /// Reports why a path has left pages in the page cache, if it was not to.
    pub(super) fn keeps_pages(&self, path: &Path, caching: &Caching) {
        if let Caching::Refused(why) = caching {
            self.say_of(path, &format!("pages stay in the page cache: {why}"));
        }
    }

    fn say_bytes(&self, line: &[u8]) {
        // An error of writing to standard error cannot be reported.
        let _ = self.bar.suspend(|| io::stderr().write_all(&[b"ringway: ", line, b"\n"].concat()));
    }
}

/// The errno with its text, or the text of another error.
fn error_text(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_text)
}

/// The style of all bars.
pub(crate) fn style(template: &str) -> ProgressStyle {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [UNKNOWN, KNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
