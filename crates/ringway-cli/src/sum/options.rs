//! The options of `ringway sum`.

use super::digest::Algorithm;
use ringway_measure::units::parse_size;
use std::ops::RangeInclusive;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Lines have the format of b3sum and sha256sum (`HASH  name`, after a backslash if
the name is escaped). They are in the order of the arguments; trees are sorted by
name, directory by directory. Symbolic links on the command line are followed. In
trees they are left out, as are FIFOs, sockets and devices; -v names them.

Examples:
  ringway sum *.iso > SUMS
  ringway sum --check SUMS
  ringway sum -r --algo sha256 photos > SHA256SUMS
      For `sha256sum -c SHA256SUMS`
  ringway sum -r --direct /backup
      Leaves the page cache unchanged
  ringway sum -r --dont-cache /srv
      Reads what is cached from the page cache, and leaves no other pages there
  tar c . | ringway sum

Memory for data is at most files × depth × block.

Exit status: 0 on success; 1 if a file could not be read or does not match; 2 for
an error on the command line.";

/// The options of `ringway sum`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SumArgs {
    /// Files, or directories with -r; `-` or none for standard input
    #[arg(value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// Read directories recursively
    #[arg(long, short)]
    pub recursive: bool,
    /// Digest [default: blake3; with --check, that of each line]
    #[arg(long, value_name = "NAME")]
    pub algo: Option<Algorithm>,
    /// Print lines in the BSD format, with the name of the digest
    #[arg(long, conflicts_with = "check")]
    pub tag: bool,
    /// End lines with NUL, without escapes
    #[arg(long, short)]
    pub zero: bool,

    /// Read checksums from the FILEs and check them
    #[arg(long, short, conflicts_with = "recursive", help_heading = CHECK)]
    pub check: bool,
    /// Ignore files that do not exist
    #[arg(long, requires = "check", help_heading = CHECK)]
    pub ignore_missing: bool,
    /// Do not print OK
    #[arg(long, requires = "check", help_heading = CHECK)]
    pub quiet: bool,
    /// Print nothing; only the exit status shows the result
    #[arg(long, requires = "check", help_heading = CHECK)]
    pub status: bool,
    /// Fail if a line is malformed
    #[arg(long, requires = "check", help_heading = CHECK)]
    pub strict: bool,
    /// Report each malformed line
    #[arg(long, short, requires = "check", help_heading = CHECK)]
    pub warn: bool,

    /// Bypass the page cache (O_DIRECT) where the file system supports it
    #[arg(long, help_heading = READING)]
    pub direct: bool,
    /// Leave no pages in the page cache (RWF_DONTCACHE) where kernel and file system support it
    #[arg(long, help_heading = READING)]
    pub dont_cache: bool,
    /// Files read at a time
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=4096), help_heading = READING)]
    pub files: u16,
    /// Blocks in flight, for each file
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = READING)]
    pub depth: u16,
    /// Bytes of a block: a power of two from 64k to 4m
    #[arg(long, value_name = "SIZE", default_value = "512k", value_parser = block_size,
          help_heading = READING)]
    pub block: usize,

    /// Show no progress on the terminal
    #[arg(long, help_heading = SHOWN)]
    pub no_progress: bool,
    /// Report files left out of trees, and files not read with --direct or --dont-cache
    #[arg(long, short, help_heading = SHOWN)]
    pub verbose: bool,
}

/// The sizes of a block.
const BLOCKS: RangeInclusive<u64> = 64 << 10..=4 << 20;

const CHECK: &str = "Checking";
const READING: &str = "Reading";
const SHOWN: &str = "Messages";

/// A power of two, so that a block is a subtree of BLAKE3's tree.
fn block_size(text: &str) -> Result<usize, &'static str> {
    let size = parse_size(text).filter(|size| size.is_power_of_two() && BLOCKS.contains(size));
    let size = size.and_then(|size| usize::try_from(size).ok());
    size.ok_or("give a power of two from 64k to 4m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        sum: SumArgs,
    }

    fn parse(line: &str) -> Result<SumArgs, String> {
        let args = std::iter::once("sum").chain(line.split_whitespace());
        Cli::try_parse_from(args).map(|cli| cli.sum).map_err(|error| error.to_string())
    }

    #[test]
    fn a_block_is_a_power_of_two() {
        let size = |options| parse(options).unwrap().block;
        assert_eq!(
            ["", "--block 64k", "--block 1M", "--block 4m"].map(size),
            [512 << 10, 64 << 10, 1 << 20, 4 << 20]
        );
        for size in ["32k", "96k", "8m", "3k", "0"] {
            let error = parse(&format!("--block {size}")).unwrap_err();
            assert!(error.contains("power of two from 64k to 4m"), "{error}");
        }
    }

    #[test]
    fn invalid_combinations_are_refused() {
        for line in
            ["--quiet a", "--status a", "--check --tag a", "-rc a", "--files 0 a", "--algo md5 a"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("-c --quiet --strict -w --ignore-missing -z --algo sha256 a -").is_ok());
    }
}
