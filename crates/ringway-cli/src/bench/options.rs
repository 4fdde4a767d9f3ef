//! What can be asked of `ringway bench` on the command line.

use super::job_file::KEYS;
use super::workload::{Access, Backend};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options that mean 1 when no value follows.
const SWITCHES: [&str; 4] = ["--sqpoll", "--iopoll", "--fixed-buffers", "--fixed-files"];

const EXAMPLES: &str = "\
Lists multiply: every combination is a measurement, and all of them are repeated in turn.

Examples:
  ringway bench
      Every backend that this machine grants, on a scratch file, in about a minute
  ringway bench --backend uring,kaio --rw randread,randwrite --bs 4k,64k --depth 1,32
      Sixteen combinations, on a scratch file
  ringway bench --backend uring --sqpoll 0,1 --fixed-buffers 0,1 --depth 32 /data/table.db
      What io_uring's options gain, on a file of yours, which is only read
  ringway bench --rw randwrite --fdatasync 1 --depth 1 --size 4g --scratch /data
      Small durable writes, each with its sync behind it, on a scratch file of 4 GiB in /data
  ringway bench --rate 5000 --depth 128 --runtime 30s --json result.json
      Latency at 5000 requests a second, started on schedule
  ringway bench --verify --runtime 200ms --repeat 1
      Checks every byte that is read
  ringway bench job.fio
      What a fio job file describes

Sizes take k, m, g and t (powers of 1024), times us, ms, s and m.
Exit status: 0; 1 when something could not be done: nothing, or not every job of a job file, could be run, or a file
could not be written; 2 for a mistake in the command line; 3 when --verify found wrong bytes; 4 when a request failed,
however many did not.";

/// The examples, and the keys of job files.
fn after_help() -> String {
    let mut help =
        format!("{EXAMPLES}\n\nJob files may have a subset of fio's keys; any other is an error:");
    let mut column = usize::MAX;
    for key in KEYS.iter().chain(&["include"]) {
        if column.saturating_add(key.len()) > 98 {
            help.push_str("\n ");
            column = 1;
        }
        help.push(' ');
        help.push_str(key);
        column += key.len() + 1;
    }
    help
}

/// The options of `ringway bench`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(after_long_help = after_help())]
pub struct BenchArgs {
    /// Files or block devices to measure on, or fio job files (`*.fio`, or what begins with a
    /// [section]); without any, a scratch file
    ///
    /// They are only read, unless --overwrite is given and what is to be done writes.
    #[arg(value_name = "FILE|JOB.fio")]
    pub files: Vec<PathBuf>,

    /// uring, kaio, threads, psync (each job's own thread, without a queue), null (nothing is done:
    /// what the harness costs)
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = backend, help_heading = MATRIX)]
    pub backend: Vec<Backend>,
    /// randread, randwrite, read, write, randrw, rw
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = access, help_heading = MATRIX)]
    pub rw: Vec<Access>,
    /// Bytes of a request [default: 4k]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = block_size, help_heading = MATRIX)]
    pub bs: Vec<u64>,
    /// Requests in flight of each job [default: 1,32,128]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = MATRIX)]
    pub depth: Vec<u32>,
    /// Threads, each with a queue of its own [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = MATRIX)]
    pub jobs: Vec<u32>,
    /// Direct I/O (O_DIRECT): 0, 1 [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch, help_heading = MATRIX)]
    pub direct: Vec<bool>,
    /// A kernel thread polls the submission queue (uring): 0, 1; alone: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = MATRIX)]
    pub sqpoll: Vec<bool>,
    /// Completions are polled for (uring, direct I/O): 0, 1; alone: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = MATRIX)]
    pub iopoll: Vec<bool>,
    /// Registered buffers (uring): 0, 1; alone: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = MATRIX)]
    pub fixed_buffers: Vec<bool>,
    /// Registered files (uring): 0, 1; alone: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = MATRIX)]
    pub fixed_files: Vec<bool>,

    /// Submit at most N requests together, and wait for as many completions at a time [default: an
    /// eighth of the depth, and one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub batch: Option<u32>,
    /// Of mixed workloads, the share of reads in percent [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100), help_heading = WORK)]
    pub read_percent: Option<u8>,
    /// fsync after every N writes. It does not wait for writes in flight: at --depth 1 there are
    /// none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "fdatasync", help_heading = WORK)]
    pub fsync: Option<u32>,
    /// fdatasync after every N writes, as --fsync
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub fdatasync: Option<u32>,
    /// Requests a second of each job, started on schedule; latency counts from then, so that a
    /// stall counts for every request that was due during it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = WORK)]
    pub rate: Option<u64>,
    /// Seed of the random offsets, which are the same in every run [default: 1]
    #[arg(long, value_name = "N", help_heading = WORK)]
    pub seed: Option<u64>,

    /// Measured time of each run [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "requests", help_heading = LENGTH)]
    pub runtime: Option<Duration>,
    /// End each run after N requests of each job instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = LENGTH)]
    pub requests: Option<u64>,
    /// Time that each run goes unmeasured first [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time_or_none, help_heading = LENGTH)]
    pub ramp: Option<Duration>,
    /// Runs of each combination, in turn with the others; the report shows the median [default: 3;
    /// job files: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LENGTH)]
    pub repeat: Option<u32>,

    /// Bytes of the scratch file, or used of each FILE [default: 1g, at most a tenth of the free
    /// space]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = TARGET)]
    pub size: Option<u64>,
    /// Folder of the scratch file [default: the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "files", help_heading = TARGET)]
    pub scratch: Option<PathBuf>,
    /// What is in the FILEs may be lost: needed for writing to anything that was there before. What
    /// only reads writes nothing all the same
    #[arg(long, help_heading = TARGET)]
    pub overwrite: bool,
    /// Write the pattern that --verify knows over what is used of the FILEs before anything is
    /// measured (with --overwrite where they were there before)
    #[arg(long, help_heading = TARGET)]
    pub fill: bool,
    /// Page cache before a buffered run: warm, cold, keep [default: warm; job files: cold]
    #[arg(long, value_name = "STATE", help_heading = TARGET)]
    pub cache: Option<Cache>,
    /// Check every byte. What writes, writes a pattern and reads it back; what reads expects the
    /// pattern of such an earlier run or of --fill, or, in a file that has nothing of it, what a
    /// plain read of the same place gives
    #[arg(long, help_heading = TARGET)]
    pub verify: bool,

    /// Write JSON with fio's names; `-` for standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write CSV; `-` for standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub csv: Option<PathBuf>,
    /// Write a page with plots, all in one file
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub html: Option<PathBuf>,
    /// Show no progress and no remarks
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
}

const MATRIX: &str = "What is compared (lists, separated by commas)";
const WORK: &str = "How the requests are made";
const LENGTH: &str = "How long";
const TARGET: &str = "Where";
const OUTPUT: &str = "Output";

/// The state of the page cache before a buffered run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// The file is read through once.
    Warm,
    /// What the kernel holds of the file is dropped.
    Cold,
    /// As the run before has left it.
    Keep,
}

impl BenchArgs {
    /// True when nothing was said about what is to be compared.
    pub fn asks_for_nothing(&self) -> bool {
        self.matrix_options().is_empty()
    }

    /// What was given of all that a job file says for itself.
    pub fn job_options(&self) -> Vec<&'static str> {
        let mut given = self.matrix_options();
        let more = [
            ("--runtime", self.runtime.is_some()),
            ("--ramp", self.ramp.is_some()),
            ("--size", self.size.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        given.extend(more.iter().filter(|(_, given)| *given).map(|(name, _)| *name));
        given
    }

    fn matrix_options(&self) -> Vec<&'static str> {
        let options = [
            ("--backend", !self.backend.is_empty()),
            ("--rw", !self.rw.is_empty()),
            ("--bs", !self.bs.is_empty()),
            ("--depth", !self.depth.is_empty()),
            ("--jobs", !self.jobs.is_empty()),
            ("--direct", !self.direct.is_empty()),
            ("--sqpoll", !self.sqpoll.is_empty()),
            ("--iopoll", !self.iopoll.is_empty()),
            ("--fixed-buffers", !self.fixed_buffers.is_empty()),
            ("--fixed-files", !self.fixed_files.is_empty()),
            ("--batch", self.batch.is_some()),
            ("--read-percent", self.read_percent.is_some()),
            ("--fsync", self.fsync.is_some()),
            ("--fdatasync", self.fdatasync.is_some()),
            ("--rate", self.rate.is_some()),
            ("--requests", self.requests.is_some()),
        ];
        options.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect()
    }
}

/// Joins a switch to the list that follows it, if one does: `--sqpoll 0,1 FILE` means `--sqpoll=0,1
/// FILE`, and `--sqpoll FILE` means `--sqpoll=1 FILE`, which a parser cannot know by itself.
pub fn join_switches(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(mut arg) = args.next() {
        if arg == "--" {
            joined.push(arg);
            joined.extend(args);
            break;
        }
        if SWITCHES.iter().any(|name| arg == *name) {
            let is_list =
                |next: &OsString| matches!(next.to_str(), Some("0" | "1" | "0,1" | "1,0"));
            let list = args.next_if(is_list).unwrap_or_else(|| "1".into());
            arg.push("=");
            arg.push(list);
        }
        joined.push(arg);
    }
    joined
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "uring" | "io_uring" => Ok(Backend::Uring),
        "kaio" | "libaio" => Ok(Backend::Kaio),
        "threads" => Ok(Backend::Threads),
        "psync" => Ok(Backend::Psync),
        "null" => Ok(Backend::Null),
        _ => Err("give some of uring, kaio, threads, psync, null".to_owned()),
    }
}

fn access(text: &str) -> Result<Access, String> {
    match text {
        "read" => Ok(Access::Read),
        "write" => Ok(Access::Write),
        "rw" | "readwrite" => Ok(Access::ReadWrite),
        "randread" => Ok(Access::RandRead),
        "randwrite" => Ok(Access::RandWrite),
        "randrw" => Ok(Access::RandRw),
        _ => Err("give some of randread, randwrite, read, write, randrw, rw".to_owned()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0, 1 or 0,1".to_owned()),
    }
}

/// The largest request that the kernel takes.
const LARGEST_REQUEST: u64 = 0x7fff_f000;

fn block_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| {
        if size <= LARGEST_REQUEST { Ok(size) } else { Err("at most 2g less a page".into()) }
    })
}

fn size(text: &str) -> Result<u64, String> {
    let text = text.to_ascii_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("`{unit}` is no unit: k, m, g or t")),
    };
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| (1..=i64::MAX as u64).contains(size))
        .ok_or_else(|| "give a size such as 4096, 4k or 1g".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    match time_or_none(text)? {
        Duration::ZERO => Err("give more than no time".to_owned()),
        time => Ok(time),
    }
}

fn time_or_none(text: &str) -> Result<Duration, String> {
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit: us, ms, s, m or h")),
    };
    let seconds = number.parse::<f64>().map(|number| number * factor);
    // A thousand days: no run is longer, and no sum of clock readings overflows.
    let seconds = seconds.ok().filter(|seconds| (0.0..=86_400_000.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give a time such as 5s or 200ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, String> {
        let args = std::iter::once("bench").chain(line.split_whitespace()).map(OsString::from);
        Cli::try_parse_from(join_switches(args))
            .map(|cli| cli.bench)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_examples_of_the_help_are_understood() {
        let lines: Vec<&str> =
            EXAMPLES.lines().filter_map(|line| line.strip_prefix("  ringway bench")).collect();
        assert_eq!(lines.len(), 7);
        for line in lines {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn a_switch_takes_a_list_or_none() {
        let args = parse("--sqpoll 0,1 --fixed-buffers --fixed-files data --iopoll=0 -- --sqpoll")
            .unwrap();
        assert_eq!(args.sqpoll, [false, true]);
        assert_eq!(
            (args.fixed_buffers, args.fixed_files, args.iopoll),
            (vec![true], vec![true], vec![false])
        );
        assert_eq!(args.files, [PathBuf::from("data"), PathBuf::from("--sqpoll")]);
    }

    #[test]
    fn sizes_and_times_have_units() {
        let args = parse("--bs 512,4k,1M --size 2g --runtime 200ms --ramp 0").unwrap();
        assert_eq!(args.bs, [512, 4096, 1 << 20]);
        assert_eq!(args.size, Some(2 << 30));
        assert_eq!(args.runtime, Some(Duration::from_millis(200)));
        assert_eq!(args.ramp, Some(Duration::ZERO));
        assert_eq!(time("1.5m").unwrap(), Duration::from_secs(90));
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        for (line, told) in [
            ("--backend aio", "give some of uring, kaio, threads, psync, null"),
            ("--rw trim", "randread"),
            ("--bs 0", "such as 4096"),
            ("--bs 4x", "`x` is no unit"),
            ("--bs 3g", "at most 2g"),
            ("--runtime 0", "more than no time"),
            ("--runtime 5x", "`x` is no unit"),
            ("--direct 2", "0, 1 or 0,1"),
            ("--depth 0", "not in 1..=65536"),
            ("--fsync 1 --fdatasync 1", "cannot be used with"),
            ("--runtime 1s --requests 5", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
