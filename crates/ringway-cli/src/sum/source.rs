//! The inputs: opens and reads files with `ringway::fs`. The type and length of open files come
//! from `fstat(2)`, which does not block, while io_uring would execute it on a worker thread.

use ringway::Block;
use ringway::fs::{self, File, OpenOptions};
use ringway_core::op::Position;
use rustix::fs::{FileType, SeekFrom};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// An input.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// The file with this path.
    Path(PathBuf),
    /// Standard input.
    Stdin,
    /// Standard input, named again: it is empty.
    Spent,
}

impl Input {
    /// Its name on the command line.
    pub(super) fn name(&self) -> &Path {
        match self {
            Input::Path(path) => path,
            Input::Stdin | Input::Spent => Path::new("-"),
        }
    }
}

/// Turns names into inputs. Inputs are read concurrently, so only the first `-` is standard input.
#[derive(Clone, Debug, Default)]
pub(super) struct Inputs {
    stdin_is_spent: bool,
}

impl Inputs {
    /// The input with this name.
    pub(super) fn of(&mut self, name: &Path) -> Input {
        if name.as_os_str() != "-" {
            Input::Path(name.to_owned())
        } else if std::mem::replace(&mut self.stdin_is_spent, true) {
            Input::Spent
        } else {
            Input::Stdin
        }
    }

    /// The inputs of the arguments; standard input without arguments.
    pub(super) fn all(&mut self, names: &[PathBuf]) -> Vec<Input> {
        if names.is_empty() {
            vec![self.of(Path::new("-"))]
        } else {
            names.iter().map(|name| self.of(name)).collect()
        }
    }
}

/// An open input.
pub(super) enum Source {
    /// A file that can be read at any offset, with its length when it was opened.
    File(File, u64),
    /// A stream that can only be read in order.
    Stream(Stream),
}

impl Source {
    /// Opens an input. The second value is the reason why direct I/O is not used although
    /// requested.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; EISDIR.
    pub(super) async fn open(input: &Input, direct: bool) -> io::Result<(Self, Option<io::Error>)> {
        let (file, not_direct) = match input {
            Input::Spent => return Ok((Source::Stream(Stream(None)), None)),
            Input::Stdin => {
                (File::from_std(io::stdin().as_fd().try_clone_to_owned()?.into())?, None)
            }
            Input::Path(path) => open(path, direct).await?,
        };
        let stat = rustix::fs::fstat(&file)?;
        let source = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            // Standard input is read from its current position.
            _ if matches!(input, Input::Stdin) => Source::Stream(Stream(Some(file))),
            FileType::RegularFile => Source::File(file, stat.st_size as u64),
            // Its metadata do not contain its length. All reads have explicit offsets, so moving
            // the current position has no effect.
            FileType::BlockDevice => {
                let len = rustix::fs::seek(&file, SeekFrom::End(0))?;
                Source::File(file, len)
            }
            _ => Source::Stream(Stream(Some(file))),
        };
        Ok((source, not_direct))
    }

    /// The same, read without leaving pages in the page cache.
    pub(super) fn with_dont_cache(self, yes: bool) -> Self {
        let with = |file: File| file.with_dont_cache(yes);
        match self {
            Self::File(file, len) => Self::File(with(file), len),
            Self::Stream(Stream(file)) => Self::Stream(Stream(file.map(with))),
        }
    }

    /// The open file; none for standard input that is spent.
    pub(super) fn file(&self) -> Option<&File> {
        match self {
            Self::File(file, _) => Some(file),
            Self::Stream(Stream(file)) => file.as_ref(),
        }
    }
}

async fn open(path: &Path, direct: bool) -> io::Result<(File, Option<io::Error>)> {
    // The type is checked first: opening and closing a FIFO would disturb its writer.
    if !direct || !has_direct_io(fs::metadata(path).await?.mode()) {
        return Ok((File::open(path).await?, None));
    }
    match OpenOptions::new().read(true).direct(true).open(path).await {
        Ok(file) if file.alignment().supported => Ok((file, None)),
        Ok(_) => Ok((File::open(path).await?, Some(io::ErrorKind::Unsupported.into()))),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            let why = io::Error::new(error.kind(), "the file system has no direct I/O");
            Ok((File::open(path).await?, Some(why)))
        }
        Err(error) => Err(error),
    }
}

fn has_direct_io(mode: u32) -> bool {
    matches!(FileType::from_raw_mode(mode), FileType::RegularFile | FileType::BlockDevice)
}

/// Whether a file has this length.
pub(super) fn is_of_len(file: &File, len: u64) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_size as u64 == len)
}

/// Whether this is a regular file.
pub(super) async fn is_file(path: &Path) -> bool {
    let mode = fs::metadata(path).await.map(|metadata| metadata.mode());
    mode.is_ok_and(|mode| FileType::from_raw_mode(mode) == FileType::RegularFile)
}

/// The length of a file according to its metadata.
pub(super) async fn len(path: &Path) -> u64 {
    fs::metadata(path).await.map_or(0, |metadata| metadata.len())
}

/// A stream with one reader.
pub(super) struct Stream(Option<File>);

impl Stream {
    /// The next `len` bytes: fewer at the end, and none after it.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    pub(super) async fn fill(&mut self, len: usize) -> io::Result<Block> {
        let Some(file) = &self.0 else { return Ok(Block::default()) };
        let mut filled = Vec::with_capacity(len);
        // A pipe returns what it has, which may be less.
        while filled.len() < len {
            let (read, piece) = file.read_at(vec![0; len - filled.len()], Position::Current).await;
            match read? {
                0 => break,
                read if filled.is_empty() && read == len => return Ok(piece.into()),
                read => filled.extend_from_slice(&piece[..read]),
            }
        }
        Ok(filled.into())
    }
}

impl From<Source> for Stream {
    fn from(source: Source) -> Self {
        match source {
            Source::File(file, _) => Stream(Some(file)),
            Source::Stream(stream) => stream,
        }
    }
}
