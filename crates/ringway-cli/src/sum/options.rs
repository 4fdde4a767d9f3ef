//! The options of `ringway sum`.

use super::digest::Algorithm;
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
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", default_value = "512k", help_heading = READING)]
    pub block: BlockSize,

    /// Show no progress on the terminal
    #[arg(long, help_heading = SHOWN)]
    pub no_progress: bool,
    /// Report files left out of trees, and files not read with --direct or --dont-cache
    #[arg(long, short, help_heading = SHOWN)]
    pub verbose: bool,
}

const CHECK: &str = "Checking";
const READING: &str = "Reading";
const SHOWN: &str = "Messages";

/// The size of a block. It is a power of two, so a block is a subtree of BLAKE3's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BlockSize {
    /// 64 KiB.
    #[value(name = "64k")]
    K64,
    /// 128 KiB.
    #[value(name = "128k")]
    K128,
    /// 256 KiB.
    #[value(name = "256k")]
    K256,
    /// 512 KiB.
    #[value(name = "512k")]
    K512,
    /// 1 MiB.
    #[value(name = "1m")]
    M1,
    /// 2 MiB.
    #[value(name = "2m")]
    M2,
    /// 4 MiB.
    #[value(name = "4m")]
    M4,
}

impl BlockSize {
    /// In bytes.
    pub fn bytes(self) -> usize {
        (64 << 10) << self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, ValueEnum};

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
    fn a_block_has_the_size_of_its_name() {
        let size = |name| BlockSize::from_str(name, false).unwrap().bytes();
        assert_eq!(
            (size("64k"), size("512k"), size("1m"), size("4m")),
            (64 << 10, 512 << 10, 1 << 20, 4 << 20)
        );
    }

    #[test]
    fn invalid_combinations_are_refused() {
        for line in [
            "--quiet a",
            "--status a",
            "--check --tag a",
            "-rc a",
            "--files 0 a",
            "--block 3k a",
            "--algo md5 a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("-c --quiet --strict -w --ignore-missing -z --algo sha256 a -").is_ok());
    }
}
