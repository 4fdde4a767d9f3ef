//! The files of a workload: checked, created and filled before anything is measured.
//!
//! A file that existed before is written to only with --overwrite, and only if the workload writes
//! or --fill is given; a block device in use never. Each file is opened once, checked, and then
//! reopened through that descriptor (`/proc/self/fd`): the file that was checked is the file that
//! is used, even if its name changes.

use super::interrupt::RemovePartial;
use super::progress::Progress;
use super::workload::{Target, Workload};
use anyhow::{Context, bail};
use ringway_core::device::{PathFacts, StorageKind, block_device_in_use};
use ringway_core::refusal::bytes_text;
use ringway_core::{File, OpenOptions};
use ringway_measure::offsets::Region;
use ringway_measure::{pattern, scratch};
use rustix::fs::FallocateFlags;
use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The seed of the pattern that files are filled with.
pub const SEED: u64 = 0x7269_6e67_7761_7921;

/// A file to measure on.
#[derive(Debug)]
pub struct Source {
    /// Keeps the file open, so that it can be reopened.
    anchor: fs::File,
    /// Bytes from its beginning that may be used.
    pub size: u64,
    /// Its size before it was extended.
    found: u64,
    /// The part that has the pattern.
    pattern: Region,
    /// Created here, or released by --overwrite.
    may_be_lost: bool,
    /// Its type, file system and device.
    pub facts: PathFacts,
}

impl Source {
    /// The part that a workload uses.
    pub fn region(&self, workload: &Workload) -> Region {
        region(workload, self.found, self.size)
    }

    /// Whether the part that a workload uses was filled with the pattern here.
    pub fn is_pattern(&self, workload: &Workload) -> bool {
        let region = self.region(workload);
        self.pattern.start <= region.start
            && region.start + region.len <= self.pattern.start + self.pattern.len
    }

    /// Whether the file has the pattern of an earlier run: one of the blocks sampled all over it is
    /// right. In such a file, other blocks count as wrong bytes.
    pub fn holds_pattern(&self, workload: &Workload) -> io::Result<bool> {
        let file = self.open_plain(false, false)?;
        let region = self.region(workload);
        let first = region.start.div_ceil(pattern::BLOCK);
        let blocks = ((region.start + region.len) / pattern::BLOCK).saturating_sub(first);
        let samples = blocks.min(SAMPLES);
        let mut bytes = [0; pattern::BLOCK as usize];
        for sample in 0..samples {
            let block =
                first + (u128::from(blocks) * u128::from(sample) / u128::from(samples)) as u64;
            let offset = block * pattern::BLOCK;
            let got = file.read_at(&mut bytes, offset)?;
            if got == bytes.len() && pattern::check(SEED, offset, &bytes).1 == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reopens the file.
    pub fn open(&self, direct: bool, write: bool) -> io::Result<File> {
        OpenOptions::new().read(true).write(write).direct(direct).open(self.path())
    }

    /// Opens the NVMe generic device of the disk that the file is.
    pub fn open_generic(&self, write: bool) -> io::Result<File> {
        let path = generic(&self.facts).ok_or(io::ErrorKind::Unsupported)?;
        OpenOptions::new().read(true).write(write).open(path)
    }

    /// Reopens the file for blocking calls.
    pub fn open_plain(&self, direct: bool, write: bool) -> io::Result<fs::File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        fs::OpenOptions::new().read(true).write(write).custom_flags(flags).open(self.path())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.anchor.as_raw_fd()))
    }
}

/// The path of the NVMe generic device of the disk that a file is: `/dev/ng0n1` for
/// `/dev/nvme0n1`. `None` for other files, partitions and kernels without such devices (before
/// 5.13).
fn generic(facts: &PathFacts) -> Option<PathBuf> {
    let device = facts.device.as_ref().filter(|_| facts.kind == StorageKind::Block)?;
    let number = device.name.strip_prefix("nvme").filter(|number| !number.contains('p'))?;
    Some(Path::new("/dev").join(format!("ng{number}"))).filter(|path| path.exists())
}

/// Fails if the files of a workload that sends commands are no NVMe disks. No file has been written
/// to then.
fn check_passthrough(workload: &Workload) -> anyhow::Result<()> {
    let facts = |path: PathBuf| PathFacts::of_path(path).ok();
    let files: Vec<Option<PathFacts>> = paths(workload).into_iter().map(facts).collect();
    let has_generic =
        |facts: &Option<PathFacts>| facts.as_ref().is_some_and(|it| generic(it).is_some());
    if !workload.passthrough || (!files.is_empty() && files.iter().all(has_generic)) {
        return Ok(());
    }
    let other = files.into_iter().flatten().find(|facts| generic(facts).is_none());
    let kind = other.map_or(StorageKind::Regular, |facts| facts.kind);
    bail!(
        "--passthrough needs a whole NVMe disk (/dev/nvme0n1) with a generic device \
         (/dev/ng0n1), on kernel 5.19 or newer; this is a {kind}"
    );
}

/// The part that a workload uses of a file that had `found` bytes, of which `size` may be used. A
/// percentage is rounded down to whole blocks.
fn region(workload: &Workload, found: u64, size: u64) -> Region {
    let block_size = workload.block_size;
    let start = workload.start.of(found, block_size).min(size);
    let rest = size - start;
    if workload.percent == 100 {
        return Region { start, len: rest };
    }
    let part = (u128::from(size) * u128::from(workload.percent) / 100) as u64;
    Region { start, len: part.min(rest) / block_size * block_size }
}

/// The number of blocks sampled for the pattern.
const SAMPLES: u64 = 1024;

/// The files of one workload, a list for each job.
pub type JobFiles = Vec<Vec<Arc<Source>>>;

/// The files known so far, and what the user allows.
pub struct Targets<'a> {
    /// The folder of scratch files.
    pub scratch: PathBuf,
    /// Workloads that write may write to files that existed before.
    pub overwrite: bool,
    /// Fill all files with the pattern.
    pub fill: bool,
    /// Shows what is written.
    pub progress: &'a Progress,
    /// The files by their path; that of the scratch file is empty.
    known: Vec<(PathBuf, Arc<Source>)>,
}

/// The size that a file of `found` bytes must have for a workload; `None`: any.
fn wanted_size(workload: &Workload, found: u64) -> anyhow::Result<Option<u64>> {
    let start = workload.start.of(found, workload.block_size);
    let Some(size) = workload.target.size() else { return Ok(None) };
    let end = start.checked_add(size).filter(|end| i64::try_from(*end).is_ok());
    end.map(Some).context("offset and size exceed the size limit of files")
}

impl<'a> Targets<'a> {
    /// No files are known yet.
    pub fn new(scratch: PathBuf, overwrite: bool, fill: bool, progress: &'a Progress) -> Self {
        Self { scratch, overwrite, fill, progress, known: Vec::new() }
    }

    /// The files of each of these workloads, in their order.
    ///
    /// # Errors
    ///
    /// A file that is missing, unsuitable or not allowed. No file has been written to then.
    pub fn prepare(&mut self, workloads: &[Workload]) -> anyhow::Result<Vec<JobFiles>> {
        // All are checked before the first is written to.
        let of_one = |workload| paths(workload).into_iter().map(move |path| (path, workload));
        let uses: Vec<(PathBuf, &Workload)> = workloads.iter().flat_map(of_one).collect();
        for (path, workload) in &uses {
            let writes =
                |(other, user): &(PathBuf, &Workload)| other == path && user.access.writes();
            self.check(path, workload, self.fill || uses.iter().any(writes))?;
        }
        workloads.iter().try_for_each(check_passthrough)?;
        workloads.iter().map(|workload| self.job_files(workload)).collect()
    }

    /// The files of a workload that does no I/O, as if they had this size.
    pub fn nothing(&mut self, jobs: u32, size: u64) -> anyhow::Result<JobFiles> {
        let anchor = fs::File::open("/dev/null")?;
        let facts = PathFacts::of_fd(anchor.as_fd())?;
        let source = Source {
            anchor,
            size,
            found: size,
            pattern: Region::default(),
            may_be_lost: false,
            facts,
        };
        Ok(vec![vec![Arc::new(source)]; jobs as usize])
    }

    fn job_files(&mut self, workload: &Workload) -> anyhow::Result<JobFiles> {
        if let Target::Scratch { size } = workload.target {
            let source = match self.known.iter().find(|(path, _)| path.as_os_str().is_empty()) {
                Some((_, source)) => Arc::clone(source),
                None => {
                    let folder = self.scratch.clone();
                    let what = format!("scratch file in {}", folder.display());
                    self.progress.file_starts(&what, size);
                    let mut written = |bytes| self.progress.bytes_written(bytes);
                    let anchor = scratch::create(&folder, size, SEED, &mut written)?;
                    let facts = PathFacts::of_fd(anchor.as_fd())?;
                    let pattern = Region { start: 0, len: size };
                    self.know(
                        PathBuf::new(),
                        Source { anchor, size, found: size, pattern, may_be_lost: true, facts },
                    )
                }
            };
            return Ok(vec![vec![source]; workload.jobs as usize]);
        }
        if let Target::Directory { path, .. } = &workload.target {
            fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        }
        let mut sources = Vec::new();
        for path in paths(workload) {
            sources.push(self.source(&path, workload)?);
        }
        Ok(match workload.target {
            Target::Directory { files, .. } => {
                sources.chunks(files as usize).map(<[_]>::to_vec).collect()
            }
            _ => vec![sources; workload.jobs as usize],
        })
    }

    fn know(&mut self, path: PathBuf, source: Source) -> Arc<Source> {
        let source = Arc::new(source);
        self.known.push((path, Arc::clone(&source)));
        source
    }

    /// Checks whether a file may be used so; writes nothing. `writes`: a workload or --fill will
    /// write to it.
    fn check(&self, path: &Path, workload: &Workload, writes: bool) -> anyhow::Result<()> {
        let name = path.display();
        let facts = match PathFacts::of_path(path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match workload.target.size() {
                Some(_) => return Ok(()),
                // A device, which nobody creates. (/dev/shm has files.)
                None if path.parent() == Some(Path::new("/dev")) => bail!("{name} does not exist"),
                None => bail!("{name} does not exist; give --size to create it"),
            },
            Err(error) => return Err(error).with_context(|| name.to_string()),
        };
        match facts.kind {
            StorageKind::Regular => {}
            StorageKind::Block => {
                if let Some(user) = block_device_in_use(path).with_context(|| name.to_string())? {
                    bail!(
                        "{name} is in use: {user}; measure on a file on it instead (--overwrite \
                         does not change this)"
                    );
                }
            }
            StorageKind::Directory => {
                bail!("{name} is a directory; give a file, or --scratch {name} for a scratch file")
            }
            kind => bail!("{name} is neither a file nor a block device: {kind}"),
        }
        if writes && !self.overwrite {
            bail!("{name} would be written to; give --overwrite if its contents may be lost");
        }
        if facts.kind == StorageKind::Regular && !writes {
            let has = fs::metadata(path)?.len();
            if let Some(size) = wanted_size(workload, has)?.filter(|size| has < *size) {
                bail!(too_short(path, has, size));
            }
        }
        Ok(())
    }

    /// Opens or creates a file, and fills it where necessary.
    fn source(&mut self, path: &Path, workload: &Workload) -> anyhow::Result<Arc<Source>> {
        let name = || path.display().to_string();
        let known = self.known.iter().rfind(|(known, _)| known == path);
        let known = known.map(|(_, source)| Arc::clone(source));
        let access = workload.access;
        // Filling loses the contents of the file; extending only makes it longer.
        let fill = self.fill || (workload.verify && access.is_mixed());
        if let Some(source) = &known {
            let size = wanted_size(workload, source.found)?;
            let has_size = size.map_or(source.size >= source.found, |size| size == source.size);
            if has_size && (source.is_pattern(workload) || !fill) {
                return Ok(Arc::clone(source));
            }
        }
        let was_made_here = known.as_ref().is_some_and(|source| source.may_be_lost);
        let may_be_lost = self.overwrite || was_made_here;
        let may_write = may_be_lost && (fill || access.writes() || was_made_here);
        let lay_out = fill || workload.lay_out || access.reads();
        let takes_space = lay_out || workload.preallocate;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(may_write);
        if may_be_lost && known.is_none() && is_block_device(path) {
            // Without O_CREAT this requests exclusive use: the device cannot be mounted meanwhile.
            options.custom_flags(libc::O_EXCL);
        }
        // A known file is reopened, even if its name now belongs to another file.
        let from = known.as_ref().map_or_else(|| path.to_owned(), |source| source.path());
        let (mut anchor, is_new) = match options.open(from) {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && workload.target.size().is_some() =>
            {
                (create(path, wanted_size(workload, 0)?.filter(|_| takes_space))?, true)
            }
            opened => (opened.with_context(name)?, false),
        };
        if (access.writes() || self.fill) && !may_be_lost && !is_new {
            bail!("{} was created by another process meanwhile", path.display());
        }
        let facts = PathFacts::of_fd(anchor.as_fd()).with_context(name)?;
        // The metadata of a block device do not have its size.
        let has = anchor.seek(SeekFrom::End(0)).with_context(name)?;
        let found = known.as_ref().map_or(has, |source| source.found);
        let size = wanted_size(workload, found)?.unwrap_or(has);
        let is_device = facts.kind == StorageKind::Block;
        check_size(path, has, size, is_device, is_new || may_write)?;
        let missing = Region { start: has, len: size.saturating_sub(has) };
        let to_fill = if fill { region(workload, found, size) } else { missing };
        if fill || has < size {
            if !is_device && !is_new && takes_space {
                check_space(path, missing.len, scratch::free_space(path)?)?;
            }
            let partial = is_new.then(|| RemovePartial::new(&anchor, path));
            let filled = if lay_out {
                self.fill(&anchor, &name(), to_fill)
            } else if takes_space {
                scratch::reserve(&anchor, FallocateFlags::empty(), size)
            } else {
                Ok(())
            };
            drop(partial);
            if filled.is_err() && is_new && is_same(&anchor, path) {
                // A partially filled file is useless.
                let _ = fs::remove_file(path);
            }
            filled.with_context(name)?;
        }
        let pattern = match known {
            _ if fill || lay_out && is_new => to_fill,
            Some(source) => source.pattern,
            None => Region::default(),
        };
        let may_be_lost = may_be_lost || is_new;
        Ok(self.know(path.to_owned(), Source { anchor, size, found, pattern, may_be_lost, facts }))
    }

    fn fill(&self, file: &fs::File, name: &str, part: Region) -> io::Result<()> {
        self.progress.file_starts(name, part.len);
        let mut written = |bytes| self.progress.bytes_written(bytes);
        scratch::fill(file, part.start, part.start + part.len, SEED, &mut written)
    }
}

/// Creates a file, if this many bytes fit.
fn create(path: &Path, bytes: Option<u64>) -> anyhow::Result<fs::File> {
    if let Some(bytes) = bytes {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        check_space(path, bytes, scratch::free_space(folder.unwrap_or(Path::new(".")))?)?;
    }
    let created = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path);
    created.with_context(|| path.display().to_string())
}

/// Fails where a file of `has` bytes cannot be used with this size.
fn check_size(
    path: &Path,
    has: u64,
    size: u64,
    is_device: bool,
    can_grow: bool,
) -> anyhow::Result<()> {
    let name = path.display();
    if size == 0 {
        bail!(
            "{name} is empty; give --size and --overwrite, and --fill for workloads that only read"
        );
    } else if is_device && size > has {
        bail!("{name} has {has} bytes, fewer than the {size} requested");
    } else if has < size && !can_grow {
        bail!(too_short(path, has, size));
    }
    Ok(())
}

fn too_short(path: &Path, has: u64, size: u64) -> String {
    format!(
        "{} has {has} bytes, fewer than the {size} requested; give --fill and --overwrite to \
         extend it, or a smaller size",
        path.display()
    )
}

/// Fails where `more` bytes do not fit.
fn check_space(path: &Path, more: u64, free: u64) -> anyhow::Result<()> {
    if more > free {
        let (more, free) = (bytes_text(more), bytes_text(free >> 20 << 20));
        bail!("{}: needs {more}, and {free} are free; nothing was written", path.display());
    }
    Ok(())
}

/// Whether the name still belongs to the open file.
fn is_same(file: &fs::File, path: &Path) -> bool {
    let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => id(&open) == id(&named),
        _ => false,
    }
}

/// The paths that a workload names.
pub fn paths(workload: &Workload) -> Vec<PathBuf> {
    match &workload.target {
        Target::Scratch { .. } => Vec::new(),
        Target::Files { paths, .. } => paths.clone(),
        Target::Directory { path, files, .. } => {
            let name = |job, file| path.join(format!("{}.{job}.{file}", workload.name));
            let names = |job| (0..*files).map(move |file| name(job, file));
            (0..workload.jobs).flat_map(names).collect()
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & libc::S_IFMT == libc::S_IFBLK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Access, Amount, Stop};
    use Access::{RandRead, RandRw, RandWrite, Read, ReadWrite, Write};

    /// A folder for files, whose names have no folder in the tests.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Writes a file of sevens.
        fn sevens(&self, name: &str, len: usize) {
            fs::write(self.path(name), vec![7; len]).unwrap();
        }

        fn content(&self, name: &str) -> Vec<u8> {
            fs::read(self.path(name)).unwrap()
        }

        fn has_sevens(&self, name: &str, len: usize) -> bool {
            self.content(name) == vec![7; len]
        }

        /// A workload on a whole file, or on the beginning of one.
        fn workload(&self, access: Access, name: &str, size: Option<u64>) -> Workload {
            on(access, Target::Files { paths: vec![self.path(name)], size })
        }
    }

    fn on(access: Access, target: Target) -> Workload {
        Workload { access, target, stop: Stop::Whole(None), ..Workload::default() }
    }

    fn verified(workload: Workload) -> Workload {
        Workload { verify: true, ..workload }
    }

    /// What is allowed: --overwrite and --fill.
    fn prepare(
        (overwrite, fill): (bool, bool),
        workloads: &[Workload],
    ) -> anyhow::Result<Vec<JobFiles>> {
        Targets::new(std::env::temp_dir(), overwrite, fill, &Progress::new(true)).prepare(workloads)
    }

    const NOTHING: (bool, bool) = (false, false);
    const OVERWRITE: (bool, bool) = (true, false);
    const FILL: (bool, bool) = (false, true);
    const BOTH: (bool, bool) = (true, true);

    #[test]
    fn existing_files_are_only_written_to_where_that_is_allowed() {
        let folder = Folder::new();
        folder.sevens("old", 8192);
        let workload = |access, size| folder.workload(access, "old", size);
        // What is allowed, the workload, and a part of the error.
        for (allowed, workload, refused) in [
            (NOTHING, verified(workload(Read, None)), ""),
            (NOTHING, workload(RandWrite, None), "--overwrite"),
            (NOTHING, workload(RandRw, Some(4096)), "--overwrite"),
            (FILL, workload(Read, None), "--overwrite"),
            // Preparing a write workload does not change the contents; only its runs do.
            (OVERWRITE, workload(RandWrite, None), ""),
            (OVERWRITE, verified(workload(RandWrite, None)), ""),
            // Workloads that only read never write to existing files.
            (NOTHING, verified(workload(RandRead, Some(4096))), ""),
            (OVERWRITE, verified(workload(Read, None)), ""),
            (OVERWRITE, verified(workload(RandRead, Some(4096))), ""),
            (NOTHING, workload(Read, Some(16_384)), "--fill"),
            (OVERWRITE, workload(RandRead, Some(16_384)), "--fill"),
        ] {
            match prepare(allowed, std::slice::from_ref(&workload)) {
                Ok(files) => {
                    assert!(refused.is_empty() && !files[0][0][0].holds_pattern(&workload).unwrap())
                }
                Err(error) => {
                    assert!(!refused.is_empty() && error.to_string().contains(refused), "{error}");
                }
            }
            assert!(folder.has_sevens("old", 8192), "{workload:?}");
        }
        prepare(OVERWRITE, &[workload(Write, Some(16_384))]).unwrap();
        let content = folder.content("old");
        assert_eq!((content.len(), &content[..8192]), (16_384, &[7; 8192][..]));
    }

    #[test]
    fn filling_writes_the_used_part_only() {
        let folder = Folder::new();
        let from_8192 = |access| Workload {
            start: Amount::Bytes(8192),
            ..verified(folder.workload(access, "file", Some(4096)))
        };
        let half = Workload { percent: 50, ..verified(folder.workload(Read, "file", None)) };
        for (allowed, workload, filled) in [
            (BOTH, from_8192(Read), 8192..12_288),
            (OVERWRITE, from_8192(ReadWrite), 8192..12_288),
            (BOTH, half, 0..8192),
        ] {
            folder.sevens("file", 16_384);
            let prepared = prepare(allowed, std::slice::from_ref(&workload)).unwrap();
            let source = &prepared[0][0][0];
            assert!(source.is_pattern(&workload) && source.holds_pattern(&workload).unwrap());
            let content = folder.content("file");
            let checked = pattern::check(SEED, filled.start as u64, &content[filled.clone()]);
            assert_eq!((content.len(), checked.1), (16_384, 0));
            let mut rest = content[..filled.start].iter().chain(&content[filled.end..]);
            assert!(rest.all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_percentage_is_rounded_to_whole_blocks() {
        let folder = Folder::new();
        fs::File::create(folder.path("file")).unwrap().set_len(1_049_000).unwrap();
        // The values of fio 3.33.
        for (start, percent, expected) in [
            (Amount::Percent(25), 100, (266_240, 191)),
            (Amount::Bytes(0), 50, (0, 128)),
            (Amount::Percent(30), 50, (315_392, 128)),
            (Amount::Bytes(100_001), 100, (100_001, 231)),
        ] {
            let workload = Workload { start, percent, ..folder.workload(Read, "file", None) };
            let prepared = prepare(NOTHING, std::slice::from_ref(&workload)).unwrap();
            let region = prepared[0][0][0].region(&workload);
            assert_eq!((region.start, region.len / 4096), expected);
        }
    }

    #[test]
    fn a_refusal_prevents_all_writes() {
        let folder = Folder::new();
        folder.sevens("old", 8192);
        let new = folder.workload(Write, "new", Some(4096));
        let old = folder.workload(Write, "old", None);
        prepare(NOTHING, &[new.clone(), old]).unwrap_err();
        for access in [Read, Write] {
            let error = prepare(NOTHING, &[folder.workload(access, "new", Some(1 << 62))]);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("nothing was written"), "{error}");
        }
        assert!(!folder.path("new").exists());
        prepare(NOTHING, &[new]).unwrap();
        assert_eq!(folder.content("new").len(), 4096);
    }

    #[test]
    fn files_of_write_workloads_are_allocated_and_not_filled() {
        let folder = Folder::new();
        let plain = |name, access| Workload {
            lay_out: false,
            ..folder.workload(access, name, Some(1 << 20))
        };
        // The size after preparing, and whether the file has the pattern.
        for (name, workload, size, is_filled) in [
            ("allocated", plain("allocated", Write), 1 << 20, false),
            ("empty", Workload { preallocate: false, ..plain("empty", RandWrite) }, 0, false),
            ("laid", Workload { lay_out: true, ..plain("laid", Write) }, 1 << 20, true),
            ("mixed", plain("mixed", ReadWrite), 1 << 20, true),
        ] {
            let prepared = prepare(NOTHING, std::slice::from_ref(&workload)).unwrap();
            let has_pattern = prepared[0][0][0].holds_pattern(&workload).unwrap();
            assert_eq!((folder.content(name).len(), has_pattern), (size, is_filled), "{name}");
        }
    }

    #[test]
    fn a_folder_has_files_for_each_job_and_keeps_them() {
        let folder = Folder::new();
        let target = Target::Directory { path: folder.path("new"), size: 8192, files: 2 };
        let writing = Workload { name: "job".to_owned(), jobs: 2, ..on(Write, target) };
        let prepared = prepare(NOTHING, std::slice::from_ref(&writing)).unwrap();
        let is_whole = |source: &Arc<Source>| source.size == 8192 && source.is_pattern(&writing);
        assert_eq!(prepared[0].iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert!(prepared[0].iter().flatten().all(is_whole));
        let reading = Workload { access: Read, ..writing.clone() };
        let prepared = prepare(NOTHING, std::slice::from_ref(&reading)).unwrap();
        let mut files = prepared[0].iter().flatten();
        assert!(files.all(|source| source.holds_pattern(&reading).unwrap()));
        prepare(NOTHING, &[writing]).expect_err("they exist already");
        let names = ["job.0.0", "job.0.1", "job.1.0", "job.1.1"];
        assert!(names.iter().all(|name| folder.path("new").join(name).exists()));
    }

    #[test]
    fn all_workloads_share_one_scratch_file() {
        let target = Target::Scratch { size: 1 << 20 };
        let prepared = prepare(NOTHING, &[Read, Write].map(|access| on(access, target.clone())));
        let prepared = prepared.unwrap();
        let source = &prepared[0][0][0];
        assert!(Arc::ptr_eq(source, &prepared[1][0][0]));
        assert!(source.open(source.facts.direct.supported, true).is_ok());
        let mut bytes = [0; 4096];
        source.open_plain(false, false).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(pattern::check(SEED, 4096, &bytes), (8, 0));
    }

    #[test]
    fn a_known_file_is_used_even_if_its_name_is_taken() {
        let folder = Folder::new();
        let progress = Progress::new(true);
        let mut targets = Targets::new(std::env::temp_dir(), false, false, &progress);
        targets.prepare(&[folder.workload(Write, "file", Some(4096))]).unwrap();
        // Our file is removed, and another file takes its name.
        fs::remove_file(folder.path("file")).unwrap();
        folder.sevens("file", 1000);
        targets.job_files(&folder.workload(Write, "file", Some(8192))).unwrap();
        assert!(folder.has_sevens("file", 1000));
    }

    #[test]
    fn other_kinds_of_files_are_refused_with_a_fix() {
        for (path, expected) in [
            ("/dev/null", "neither a file nor"),
            ("/tmp", "--scratch"),
            ("/no/such/file", "--size"),
        ] {
            let target = Target::Files { paths: vec![path.into()], size: None };
            let error = prepare(OVERWRITE, &[on(Read, target)]);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
