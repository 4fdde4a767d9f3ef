//! The progress on standard error.

use super::interrupt::is_interrupted;
use super::workload::Workload;
use crate::sum::progress::style;
use indicatif::ProgressBar;
use ringway_core::refusal::bytes_text;
use std::cell::{Cell, RefCell};
use std::io::IsTerminal;

/// A bar on a terminal, otherwise a line for each file that is written.
pub struct Progress {
    quiet: bool,
    bar: RefCell<ProgressBar>,
    has_announced: Cell<bool>,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        Self { quiet, bar: RefCell::new(ProgressBar::hidden()), has_announced: Cell::new(false) }
    }

    fn start(&self, length: u64, template: &str) {
        if self.quiet || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(length).with_style(style(template));
        self.bar.replace(bar).finish_and_clear();
    }

    pub fn file_starts(&self, what: &str, bytes: u64) {
        if !self.quiet {
            self.end();
            eprintln!("writing {}: {what}", bytes_text(bytes));
        }
        self.start(bytes, "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    }

    pub fn bytes_written(&self, bytes: u64) {
        self.bar.borrow().inc(bytes);
    }

    pub fn start_runs(&self, configurations: usize, repeat: u32) {
        self.end();
        let runs = configurations as u64 * u64::from(repeat);
        if !self.quiet {
            eprintln!("{runs} runs: {configurations} configurations, {repeat} times each");
        }
        self.start(runs, "{bar:40} {pos} of {len}, {eta} left: {msg}");
    }

    pub fn run_starts(&self, workload: &Workload) {
        let io = if workload.direct { "direct" } else { "buffered" };
        let message = format!("{} {}, {io}", workload.backend.name(), workload.name);
        self.bar.borrow().set_message(message);
    }

    /// A run goes on, perhaps for a while after an interrupt: until its requests have completed.
    pub fn tick(&self) {
        self.bar.borrow().tick();
        if is_interrupted() && !self.quiet && !self.has_announced.replace(true) {
            self.end();
            eprintln!("ringway: interrupted; press Ctrl-C again to end without a report");
        }
    }

    pub fn run_ended(&self) {
        self.bar.borrow().inc(1);
    }

    pub fn end(&self) {
        self.bar.borrow().finish_and_clear();
    }
}
