//! The files that a workload works on: found, checked, made and filled before anything is measured.
//!
//! Nothing is written to what was there before unless the user said that it may be lost, and the
//! workload writes or the file is to be filled; and never to a block device in use. Each file is
//! opened once, looked at, and from then on reached through that descriptor (`/proc/self/fd`): what
//! was checked is what is used, whatever happens to its name.

use super::offsets::Region;
use super::workload::{Target, Workload};
use super::{pattern, scratch};
use anyhow::{Context, bail};
use ringway_core::device::{PathFacts, StorageKind, block_device_in_use};
use ringway_core::refusal::bytes_text;
use ringway_core::{File, OpenOptions};
use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Seed of the pattern that files are filled with.
pub const SEED: u64 = 0x7269_6e67_7761_7921;

/// A file to work on.
#[derive(Debug)]
pub struct Source {
    anchor: fs::File,
    /// Bytes from its beginning that may be used.
    pub size: u64,
    /// Its size when it was found.
    found: u64,
    /// The part of it that is the pattern.
    pattern: Region,
    /// Made here, or given up by the user.
    may_be_lost: bool,
    /// What it is and what is below it.
    pub facts: PathFacts,
}

impl Source {
    /// The part of it that a workload uses; of a percentage, whole blocks.
    pub fn region(&self, workload: &Workload) -> Region {
        region(workload, self.found, self.size)
    }

    /// Whether the part that a workload uses is the pattern.
    pub fn is_pattern(&self, workload: &Workload) -> bool {
        let region = self.region(workload);
        self.pattern.start <= region.start
            && region.start + region.len <= self.pattern.start + self.pattern.len
    }

    /// Whether the file holds the pattern of an earlier run: true when any of some blocks all over
    /// it is right. Blocks that are wrong there are wrong for a reading run.
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

    /// Opens it anew.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; EINVAL where there is no direct I/O.
    pub fn open(&self, direct: bool, write: bool) -> io::Result<File> {
        OpenOptions::new().read(true).write(write).direct(direct).open(self.path())
    }

    /// Opens it anew for blocking calls.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_plain(&self, direct: bool, write: bool) -> io::Result<fs::File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        fs::OpenOptions::new().read(true).write(write).custom_flags(flags).open(self.path())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.anchor.as_raw_fd()))
    }
}

/// The part that a workload uses of a file that had `found` bytes and of which `size` may be used.
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

/// Blocks that are looked at for the pattern.
const SAMPLES: u64 = 1024;

/// The files of one workload, for each job its own list.
pub type Ground = Vec<Vec<Arc<Source>>>;

/// What the user allows, and what was made so far.
pub struct Targets<'a> {
    /// The folder of scratch files.
    pub scratch: PathBuf,
    /// What was there before may be written to, by what writes.
    pub overwrite: bool,
    /// All files are filled with the pattern.
    pub fill: bool,
    /// Told what is about to be written: a text and bytes.
    pub announce: &'a mut dyn FnMut(&str, u64),
    /// Told of bytes written.
    pub progress: &'a mut dyn FnMut(u64),
    /// The files by the path that they were asked for with; a scratch file has none.
    known: Vec<(PathBuf, Arc<Source>)>,
}

/// How a file of the user's is to be used.
#[derive(Clone, Copy, Debug)]
struct Wish<'a> {
    workload: &'a Workload,
    /// Bytes from where the workload begins in it; `None`: all of it.
    size: Option<u64>,
}

impl Wish<'_> {
    /// Bytes that a file must have which has had `found`.
    fn size_of(&self, found: u64) -> anyhow::Result<Option<u64>> {
        let start = self.workload.start.of(found, self.workload.block_size);
        let Some(size) = self.size else { return Ok(None) };
        let end = start.checked_add(size).filter(|end| i64::try_from(*end).is_ok());
        end.map(Some).context("the offset and the size together are more than a file can have")
    }
}

impl<'a> Targets<'a> {
    /// Nothing is made yet.
    pub fn new(
        scratch: PathBuf,
        overwrite: bool,
        fill: bool,
        announce: &'a mut dyn FnMut(&str, u64),
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        Self { scratch, overwrite, fill, announce, progress, known: Vec::new() }
    }

    /// The files of each of these workloads, in their order.
    ///
    /// # Errors
    ///
    /// What is missing, unfit or not allowed; nothing has been written to it then.
    pub fn prepare(&mut self, cells: &[Workload]) -> anyhow::Result<Vec<Ground>> {
        // All are looked at before the first is written to.
        let wishes: Vec<_> = cells.iter().flat_map(named).collect();
        for (path, wish) in &wishes {
            let writes = self.fill
                || wishes.iter().any(|(other, wish)| other == path && wish.workload.writes());
            self.look(path, *wish, writes)?;
        }
        cells.iter().map(|cell| self.ground(cell)).collect()
    }

    /// For a workload that does nothing with its file: one that is never read, as if it had this
    /// size.
    ///
    /// # Errors
    ///
    /// Those of opening `/dev/null`.
    pub fn nothing(&mut self, jobs: u32, size: u64) -> anyhow::Result<Ground> {
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

    fn ground(&mut self, cell: &Workload) -> anyhow::Result<Ground> {
        if let Target::Scratch { size } = cell.target {
            let source = match self.known.iter().find(|(path, _)| path.as_os_str().is_empty()) {
                Some((_, source)) => Arc::clone(source),
                None => {
                    let folder = self.scratch.clone();
                    (self.announce)(&format!("scratch file in {}", folder.display()), size);
                    let anchor = scratch::make(&folder, size, SEED, self.progress)?;
                    let facts = PathFacts::of_fd(anchor.as_fd())?;
                    let pattern = Region { start: 0, len: size };
                    self.know(
                        PathBuf::new(),
                        Source { anchor, size, found: size, pattern, may_be_lost: true, facts },
                    )
                }
            };
            return Ok(vec![vec![source]; cell.jobs as usize]);
        }
        if let Target::Directory { path, .. } = &cell.target {
            fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        }
        let mut sources = Vec::new();
        for (path, wish) in named(cell) {
            sources.push(self.source(&path, wish)?);
        }
        Ok(match cell.target {
            Target::Directory { files, .. } => {
                sources.chunks(files as usize).map(<[_]>::to_vec).collect()
            }
            _ => vec![sources; cell.jobs as usize],
        })
    }

    fn know(&mut self, path: PathBuf, source: Source) -> Arc<Source> {
        let source = Arc::new(source);
        self.known.push((path, Arc::clone(&source)));
        source
    }

    /// Whether a file may be used as wished; writes nothing. `writes`: something is going to write
    /// to it.
    fn look(&self, path: &Path, wish: Wish<'_>, writes: bool) -> anyhow::Result<()> {
        let name = path.display();
        let facts = match PathFacts::of_path(path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match wish.size {
                Some(_) => return Ok(()),
                None => bail!("{name} does not exist; give --size as well to have it made"),
            },
            Err(error) => return Err(error).with_context(|| name.to_string()),
        };
        match facts.kind {
            StorageKind::Regular => {}
            StorageKind::Block => {
                if let Some(user) = block_device_in_use(path).with_context(|| name.to_string())? {
                    bail!(
                        "{name} is in use: {user}. Measure on a file on it, or leave it out for a scratch file; \
                         --overwrite does not change this"
                    );
                }
            }
            StorageKind::Directory => {
                bail!(
                    "{name} is a directory; give a file, or make the scratch file there: --scratch {name}"
                )
            }
            kind => bail!("{name} is neither a file nor a block device: {kind}"),
        }
        if writes && !self.overwrite {
            bail!("{name} would be written to; give --overwrite if what is in it may be lost");
        }
        if facts.kind == StorageKind::Regular && !writes {
            let has = fs::metadata(path)?.len();
            if let Some(size) = wish.size_of(has)?.filter(|size| has < *size) {
                bail!(too_short(path, has, size));
            }
        }
        Ok(())
    }

    /// Opens a file, or makes it, and fills it where it must be.
    fn source(&mut self, path: &Path, wish: Wish<'_>) -> anyhow::Result<Arc<Source>> {
        let name = || path.display().to_string();
        let known = self
            .known
            .iter()
            .rfind(|(known, _)| known == path)
            .map(|(_, source)| Arc::clone(source));
        let writes = wish.workload.writes();
        let reads_back = wish.workload.verify && writes && wish.workload.reads();
        if let Some(source) = &known
            && wish
                .size_of(source.found)?
                .map_or(source.size >= source.found, |size| size == source.size)
            && (source.is_pattern(wish.workload) || !(reads_back || self.fill))
        {
            return Ok(Arc::clone(source));
        }
        let may_be_lost = self.overwrite || known.as_ref().is_some_and(|source| source.may_be_lost);
        // What the file has is lost with the first of these; with the second nothing is, but the
        // file becomes longer.
        let fill = self.fill || reads_back;
        let extend = fill || writes || known.as_ref().is_some_and(|source| source.may_be_lost);
        let lay_out = fill || wish.workload.lay_out || wish.workload.reads();
        let takes_space = lay_out || wish.workload.preallocate;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(may_be_lost && extend);
        if may_be_lost && known.is_none() && is_block_device(path) {
            // Without O_CREAT this asks for exclusive use: nobody can mount it meanwhile.
            options.custom_flags(libc::O_EXCL);
        }
        // One that is known is used, whatever its name means by now.
        let opened =
            options.open(known.as_ref().map_or_else(|| path.to_owned(), |source| source.path()));
        let (mut anchor, is_new) = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && wish.size.is_some() => {
                let size = wish.size_of(0)?.unwrap_or(0);
                if takes_space {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    has_room(path, size, scratch::free_space(folder.unwrap_or(Path::new(".")))?)?;
                }
                let made =
                    fs::OpenOptions::new().read(true).write(true).create_new(true).open(path);
                (made.with_context(name)?, true)
            }
            opened => (opened.with_context(name)?, false),
        };
        if (writes || self.fill) && !may_be_lost && !is_new {
            bail!("{} has just been made by somebody else", path.display());
        }
        let facts = PathFacts::of_fd(anchor.as_fd()).with_context(name)?;
        // Of a block device, only seeking tells.
        let has = anchor.seek(SeekFrom::End(0)).with_context(name)?;
        let found = known.as_ref().map_or(has, |source| source.found);
        let size = wish.size_of(found)?.unwrap_or(has);
        if size == 0 {
            bail!(
                "{} is empty; give --size and --overwrite, and --fill for what only reads",
                path.display()
            );
        }
        let is_device = facts.kind == StorageKind::Block;
        if is_device && size > has {
            bail!("{} has {has} bytes, fewer than the {size} asked for", path.display());
        }
        if has < size && !is_new && !(may_be_lost && extend) {
            bail!(too_short(path, has, size));
        }
        let missing = Region { start: has, len: size.saturating_sub(has) };
        let to_lay = if fill { region(wish.workload, found, size) } else { missing };
        if fill || has < size {
            if !is_device && !is_new && takes_space {
                has_room(path, missing.len, scratch::free_space(path)?)?;
            }
            let laid = if lay_out {
                (self.announce)(&name(), to_lay.len);
                scratch::lay(&anchor, to_lay.start, to_lay.start + to_lay.len, SEED, self.progress)
            } else if takes_space {
                scratch::reserve(&anchor, 0, size)
            } else {
                Ok(())
            };
            if let Err(error) = laid {
                if is_new && is_same(&anchor, path) {
                    // Half of it is of no use to anybody.
                    let _ = fs::remove_file(path);
                }
                return Err(error).with_context(name);
            }
        }
        let pattern = match known {
            _ if fill || lay_out && is_new => to_lay,
            Some(source) => source.pattern,
            None => Region::default(),
        };
        let may_be_lost = may_be_lost || is_new;
        Ok(self.know(path.to_owned(), Source { anchor, size, found, pattern, may_be_lost, facts }))
    }
}

fn too_short(path: &Path, has: u64, size: u64) -> String {
    format!(
        "{} has {has} bytes, fewer than the {size} asked for; give --fill and --overwrite to have it filled, or a smaller \
         size",
        path.display()
    )
}

/// Fails where `more` bytes do not fit.
fn has_room(path: &Path, more: u64, free: u64) -> anyhow::Result<()> {
    if more > free {
        let (more, free) = (bytes_text(more), bytes_text(free >> 20 << 20));
        bail!("{}: {more} are asked for and {free} are free; nothing was written", path.display());
    }
    Ok(())
}

/// Whether the name still is that of the open file.
fn is_same(file: &fs::File, path: &Path) -> bool {
    let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => id(&open) == id(&named),
        _ => false,
    }
}

/// The paths that a workload names, and how they are to be used.
fn named(workload: &Workload) -> Vec<(PathBuf, Wish<'_>)> {
    let wish = |size| Wish { workload, size };
    match &workload.target {
        Target::Scratch { .. } => Vec::new(),
        Target::Files(paths) => paths.iter().map(|path| (path.clone(), wish(None))).collect(),
        Target::SizedFiles { paths, size } => {
            paths.iter().map(|path| (path.clone(), wish(Some(*size)))).collect()
        }
        Target::Directory { path, size, files } => {
            let name = |job, file| path.join(format!("{}.{job}.{file}", workload.name));
            let names = (0..workload.jobs).flat_map(|job| (0..*files).map(move |file| (job, file)));
            names.map(|(job, file)| (name(job, file), wish(Some(*size)))).collect()
        }
    }
}

/// The paths that a workload names.
pub fn paths(workload: &Workload) -> Vec<PathBuf> {
    named(workload).into_iter().map(|(path, _)| path).collect()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & libc::S_IFMT == libc::S_IFBLK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Access, Start, Stop};

    fn cell(access: Access, verify: bool, target: Target) -> Workload {
        Workload { access, verify, target, stop: Stop::Whole(None), ..Workload::default() }
    }

    fn prepare_filled(
        overwrite: bool,
        fill: bool,
        cells: &[Workload],
    ) -> anyhow::Result<Vec<Ground>> {
        let (mut announce, mut progress) = (|_: &str, _| (), |_| ());
        Targets::new(std::env::temp_dir(), overwrite, fill, &mut announce, &mut progress)
            .prepare(cells)
    }

    fn prepare(overwrite: bool, cells: &[Workload]) -> anyhow::Result<Vec<Ground>> {
        prepare_filled(overwrite, false, cells)
    }

    #[test]
    fn what_was_there_is_written_to_only_when_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, [7; 8192]).unwrap();
        let untouched = || fs::read(&path).unwrap() == [7; 8192];
        let files = || Target::Files(vec![path.clone()]);
        let sized = |size| Target::SizedFiles { paths: vec![path.clone()], size };

        assert!(prepare(false, &[cell(Access::Read, true, files())]).is_ok());
        for refused in
            [cell(Access::RandWrite, false, files()), cell(Access::RandRw, false, sized(4096))]
        {
            let error = prepare(false, std::slice::from_ref(&refused)).unwrap_err();
            assert!(error.to_string().contains("--overwrite"), "{error}");
            assert!(untouched());
        }
        let error = prepare_filled(false, true, &[cell(Access::Read, false, files())]).unwrap_err();
        assert!(error.to_string().contains("--overwrite") && untouched(), "{error}");
        // Allowed is not needed: a write workload itself changes it, not what comes before.
        assert!(prepare(true, &[cell(Access::RandWrite, false, files())]).is_ok());
        assert!(prepare(true, &[cell(Access::RandWrite, true, files())]).is_ok());
        assert!(untouched());
        prepare(true, &[cell(Access::Write, false, sized(16_384))]).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!((content.len(), &content[..8192]), (16_384, &[7; 8192][..]));
    }

    #[test]
    fn what_only_reads_never_writes_to_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, [7; 8192]).unwrap();
        let sized = |size| Target::SizedFiles { paths: vec![path.clone()], size };
        for access in [Access::Read, Access::RandRead] {
            for target in [Target::Files(vec![path.clone()]), sized(4096)] {
                for overwrite in [false, true] {
                    let ground = prepare(overwrite, &[cell(access, true, target.clone())]).unwrap();
                    assert!(
                        !ground[0][0][0]
                            .holds_pattern(&cell(access, true, target.clone()))
                            .unwrap()
                    );
                }
            }
            for overwrite in [false, true] {
                let error = prepare(overwrite, &[cell(access, false, sized(16_384))]).unwrap_err();
                assert!(error.to_string().contains("--fill"), "{error}");
            }
            assert!(fs::read(&path).unwrap() == [7; 8192]);
        }
    }

    #[test]
    fn filling_writes_what_is_used_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 16_384]).unwrap();
        let target = Target::SizedFiles { paths: vec![path.clone()], size: 4096 };
        let reading =
            Workload { start: Start::Byte(8192), ..cell(Access::Read, true, target.clone()) };
        for (fill, workload) in
            [(true, reading.clone()), (false, Workload { access: Access::ReadWrite, ..reading })]
        {
            fs::write(&path, [7; 16_384]).unwrap();
            let ground = prepare_filled(true, fill, std::slice::from_ref(&workload)).unwrap();
            assert!(
                ground[0][0][0].is_pattern(&workload)
                    && ground[0][0][0].holds_pattern(&workload).unwrap()
            );
            let content = fs::read(&path).unwrap();
            assert_eq!(pattern::check(SEED, 8192, &content[8192..12_288]).1, 0);
            assert!(content[..8192].iter().chain(&content[12_288..]).all(|byte| *byte == 7));
            assert_eq!(content.len(), 16_384);
        }
        // The half of it.
        fs::write(&path, [7; 16_384]).unwrap();
        let half =
            Workload { percent: 50, ..cell(Access::Read, true, Target::Files(vec![path.clone()])) };
        prepare_filled(true, true, &[half]).unwrap();
        assert!(fs::read(&path).unwrap()[8192..] == [7; 8192]);
    }

    #[test]
    fn a_percentage_gives_whole_blocks_of_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::File::create(&path).unwrap().set_len(1_049_000).unwrap();
        let region = |start, percent| {
            let plain = cell(Access::Read, false, Target::Files(vec![path.clone()]));
            let workload = Workload { start, percent, ..plain };
            let region =
                prepare(false, std::slice::from_ref(&workload)).unwrap()[0][0][0].region(&workload);
            (region.start, region.len / 4096)
        };
        // As fio 3.33 has them.
        assert_eq!(region(Start::Percent(25), 100), (266_240, 191));
        assert_eq!(region(Start::Byte(0), 50), (0, 128));
        assert_eq!(region(Start::Percent(30), 50), (315_392, 128));
        assert_eq!(region(Start::Byte(100_001), 100), (100_001, 231));
    }

    #[test]
    fn one_refusal_keeps_everything_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [7; 8192]).unwrap();
        let make =
            cell(Access::Write, false, Target::SizedFiles { paths: vec![new.clone()], size: 4096 });
        let refused = cell(Access::Write, false, Target::Files(vec![old]));
        assert!(prepare(false, &[make.clone(), refused]).is_err());
        assert!(!new.exists());
        prepare(false, &[make]).unwrap();
        assert_eq!(fs::metadata(new).unwrap().len(), 4096);
    }

    #[test]
    fn what_cannot_be_made_is_not_left_half_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let target = Target::SizedFiles { paths: vec![path.clone()], size: 1 << 62 };
        for access in [Access::Read, Access::Write] {
            let error = prepare(false, &[cell(access, false, target.clone())]).unwrap_err();
            assert!(error.to_string().contains("nothing was written"), "{error}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_only_writes_is_allocated_and_not_written_before() {
        let folder = tempfile::tempdir().unwrap();
        let target = |name: &str| Target::SizedFiles {
            paths: vec![folder.path().join(name)],
            size: 1 << 20,
        };
        let plain = |name, access| Workload { lay_out: false, ..cell(access, false, target(name)) };
        let cells = [
            plain("allocated", Access::Write),
            Workload { preallocate: false, ..plain("empty", Access::RandWrite) },
            Workload { lay_out: true, ..plain("laid", Access::Write) },
            plain("mixed", Access::ReadWrite),
        ];
        let ground = prepare(false, &cells).unwrap();
        let len = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(
            ["allocated", "empty", "laid", "mixed"].map(len),
            [1 << 20, 0, 1 << 20, 1 << 20]
        );
        let written: Vec<bool> = ground
            .iter()
            .zip(&cells)
            .map(|(ground, cell)| ground[0][0].holds_pattern(cell).unwrap())
            .collect();
        assert_eq!(written, [false, false, true, true]);
    }

    #[test]
    fn a_folder_gets_files_for_each_job_and_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let target = Target::Directory { path: path.clone(), size: 8192, files: 2 };
        let mut writing = cell(Access::Write, false, target);
        writing.name = "job".to_owned();
        writing.jobs = 2;
        let ground = prepare(false, std::slice::from_ref(&writing)).unwrap();
        assert_eq!(ground[0].len(), 2);
        let is_whole = |source: &Arc<Source>| source.size == 8192 && source.is_pattern(&writing);
        assert!(ground[0].iter().all(|files| files.len() == 2 && files.iter().all(is_whole)));
        let reading = Workload { access: Access::Read, ..writing.clone() };
        let ground = prepare(false, std::slice::from_ref(&reading)).unwrap();
        assert!(
            ground.iter().flatten().flatten().all(|source| source.holds_pattern(&reading).unwrap())
        );
        assert!(prepare(false, &[writing]).is_err(), "they were there before");
        for name in ["job.0.0", "job.0.1", "job.1.0", "job.1.1"] {
            assert!(path.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_scratch_file_can_be_opened_in_every_way_and_is_one_for_all() {
        let target = Target::Scratch { size: 1 << 20 };
        let cells = [cell(Access::Read, true, target.clone()), cell(Access::Write, true, target)];
        let ground = prepare(false, &cells).unwrap();
        assert!(Arc::ptr_eq(&ground[0][0][0], &ground[1][0][0]));
        let source = &ground[0][0][0];
        assert!(source.open(source.facts.direct.supported, true).is_ok());
        let mut bytes = [0; 4096];
        source.open_plain(false, false).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(pattern::check(SEED, 4096, &bytes), (8, 0));
    }

    #[test]
    fn a_file_whose_name_is_taken_by_another_is_not_mistaken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let target = |size| Target::SizedFiles { paths: vec![path.clone()], size };
        let (mut announce, mut progress) = (|_: &str, _| (), |_| ());
        let mut targets =
            Targets::new(std::env::temp_dir(), false, false, &mut announce, &mut progress);
        targets.prepare(&[cell(Access::Write, false, target(4096))]).unwrap();
        // Ours is gone, and somebody's precious file has its name.
        fs::remove_file(&path).unwrap();
        fs::write(&path, [7; 1000]).unwrap();
        let larger = cell(Access::Write, false, target(8192));
        targets.ground(&larger).unwrap();
        assert!(fs::read(&path).unwrap() == [7; 1000]);
    }

    #[test]
    fn what_is_no_file_is_refused_with_advice() {
        for (path, told) in [
            ("/dev/null", "neither a file nor"),
            ("/tmp", "--scratch"),
            ("/no/such/file", "--size"),
        ] {
            let error =
                prepare(true, &[cell(Access::Read, false, Target::Files(vec![path.into()]))])
                    .unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
