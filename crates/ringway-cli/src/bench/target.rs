//! The files of a workload: checked, created and filled before anything is measured.
//!
//! A file that existed before is written to only with --overwrite, and only if the workload writes
//! or --fill is given; a block device in use never. Each file is opened once, checked, and then
//! reopened through that descriptor (`/proc/self/fd`): the file that was checked is the file that
//! is used, even if its name changes.

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
    ///
    /// # Errors
    ///
    /// Those of reading it.
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
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; EINVAL where direct I/O is not supported.
    pub fn open(&self, direct: bool, write: bool) -> io::Result<File> {
        OpenOptions::new().read(true).write(write).direct(direct).open(self.path())
    }

    /// Opens the NVMe generic device of the disk that the file is.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; `Unsupported` if the file is no NVMe disk.
    pub fn open_generic(&self, write: bool) -> io::Result<File> {
        let path = self.generic().ok_or(io::ErrorKind::Unsupported)?;
        OpenOptions::new().read(true).write(write).open(path)
    }

    /// The path of the NVMe generic device of the disk that the file is: `/dev/ng0n1` for
    /// `/dev/nvme0n1`. `None` for other files, partitions and kernels without such devices (before
    /// 5.13).
    pub fn generic(&self) -> Option<PathBuf> {
        let device =
            self.facts.device.as_ref().filter(|_| self.facts.kind == StorageKind::Block)?;
        let number = device.name.strip_prefix("nvme").filter(|number| !number.contains('p'))?;
        Some(Path::new("/dev").join(format!("ng{number}"))).filter(|path| path.exists())
    }

    /// Reopens the file for blocking calls.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_plain(&self, direct: bool, write: bool) -> io::Result<fs::File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        fs::OpenOptions::new().read(true).write(write).custom_flags(flags).open(self.path())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.anchor.as_raw_fd()))
    }
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

/// How a workload uses a file of the user.
#[derive(Clone, Copy, Debug)]
struct Use<'a> {
    workload: &'a Workload,
    /// Bytes from the start of the used part; `None`: to the end of the file.
    size: Option<u64>,
}

impl Use<'_> {
    /// The size that a file of `found` bytes must have; `None`: any.
    fn size_of(&self, found: u64) -> anyhow::Result<Option<u64>> {
        let start = self.workload.start.of(found, self.workload.block_size);
        let Some(size) = self.size else { return Ok(None) };
        let end = start.checked_add(size).filter(|end| i64::try_from(*end).is_ok());
        end.map(Some).context("offset and size exceed the size limit of files")
    }
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
        let uses: Vec<_> = workloads.iter().flat_map(uses).collect();
        for (path, of) in &uses {
            let writes =
                |(other, of): &(PathBuf, Use)| other == path && of.workload.access.writes();
            self.check(path, *of, self.fill || uses.iter().any(writes))?;
        }
        workloads.iter().map(|workload| self.job_files(workload)).collect()
    }

    /// The files of a workload that does no I/O, as if they had this size.
    ///
    /// # Errors
    ///
    /// Those of opening `/dev/null`.
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
        for (path, of) in uses(workload) {
            sources.push(self.source(&path, of)?);
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
    fn check(&self, path: &Path, of: Use<'_>, writes: bool) -> anyhow::Result<()> {
        let name = path.display();
        let facts = match PathFacts::of_path(path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match of.size {
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
            if let Some(size) = of.size_of(has)?.filter(|size| has < *size) {
                bail!(too_short(path, has, size));
            }
        }
        Ok(())
    }

    /// Opens or creates a file, and fills it where necessary.
    fn source(&mut self, path: &Path, of: Use<'_>) -> anyhow::Result<Arc<Source>> {
        let name = || path.display().to_string();
        let known = self
            .known
            .iter()
            .rfind(|(known, _)| known == path)
            .map(|(_, source)| Arc::clone(source));
        let access = of.workload.access;
        let writes = access.writes();
        let reads_back = of.workload.verify && access.is_mixed();
        if let Some(source) = &known
            && of
                .size_of(source.found)?
                .map_or(source.size >= source.found, |size| size == source.size)
            && (source.is_pattern(of.workload) || !(reads_back || self.fill))
        {
            return Ok(Arc::clone(source));
        }
        let may_be_lost = self.overwrite || known.as_ref().is_some_and(|source| source.may_be_lost);
        // Filling loses the contents of the file; extending only makes it longer.
        let fill = self.fill || reads_back;
        let extend = fill || writes || known.as_ref().is_some_and(|source| source.may_be_lost);
        let lay_out = fill || of.workload.lay_out || access.reads();
        let takes_space = lay_out || of.workload.preallocate;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(may_be_lost && extend);
        if may_be_lost && known.is_none() && is_block_device(path) {
            // Without O_CREAT this requests exclusive use: the device cannot be mounted meanwhile.
            options.custom_flags(libc::O_EXCL);
        }
        // A known file is reopened, even if its name now belongs to another file.
        let opened =
            options.open(known.as_ref().map_or_else(|| path.to_owned(), |source| source.path()));
        let (mut anchor, is_new) = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && of.size.is_some() => {
                let size = of.size_of(0)?.unwrap_or(0);
                if takes_space {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    check_space(
                        path,
                        size,
                        scratch::free_space(folder.unwrap_or(Path::new(".")))?,
                    )?;
                }
                let created =
                    fs::OpenOptions::new().read(true).write(true).create_new(true).open(path);
                (created.with_context(name)?, true)
            }
            opened => (opened.with_context(name)?, false),
        };
        if (writes || self.fill) && !may_be_lost && !is_new {
            bail!("{} was created by another process meanwhile", path.display());
        }
        let facts = PathFacts::of_fd(anchor.as_fd()).with_context(name)?;
        // The metadata of a block device do not have its size.
        let has = anchor.seek(SeekFrom::End(0)).with_context(name)?;
        let found = known.as_ref().map_or(has, |source| source.found);
        let size = of.size_of(found)?.unwrap_or(has);
        if size == 0 {
            bail!(
                "{} is empty; give --size and --overwrite, and --fill for workloads that only read",
                path.display()
            );
        }
        let is_device = facts.kind == StorageKind::Block;
        if is_device && size > has {
            bail!("{} has {has} bytes, fewer than the {size} requested", path.display());
        }
        if has < size && !is_new && !(may_be_lost && extend) {
            bail!(too_short(path, has, size));
        }
        let missing = Region { start: has, len: size.saturating_sub(has) };
        let to_fill = if fill { region(of.workload, found, size) } else { missing };
        if fill || has < size {
            if !is_device && !is_new && takes_space {
                check_space(path, missing.len, scratch::free_space(path)?)?;
            }
            let filled = if lay_out {
                self.progress.file_starts(&name(), to_fill.len);
                let end = to_fill.start + to_fill.len;
                let mut written = |bytes| self.progress.bytes_written(bytes);
                scratch::fill(&anchor, to_fill.start, end, SEED, &mut written)
            } else if takes_space {
                scratch::reserve(&anchor, FallocateFlags::empty(), size)
            } else {
                Ok(())
            };
            if let Err(error) = filled {
                if is_new && is_same(&anchor, path) {
                    // A partially filled file is useless.
                    let _ = fs::remove_file(path);
                }
                return Err(error).with_context(name);
            }
        }
        let pattern = match known {
            _ if fill || lay_out && is_new => to_fill,
            Some(source) => source.pattern,
            None => Region::default(),
        };
        let may_be_lost = may_be_lost || is_new;
        Ok(self.know(path.to_owned(), Source { anchor, size, found, pattern, may_be_lost, facts }))
    }
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

/// The paths that a workload names, and how it uses them.
fn uses(workload: &Workload) -> Vec<(PathBuf, Use<'_>)> {
    let of = |size| Use { workload, size };
    match &workload.target {
        Target::Scratch { .. } => Vec::new(),
        Target::Files(paths) => paths.iter().map(|path| (path.clone(), of(None))).collect(),
        Target::SizedFiles { paths, size } => {
            paths.iter().map(|path| (path.clone(), of(Some(*size)))).collect()
        }
        Target::Directory { path, size, files } => {
            let name = |job, file| path.join(format!("{}.{job}.{file}", workload.name));
            let names = (0..workload.jobs).flat_map(|job| (0..*files).map(move |file| (job, file)));
            names.map(|(job, file)| (name(job, file), of(Some(*size)))).collect()
        }
    }
}

/// The paths that a workload names.
pub fn paths(workload: &Workload) -> Vec<PathBuf> {
    uses(workload).into_iter().map(|(path, _)| path).collect()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & libc::S_IFMT == libc::S_IFBLK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Access, Start, Stop};

    fn workload(access: Access, verify: bool, target: Target) -> Workload {
        Workload { access, verify, target, stop: Stop::Whole(None), ..Workload::default() }
    }

    fn prepare_filled(
        overwrite: bool,
        fill: bool,
        workloads: &[Workload],
    ) -> anyhow::Result<Vec<JobFiles>> {
        Targets::new(std::env::temp_dir(), overwrite, fill, &Progress::new(true)).prepare(workloads)
    }

    fn prepare(overwrite: bool, workloads: &[Workload]) -> anyhow::Result<Vec<JobFiles>> {
        prepare_filled(overwrite, false, workloads)
    }

    #[test]
    fn existing_files_are_written_to_only_with_overwrite() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, [7; 8192]).unwrap();
        let untouched = || fs::read(&path).unwrap() == [7; 8192];
        let files = || Target::Files(vec![path.clone()]);
        let sized = |size| Target::SizedFiles { paths: vec![path.clone()], size };

        assert!(prepare(false, &[workload(Access::Read, true, files())]).is_ok());
        for refused in [
            workload(Access::RandWrite, false, files()),
            workload(Access::RandRw, false, sized(4096)),
        ] {
            let error = prepare(false, std::slice::from_ref(&refused)).unwrap_err();
            assert!(error.to_string().contains("--overwrite"), "{error}");
            assert!(untouched());
        }
        let error =
            prepare_filled(false, true, &[workload(Access::Read, false, files())]).unwrap_err();
        assert!(error.to_string().contains("--overwrite") && untouched(), "{error}");
        // Preparing a write workload does not change the contents; only its runs do.
        assert!(prepare(true, &[workload(Access::RandWrite, false, files())]).is_ok());
        assert!(prepare(true, &[workload(Access::RandWrite, true, files())]).is_ok());
        assert!(untouched());
        prepare(true, &[workload(Access::Write, false, sized(16_384))]).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!((content.len(), &content[..8192]), (16_384, &[7; 8192][..]));
    }

    #[test]
    fn workloads_that_only_read_never_write_to_existing_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, [7; 8192]).unwrap();
        let sized = |size| Target::SizedFiles { paths: vec![path.clone()], size };
        for access in [Access::Read, Access::RandRead] {
            for target in [Target::Files(vec![path.clone()]), sized(4096)] {
                for overwrite in [false, true] {
                    let prepared =
                        prepare(overwrite, &[workload(access, true, target.clone())]).unwrap();
                    assert!(
                        !prepared[0][0][0]
                            .holds_pattern(&workload(access, true, target.clone()))
                            .unwrap()
                    );
                }
            }
            for overwrite in [false, true] {
                let error =
                    prepare(overwrite, &[workload(access, false, sized(16_384))]).unwrap_err();
                assert!(error.to_string().contains("--fill"), "{error}");
            }
            assert!(fs::read(&path).unwrap() == [7; 8192]);
        }
    }

    #[test]
    fn filling_writes_the_used_part_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 16_384]).unwrap();
        let target = Target::SizedFiles { paths: vec![path.clone()], size: 4096 };
        let reading =
            Workload { start: Start::Byte(8192), ..workload(Access::Read, true, target.clone()) };
        for (fill, workload) in
            [(true, reading.clone()), (false, Workload { access: Access::ReadWrite, ..reading })]
        {
            fs::write(&path, [7; 16_384]).unwrap();
            let prepared = prepare_filled(true, fill, std::slice::from_ref(&workload)).unwrap();
            assert!(
                prepared[0][0][0].is_pattern(&workload)
                    && prepared[0][0][0].holds_pattern(&workload).unwrap()
            );
            let content = fs::read(&path).unwrap();
            assert_eq!(pattern::check(SEED, 8192, &content[8192..12_288]).1, 0);
            assert!(content[..8192].iter().chain(&content[12_288..]).all(|byte| *byte == 7));
            assert_eq!(content.len(), 16_384);
        }
        // Half of the file.
        fs::write(&path, [7; 16_384]).unwrap();
        let half = Workload {
            percent: 50,
            ..workload(Access::Read, true, Target::Files(vec![path.clone()]))
        };
        prepare_filled(true, true, &[half]).unwrap();
        assert!(fs::read(&path).unwrap()[8192..] == [7; 8192]);
    }

    #[test]
    fn a_percentage_is_rounded_to_whole_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::File::create(&path).unwrap().set_len(1_049_000).unwrap();
        let region = |start, percent| {
            let plain = workload(Access::Read, false, Target::Files(vec![path.clone()]));
            let workload = Workload { start, percent, ..plain };
            let region =
                prepare(false, std::slice::from_ref(&workload)).unwrap()[0][0][0].region(&workload);
            (region.start, region.len / 4096)
        };
        // The values of fio 3.33.
        assert_eq!(region(Start::Percent(25), 100), (266_240, 191));
        assert_eq!(region(Start::Byte(0), 50), (0, 128));
        assert_eq!(region(Start::Percent(30), 50), (315_392, 128));
        assert_eq!(region(Start::Byte(100_001), 100), (100_001, 231));
    }

    #[test]
    fn one_refusal_prevents_all_writes() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [7; 8192]).unwrap();
        let make = workload(
            Access::Write,
            false,
            Target::SizedFiles { paths: vec![new.clone()], size: 4096 },
        );
        let refused = workload(Access::Write, false, Target::Files(vec![old]));
        assert!(prepare(false, &[make.clone(), refused]).is_err());
        assert!(!new.exists());
        prepare(false, &[make]).unwrap();
        assert_eq!(fs::metadata(new).unwrap().len(), 4096);
    }

    #[test]
    fn a_file_that_does_not_fit_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let target = Target::SizedFiles { paths: vec![path.clone()], size: 1 << 62 };
        for access in [Access::Read, Access::Write] {
            let error = prepare(false, &[workload(access, false, target.clone())]).unwrap_err();
            assert!(error.to_string().contains("nothing was written"), "{error}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn files_of_write_workloads_are_allocated_and_not_filled() {
        let folder = tempfile::tempdir().unwrap();
        let target = |name: &str| Target::SizedFiles {
            paths: vec![folder.path().join(name)],
            size: 1 << 20,
        };
        let plain =
            |name, access| Workload { lay_out: false, ..workload(access, false, target(name)) };
        let workloads = [
            plain("allocated", Access::Write),
            Workload { preallocate: false, ..plain("empty", Access::RandWrite) },
            Workload { lay_out: true, ..plain("laid", Access::Write) },
            plain("mixed", Access::ReadWrite),
        ];
        let prepared = prepare(false, &workloads).unwrap();
        let len = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(
            ["allocated", "empty", "laid", "mixed"].map(len),
            [1 << 20, 0, 1 << 20, 1 << 20]
        );
        let written: Vec<bool> = prepared
            .iter()
            .zip(&workloads)
            .map(|(files, workload)| files[0][0].holds_pattern(workload).unwrap())
            .collect();
        assert_eq!(written, [false, false, true, true]);
    }

    #[test]
    fn a_folder_has_files_for_each_job_and_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let target = Target::Directory { path: path.clone(), size: 8192, files: 2 };
        let mut writing = workload(Access::Write, false, target);
        writing.name = "job".to_owned();
        writing.jobs = 2;
        let prepared = prepare(false, std::slice::from_ref(&writing)).unwrap();
        assert_eq!(prepared[0].len(), 2);
        let is_whole = |source: &Arc<Source>| source.size == 8192 && source.is_pattern(&writing);
        assert!(prepared[0].iter().all(|files| files.len() == 2 && files.iter().all(is_whole)));
        let reading = Workload { access: Access::Read, ..writing.clone() };
        let prepared = prepare(false, std::slice::from_ref(&reading)).unwrap();
        assert!(
            prepared
                .iter()
                .flatten()
                .flatten()
                .all(|source| source.holds_pattern(&reading).unwrap())
        );
        assert!(prepare(false, &[writing]).is_err(), "they exist already");
        for name in ["job.0.0", "job.0.1", "job.1.0", "job.1.1"] {
            assert!(path.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn all_workloads_share_one_scratch_file() {
        let target = Target::Scratch { size: 1 << 20 };
        let workloads =
            [workload(Access::Read, true, target.clone()), workload(Access::Write, true, target)];
        let prepared = prepare(false, &workloads).unwrap();
        assert!(Arc::ptr_eq(&prepared[0][0][0], &prepared[1][0][0]));
        let source = &prepared[0][0][0];
        assert!(source.open(source.facts.direct.supported, true).is_ok());
        let mut bytes = [0; 4096];
        source.open_plain(false, false).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(pattern::check(SEED, 4096, &bytes), (8, 0));
    }

    #[test]
    fn a_known_file_is_used_even_if_its_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let target = |size| Target::SizedFiles { paths: vec![path.clone()], size };
        let progress = Progress::new(true);
        let mut targets = Targets::new(std::env::temp_dir(), false, false, &progress);
        targets.prepare(&[workload(Access::Write, false, target(4096))]).unwrap();
        // Our file is removed, and another file takes its name.
        fs::remove_file(&path).unwrap();
        fs::write(&path, [7; 1000]).unwrap();
        let larger = workload(Access::Write, false, target(8192));
        targets.job_files(&larger).unwrap();
        assert!(fs::read(&path).unwrap() == [7; 1000]);
    }

    #[test]
    fn other_kinds_of_files_are_refused_with_a_fix() {
        for (path, expected) in [
            ("/dev/null", "neither a file nor"),
            ("/tmp", "--scratch"),
            ("/no/such/file", "--size"),
        ] {
            let error =
                prepare(true, &[workload(Access::Read, false, Target::Files(vec![path.into()]))])
                    .unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
