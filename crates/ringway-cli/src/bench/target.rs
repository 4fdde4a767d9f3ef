//! The files that a workload works on: found, checked, made and filled before anything is measured.
//!
//! Nothing is written to what was there before unless the user said that it may be lost, and never to a block device in
//! use. Each file is opened once, looked at, and from then on reached through that descriptor (`/proc/self/fd`): what
//! was checked is what is used, whatever happens to its name.

use super::workload::{Target, Workload};
use super::{plan, scratch};
use anyhow::{Context, bail};
use ringway_core::device::{Kind, PathFacts, block_device_in_use};
use ringway_core::refusal::bytes_text;
use ringway_core::{File, OpenOptions};
use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Seed of the pattern that files are filled with.
pub const SEED: u64 = 0x7269_6e67_7761_7921;

/// A file to work on.
#[derive(Debug)]
pub struct Source {
    anchor: fs::File,
    /// Bytes used, from its beginning.
    pub size: u64,
    /// Whether those bytes are the pattern.
    pub is_pattern: bool,
    /// Made here, or given up by the user.
    may_be_lost: bool,
    /// What it is and what is below it.
    pub facts: PathFacts,
}

impl Source {
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

/// The files of one workload, for each job its own list.
pub type Ground = Vec<Vec<Arc<Source>>>;

/// What the user allows, and what was made so far.
pub struct Targets<'a> {
    /// The folder of scratch files.
    pub scratch: PathBuf,
    /// What was there before may be written to.
    pub overwrite: bool,
    /// Told what is about to be written: a text and bytes.
    pub announce: &'a mut dyn FnMut(&str, u64),
    /// Told of bytes written.
    pub progress: &'a mut dyn FnMut(u64),
    /// The files by the path that they were asked for with; a scratch file has none.
    known: Vec<(PathBuf, Arc<Source>)>,
}

/// How a file of the user's is to be used.
#[derive(Clone, Copy, Debug)]
struct Wish {
    writes: bool,
    verify: bool,
    /// Bytes; `None`: all of it.
    size: Option<u64>,
}

impl<'a> Targets<'a> {
    /// Nothing is made yet.
    pub fn new(
        scratch: PathBuf,
        overwrite: bool,
        announce: &'a mut dyn FnMut(&str, u64),
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        Self { scratch, overwrite, announce, progress, known: Vec::new() }
    }

    /// The files of each of these workloads, in their order.
    ///
    /// # Errors
    ///
    /// What is missing, unfit or not allowed; nothing has been written to it then.
    pub fn prepare(&mut self, cells: &[Workload]) -> anyhow::Result<Vec<Ground>> {
        // All are looked at before the first is written to.
        for cell in cells {
            for (path, wish) in named(cell) {
                self.look(&path, wish)?;
            }
        }
        cells.iter().map(|cell| self.ground(cell)).collect()
    }

    /// For a workload that does nothing with its file: one that is never read, as if it had this size.
    ///
    /// # Errors
    ///
    /// Those of opening `/dev/null`.
    pub fn nothing(&mut self, jobs: u32, size: u64) -> anyhow::Result<Ground> {
        let anchor = fs::File::open("/dev/null")?;
        let facts = PathFacts::of_fd(anchor.as_fd())?;
        let source = Source { anchor, size, is_pattern: false, may_be_lost: false, facts };
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
                    self.know(PathBuf::new(), Source { anchor, size, is_pattern: true, may_be_lost: true, facts })
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
            Target::Directory { .. } => sources.into_iter().map(|source| vec![source]).collect(),
            _ => vec![sources; cell.jobs as usize],
        })
    }

    fn know(&mut self, path: PathBuf, source: Source) -> Arc<Source> {
        let source = Arc::new(source);
        self.known.push((path, Arc::clone(&source)));
        source
    }

    /// Whether a file may be used as wished; writes nothing.
    fn look(&self, path: &Path, wish: Wish) -> anyhow::Result<()> {
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
            Kind::Regular => {}
            Kind::Block => {
                if let Some(user) = block_device_in_use(path).with_context(|| name.to_string())? {
                    bail!(
                        "{name} is in use: {user}. Measure on a file on it, or leave it out for a scratch file; \
                         --overwrite does not change this"
                    );
                }
            }
            Kind::Directory => {
                bail!("{name} is a directory; give a file, or make the scratch file there: --scratch {name}")
            }
            kind => bail!("{name} is neither a file nor a block device: {kind}"),
        }
        if self.overwrite {
            return Ok(());
        }
        if wish.writes {
            bail!("{name} would be written to; give --overwrite if what is in it may be lost");
        }
        if facts.kind == Kind::Regular
            && let Some(size) = wish.size
        {
            let has = fs::metadata(path)?.len();
            if has < size {
                bail!(
                    "{name} has {has} bytes, fewer than the {size} asked for; give --overwrite to have it filled up, \
                     or a smaller size"
                );
            }
        }
        Ok(())
    }

    /// Opens a file, or makes it, and fills it where it must be.
    fn source(&mut self, path: &Path, wish: Wish) -> anyhow::Result<Arc<Source>> {
        if let Some((_, source)) = self.known.iter().find(|(known, _)| known == path)
            && wish.size.is_none_or(|size| size == source.size)
        {
            return Ok(Arc::clone(source));
        }
        let name = || path.display().to_string();
        let made_before = self.known.iter().any(|(known, source)| known == path && source.may_be_lost);
        let may_be_lost = self.overwrite || made_before;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(may_be_lost && (wish.writes || wish.verify || wish.size.is_some()));
        if may_be_lost && is_block_device(path) {
            // Without O_CREAT this asks for exclusive use: nobody can mount it meanwhile.
            options.custom_flags(libc::O_EXCL);
        }
        let (mut anchor, is_new) = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && wish.size.is_some() => {
                let made = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path);
                (made.with_context(name)?, true)
            }
            opened => (opened.with_context(name)?, false),
        };
        let may_be_lost = may_be_lost || is_new;
        if wish.writes && !may_be_lost {
            bail!("{} has just been made by somebody else", path.display());
        }
        let facts = PathFacts::of_fd(anchor.as_fd()).with_context(name)?;
        // Of a block device, only seeking tells.
        let has = anchor.seek(SeekFrom::End(0)).with_context(name)?;
        let size = wish.size.unwrap_or(has);
        if size == 0 {
            bail!("{} is empty; give --size and --overwrite to have it filled", path.display());
        }
        let is_device = facts.kind == Kind::Block;
        if is_device && size > has {
            bail!("{} has {has} bytes, fewer than the {size} asked for", path.display());
        }
        let is_pattern = is_new || (wish.verify && may_be_lost);
        let fill_from = match (is_pattern, has < size) {
            (true, _) => Some(0),
            (false, true) => Some(has),
            (false, false) => None,
        };
        if let Some(from) = fill_from {
            if !is_device {
                let free = scratch::free_space(path)? + has;
                if size > free {
                    let (size, free) = (bytes_text(size), bytes_text(free >> 20 << 20));
                    if is_new {
                        // It is empty, and of no use to anybody.
                        let _ = fs::remove_file(path);
                    }
                    bail!("{}: {size} are asked for and {free} are free; nothing was written", path.display());
                }
            }
            (self.announce)(&name(), size - from);
            scratch::lay(&anchor, from, size, SEED, self.progress).with_context(name)?;
        }
        Ok(self.know(path.to_owned(), Source { anchor, size, is_pattern, may_be_lost, facts }))
    }
}

/// The paths that a workload names, and how they are to be used.
fn named(cell: &Workload) -> Vec<(PathBuf, Wish)> {
    let wish = |size| Wish { writes: plan::writes(cell.access), verify: cell.verify, size };
    match &cell.target {
        Target::Scratch { .. } => Vec::new(),
        Target::Files(paths) => paths.iter().map(|path| (path.clone(), wish(None))).collect(),
        Target::SizedFiles { paths, size } => paths.iter().map(|path| (path.clone(), wish(Some(*size)))).collect(),
        Target::Directory { path, size } => {
            (0..cell.jobs).map(|job| (path.join(format!("{}.{job}.0", cell.name)), wish(Some(*size)))).collect()
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & libc::S_IFMT == libc::S_IFBLK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::BenchArgs;
    use crate::bench::pattern;
    use crate::bench::workload::Access;
    use std::os::unix::fs::FileExt;

    fn cell(access: Access, verify: bool, target: Target) -> Workload {
        let args = BenchArgs { rw: vec![access], depth: vec![1], verify, ..BenchArgs::default() };
        plan::plan(&args, &target).cells.remove(0)
    }

    fn prepare(overwrite: bool, cells: &[Workload]) -> anyhow::Result<Vec<Ground>> {
        let (mut announce, mut progress) = (|_: &str, _| (), |_| ());
        Targets::new(std::env::temp_dir(), overwrite, &mut announce, &mut progress).prepare(cells)
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
        for refused in [
            cell(Access::RandWrite, false, files()),
            cell(Access::RandRw, false, sized(4096)),
            cell(Access::Read, false, sized(16_384)),
        ] {
            let error = prepare(false, std::slice::from_ref(&refused)).unwrap_err();
            assert!(error.to_string().contains("--overwrite"), "{error}");
            assert!(untouched());
        }
        // Allowed is not needed: a write workload itself changes it, not what comes before.
        assert!(prepare(true, &[cell(Access::RandWrite, false, files())]).is_ok());
        assert!(untouched());
        prepare(true, &[cell(Access::Read, false, sized(16_384))]).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!((content.len(), &content[..8192]), (16_384, &[7; 8192][..]));
        prepare(true, &[cell(Access::Read, true, files())]).unwrap();
        assert_eq!(pattern::check(SEED, 0, &fs::read(&path).unwrap()).1, 0);
    }

    #[test]
    fn one_refusal_keeps_everything_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [7; 8192]).unwrap();
        let make = cell(Access::Write, false, Target::SizedFiles { paths: vec![new.clone()], size: 4096 });
        let refused = cell(Access::Write, false, Target::Files(vec![old]));
        assert!(prepare(false, &[make.clone(), refused]).is_err());
        assert!(!new.exists());
        prepare(false, &[make]).unwrap();
        assert_eq!(fs::metadata(new).unwrap().len(), 4096);
    }

    #[test]
    fn a_folder_gets_a_file_for_each_job_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let target = Target::Directory { path: path.clone(), size: 8192 };
        let mut writing = cell(Access::Write, false, target);
        writing.name = "job".to_owned();
        writing.jobs = 2;
        let ground = prepare(false, std::slice::from_ref(&writing)).unwrap();
        assert_eq!(ground[0].len(), 2);
        assert!(ground[0].iter().all(|files| files.len() == 1 && files[0].size == 8192 && files[0].is_pattern));
        let reading = Workload { access: Access::Read, ..writing.clone() };
        let ground = prepare(false, &[reading]).unwrap();
        assert!(!ground.iter().flatten().flatten().any(|source| source.is_pattern));
        assert!(prepare(false, &[writing]).is_err(), "they were there before");
        assert!(path.join("job.0.0").exists() && path.join("job.1.0").exists());
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
    fn what_is_no_file_is_refused_with_advice() {
        for (path, told) in [("/dev/null", "neither a file nor"), ("/tmp", "--scratch"), ("/no/such/file", "--size")] {
            let error = prepare(true, &[cell(Access::Read, false, Target::Files(vec![path.into()]))]).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
