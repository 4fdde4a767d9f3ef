//! The options of `ringway bench`.

use super::job_file::keys;
use super::workload::{Access, Backend, Cache, MAX_FILE, MAX_REQUEST};
use ringway_measure::text::wrap;
use ringway_measure::units::{parse_duration, parse_size};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Lists multiply: bench measures every combination, and repeats all of them in
turn.

Examples:
  ringway bench
      Every backend that this machine supports, on a scratch file, in about a
      minute
  ringway bench --backend uring,kaio --rw randread,randwrite --bs 4k,64k
      Every combination of these at the default depths, on a scratch file
  ringway bench --backend uring --sqpoll 0,1 --depth 32 /data/table.db
      The effect of one of io_uring's options, on a file of yours, which is only
      read
  ringway bench --rw randwrite --fdatasync 1 --depth 1 --scratch /data
      Small durable writes, each followed by a sync, on a scratch file in /data
  ringway bench --rate 5000 --depth 128 --runtime 30s --json result.json
      Latency at 5000 requests a second, started on schedule
  ringway bench --verify --runtime 200ms --repeat 1
      Check every byte that is read
  ringway bench --dry-run job.fio
      What a fio job file would run, and which of its keys differ from fio
  ringway bench job.fio
      Run a fio job file

Sizes have the units k, m, g and t (powers of 1024), times us, ms, s and m.

Exit status: 0 on success; 1 if nothing, or not every job of a job file, could
run, or a file could not be written; 2 for an error on the command line; 3 if
--verify found wrong bytes; 4 if a request failed; 130 after Ctrl-C, with a
report of the runs that had finished.";

fn after_help() -> String {
    let keys = wrap("  ", &keys().join(" "));
    format!("{EXAMPLES}\n\nKeys of fio that job files may have, in addition to include:\n{keys}")
}

/// The options of `ringway bench`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(after_long_help = after_help())]
pub struct BenchArgs {
    /// Files or block devices to measure on, or fio job files (`*.fio`, or a file that begins with
    /// a [section]); without any, a scratch file
    ///
    /// They are only read, unless --overwrite is given and the workload writes.
    #[arg(value_name = "FILE|JOB.fio")]
    pub files: Vec<PathBuf>,

    /// Backends [default: uring,kaio,threads,null]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = MATRIX)]
    pub backend: Vec<Backend>,
    /// Order and direction of the requests [default: randread]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = MATRIX)]
    pub rw: Vec<Access>,
    /// Bytes of a request [default: 4k]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = block_size,
          help_heading = MATRIX)]
    pub bs: Vec<u64>,
    /// Requests in flight, for each job [default: 1,32,128]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = MATRIX)]
    pub depth: Vec<u32>,
    /// Threads, each with its own queue [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = MATRIX)]
    pub jobs: Vec<u32>,
    /// Direct I/O (O_DIRECT): 0, 1 [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch,
          help_heading = MATRIX)]
    pub direct: Vec<bool>,
    /// A kernel thread polls the submission queue (uring): 0, 1; without a value: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch_or_file,
          num_args = 0..=1, require_equals = true, default_missing_value = "1",
          help_heading = MATRIX)]
    pub sqpoll: Vec<bool>,
    /// The kernel polls the device for completions (uring, direct I/O): 0, 1; without a value: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch_or_file,
          num_args = 0..=1, require_equals = true, default_missing_value = "1",
          help_heading = MATRIX)]
    pub iopoll: Vec<bool>,
    /// Commands to an NVMe disk, without the block layer (uring, direct I/O on /dev/nvme0n1): 0, 1;
    /// without a value: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch_or_file,
          num_args = 0..=1, require_equals = true, default_missing_value = "1",
          help_heading = MATRIX)]
    pub passthrough: Vec<bool>,
    /// Registered buffers (uring): 0, 1; without a value: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch_or_file,
          num_args = 0..=1, require_equals = true, default_missing_value = "1",
          help_heading = MATRIX)]
    pub fixed_buffers: Vec<bool>,
    /// Registered files (uring): 0, 1; without a value: 1
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = switch_or_file,
          num_args = 0..=1, require_equals = true, default_missing_value = "1",
          help_heading = MATRIX)]
    pub fixed_files: Vec<bool>,

    /// Submit at most N requests together, and wait for N completions at a time [default: an
    /// eighth of the depth, and one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = WORK)]
    pub batch: Option<u32>,
    /// Share of reads in mixed workloads, in percent [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100),
          help_heading = WORK)]
    pub read_percent: Option<u8>,
    /// fsync after every N writes. The sync does not wait for writes in flight; at --depth 1 there
    /// are none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "fdatasync", help_heading = WORK)]
    pub fsync: Option<u32>,
    /// fdatasync after every N writes, like --fsync
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = WORK)]
    pub fdatasync: Option<u32>,
    /// Start N requests a second in each job, on schedule. Latency counts from the scheduled start,
    /// so a stall counts for every request that was due during it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = WORK)]
    pub rate: Option<u64>,
    /// Seed of the random offsets, which are the same in every run [default: 1]
    #[arg(long, value_name = "N", help_heading = WORK)]
    pub seed: Option<u64>,

    /// Measured time of each run [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = positive_time, conflicts_with = "requests",
          help_heading = LENGTH)]
    pub runtime: Option<Duration>,
    /// End each run after N requests of each job instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = LENGTH)]
    pub requests: Option<u64>,
    /// Unmeasured time before each run [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LENGTH)]
    pub ramp: Option<Duration>,
    /// Runs of each combination, in turn with the others; the report shows the median [default: 3;
    /// job files: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = LENGTH)]
    pub repeat: Option<u32>,

    /// Size of the scratch file, or the part used of each FILE [default: 1g, at most a tenth of the
    /// free space]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = TARGET)]
    pub size: Option<u64>,
    /// Folder of the scratch file [default: the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "files", help_heading = TARGET)]
    pub scratch: Option<PathBuf>,
    /// Allow workloads that write to overwrite FILEs that existed before. Workloads that only read
    /// write nothing even then
    #[arg(long, help_heading = TARGET)]
    pub overwrite: bool,
    /// Fill the used part of the FILEs with the pattern of --verify before measuring (with
    /// --overwrite if they existed before)
    #[arg(long, help_heading = TARGET)]
    pub fill: bool,
    /// Page cache before a buffered run [default: warm; job files: cold]
    #[arg(long, value_name = "STATE", help_heading = TARGET)]
    pub cache: Option<Cache>,
    /// Check every byte. Writes write a pattern, which is read back. Reads expect the pattern of an
    /// earlier run or of --fill; in a file without it, the bytes that a plain read returns
    #[arg(long, help_heading = TARGET)]
    pub verify: bool,

    /// Show what would run, and how job files differ from fio, without measuring
    #[arg(long, help_heading = OUTPUT)]
    pub dry_run: bool,
    /// Write JSON with fio's names; `-` for standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write CSV; `-` for standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub csv: Option<PathBuf>,
    /// Write an HTML page with charts, in one file
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub html: Option<PathBuf>,
    /// Show no progress and no remarks
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
}

const MATRIX: &str = "What to compare (lists, separated by commas)";
const WORK: &str = "Requests";
const LENGTH: &str = "Length of a run";
const TARGET: &str = "Files";
const OUTPUT: &str = "Output";

impl BenchArgs {
    /// Whether no option says what to compare.
    pub fn is_default_matrix(&self) -> bool {
        self.job_options()
            .iter()
            .all(|option| ["--runtime", "--ramp", "--size", "--seed"].contains(option))
    }

    /// The options that a job file has keys for, as far as they were given.
    pub fn job_options(&self) -> Vec<&'static str> {
        let options = [
            ("--backend", !self.backend.is_empty()),
            ("--rw", !self.rw.is_empty()),
            ("--bs", !self.bs.is_empty()),
            ("--depth", !self.depth.is_empty()),
            ("--jobs", !self.jobs.is_empty()),
            ("--direct", !self.direct.is_empty()),
            ("--sqpoll", !self.sqpoll.is_empty()),
            ("--iopoll", !self.iopoll.is_empty()),
            ("--passthrough", !self.passthrough.is_empty()),
            ("--fixed-buffers", !self.fixed_buffers.is_empty()),
            ("--fixed-files", !self.fixed_files.is_empty()),
            ("--batch", self.batch.is_some()),
            ("--read-percent", self.read_percent.is_some()),
            ("--fsync", self.fsync.is_some()),
            ("--fdatasync", self.fdatasync.is_some()),
            ("--rate", self.rate.is_some()),
            ("--requests", self.requests.is_some()),
            ("--runtime", self.runtime.is_some()),
            ("--ramp", self.ramp.is_some()),
            ("--size", self.size.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        options.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// The options that mean 1 without a value.
const SWITCHES: [&str; 5] =
    ["--sqpoll", "--iopoll", "--passthrough", "--fixed-buffers", "--fixed-files"];

/// Joins a switch with the list that follows it: `--sqpoll 0,1 FILE` becomes `--sqpoll=0,1 FILE`,
/// and `--sqpoll FILE` becomes `--sqpoll=1 FILE`. clap cannot tell a list from a file name.
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
            // (Also a wrong one: as a file, with --size, it would be made.)
            let is_list = |next: &OsString| {
                let mut bytes = next.as_encoded_bytes().iter();
                !next.is_empty() && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b','))
            };
            arg.push("=");
            arg.push(args.next_if(is_list).unwrap_or_else(|| "1".into()));
        }
        joined.push(arg);
    }
    joined
}

fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0, 1 or 0,1"),
    }
}

/// Of a switch without a value, which a file may follow.
fn switch_or_file(text: &str) -> Result<bool, String> {
    switch(text).map_err(|accepted| format!("{accepted} (a file of this name: ./{text})"))
}

fn size(text: &str) -> Result<u64, &'static str> {
    let size = parse_size(text).filter(|size| (1..=MAX_FILE).contains(size));
    size.ok_or("give a size such as 4096, 4k or 1g")
}

fn block_size(text: &str) -> Result<u64, &'static str> {
    let size = size(text)?;
    if size <= MAX_REQUEST { Ok(size) } else { Err("give at most 2147479552, the kernel's limit") }
}

fn time(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text, "s").ok_or("give a time such as 5s, 200ms or 1.5m")
}

fn positive_time(text: &str) -> Result<Duration, &'static str> {
    match time(text)? {
        Duration::ZERO => Err("give a time longer than 0"),
        time => Ok(time),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    /// The options of a command line.
    pub fn parse(line: &str) -> Result<BenchArgs, String> {
        let args = std::iter::once("bench").chain(line.split_whitespace()).map(OsString::from);
        Cli::try_parse_from(join_switches(args))
            .map(|cli| cli.bench)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_examples_in_the_help_are_valid() {
        let lines: Vec<&str> =
            EXAMPLES.lines().filter_map(|line| line.strip_prefix("  ringway bench")).collect();
        assert_eq!(lines.len(), 8);
        for line in lines {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn a_switch_may_have_a_list() {
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
    fn sizes_and_times_have_units_and_backends_the_names_of_fio_too() {
        let args = parse("--bs 512,4k,1M --size 2g --runtime 200ms --ramp 0 --backend libaio,null")
            .unwrap();
        assert_eq!(args.bs, [512, 4096, 1 << 20]);
        assert_eq!(args.size, Some(2 << 30));
        assert_eq!(args.runtime, Some(Duration::from_millis(200)));
        assert_eq!(args.ramp, Some(Duration::ZERO));
        assert_eq!(args.backend, [Backend::Kaio, Backend::Null]);
        assert_eq!(parse("--runtime 1.5m").unwrap().runtime, Some(Duration::from_secs(90)));
        assert_eq!(parse("--rw readwrite").unwrap().rw, [Access::ReadWrite]);
    }

    #[test]
    fn errors_name_what_is_accepted() {
        for (line, expected) in [
            ("--backend aio", "possible values: uring, kaio, threads, psync, auto, null"),
            ("--rw trim", "randread"),
            ("--bs 0", "such as 4096"),
            ("--bs 4x", "such as 4096"),
            ("--bs 3g", "at most 2147479552"),
            ("--runtime 0", "longer than 0"),
            ("--runtime 5x", "such as 5s"),
            ("--direct 2", "0, 1 or 0,1"),
            ("--sqpoll 0,2 --size 1m", "0, 1 or 0,1"),
            ("--iopoll 16397", "a file of this name: ./16397"),
            ("--depth 0", "not in 1..=65536"),
            ("--fsync 1 --fdatasync 1", "cannot be used with"),
            ("--runtime 1s --requests 5", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
