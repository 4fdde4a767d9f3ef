//! A new file that takes its final name last. The replacement of a file, of which this is a part,
//! is in `atomic.rs`.

#[cfg(unix)]
use super::unix as names;
#[cfg(all(target_os = "linux", not(ringway_portable)))]
use super::unnamed;
#[cfg(windows)]
use super::windows as names;
use names::Directory;
use ringway_core::{File as CoreFile, OwnerProcess, run_in_background};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// A new file without its final name. Dropping it removes it.
#[derive(Debug)]
pub(in crate::fs) struct NewFile {
    dir: Directory,
    pub(super) file: CoreFile,
    /// A forked child's copy removes nothing.
    owner: OwnerProcess,
    /// The temporary name, if the file needs one.
    name: Option<OsString>,
    /// It has its final name.
    is_named: bool,
}

/// Bytes whose blocks a file system frees in a fraction of a millisecond.
#[cfg(target_os = "linux")]
const SLOW_TO_FREE: u64 = 1 << 20;
/// The most bytes of the final name in a temporary name.
const MAX_PREFIX: usize = 200;
/// The most names to try. One is enough unless someone guesses 64 random bits.
const MAX_TRIES: usize = 16;

impl NewFile {
    pub(super) fn create(dir: Directory, prefix: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        #[cfg(all(target_os = "linux", not(ringway_portable)))]
        if let Some(new) = Self::unnamed(dir.clone(), mode)? {
            return Ok(new);
        }
        Self::named(dir, prefix, mode)
    }

    /// Creates a file without a name, if the file system supports it. If it fails, `named` is tried
    /// and reports the error.
    #[cfg(all(target_os = "linux", not(ringway_portable)))]
    pub(in crate::fs) fn unnamed(dir: Directory, mode: Option<u32>) -> io::Result<Option<Self>> {
        let Some(file) = unnamed::create(&dir, mode) else { return Ok(None) };
        Self::of(dir, file, None).with_mode(mode).map(Some)
    }

    /// Creates a file with a temporary name.
    pub(in crate::fs) fn named(
        dir: Directory,
        prefix: &OsStr,
        mode: Option<u32>,
    ) -> io::Result<Self> {
        let (name, file) = with_random_name(prefix, |name| names::create(&dir, name, mode))?;
        Self::of(dir, file, Some(name)).with_mode(mode)
    }

    fn of(dir: Directory, file: CoreFile, name: Option<OsString>) -> Self {
        Self { dir, file, owner: OwnerProcess::current(), name, is_named: false }
    }

    fn with_mode(self, mode: Option<u32>) -> io::Result<Self> {
        self.file.close_in_background();
        // The umask may have removed permissions.
        let set = if mode.is_some() { names::set_permissions(&self.file, mode) } else { Ok(()) };
        if let Err(error) = set {
            self.remove();
            return Err(error);
        }
        Ok(self)
    }

    /// Gives the file its final name, replacing whatever has that name. After an error it is
    /// removed. Blocks.
    pub(in crate::fs) fn take_name(mut self, name: &OsStr) -> io::Result<()> {
        if let Err(error) = self.name_as(name) {
            self.remove();
            return Err(error);
        }
        (self.name, self.is_named) = (None, true);
        Ok(())
    }

    /// Removes the file. Blocks: after an error, so that nothing is left when the caller learns of
    /// it.
    pub(super) fn remove(mut self) {
        if let Some(name) = self.name.take().filter(|_| self.owner.is_current()) {
            // The error before it is the one to report.
            let _ = names::remove(&self.dir, &name);
        }
    }

    fn name_as(&mut self, name: &OsStr) -> io::Result<()> {
        #[cfg(all(target_os = "linux", not(ringway_portable)))]
        if self.name.is_none() {
            let link = |name: &OsStr| unnamed::link(&self.file, &self.dir, name);
            match link(name) {
                // A link cannot replace a name, so link a temporary name and rename it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.name = Some(with_random_name(name, link)?.0);
                }
                linked => return linked,
            }
        }
        self.name.as_ref().map_or(Ok(()), |temporary| names::rename(&self.dir, temporary, name))
    }
}

impl NewFile {
    /// Whether the last close frees so much that a thread makes it. (Of what a server has it does
    /// anyway, and a forked child's close is not the last one.)
    #[cfg(target_os = "linux")]
    fn is_slow_to_free(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let found = || self.file.with_std(std::fs::File::metadata);
        self.owner.is_current()
            && self.file.is_local()
            && found().is_ok_and(|found| found.len().max(found.blocks() * 512) > SLOW_TO_FREE)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_slow_to_free(&self) -> bool {
        false
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_named && self.is_slow_to_free() {
            self.file.discard();
        }
        if let Some(name) = &self.name
            && self.owner.is_current()
        {
            // No task waits for the removal. It may wait for a server, and then a thread makes it.
            if self.file.is_local() {
                let _ = names::remove(&self.dir, name);
            } else {
                let (dir, name) = (self.dir.clone(), name.clone());
                run_in_background(move || drop(names::remove(&dir, &name)));
            }
        }
    }
}

/// Creates something under a name that is unpredictable and unused.
fn with_random_name<T>(
    prefix: &OsStr,
    make: impl Fn(&OsStr) -> io::Result<T>,
) -> io::Result<(OsString, T)> {
    // Names have at most 255 bytes, or 255 UTF-16 units on Windows.
    let text = prefix.to_string_lossy();
    let end = text.len().min(MAX_PREFIX);
    let end = (0..=end).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let prefix = if prefix.len() > MAX_PREFIX { OsStr::new(&text[..end]) } else { prefix };
    let mut tries = 0..MAX_TRIES;
    loop {
        // Its keys come from the system's random numbers.
        let number = RandomState::new().build_hasher().finish();
        let mut name = OsString::from(".");
        name.push(prefix);
        name.push(format!(".{number:016x}.tmp"));
        match make(&name) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
            made => return Ok((name, made?)),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The close of a large file without a name takes long, since it frees the content.
    #[test]
    fn a_large_file_that_is_not_named_is_closed_by_a_thread() {
        let path = tempfile::tempdir().unwrap();
        for (len, is_slow) in [(0, false), (SLOW_TO_FREE, false), (SLOW_TO_FREE + 1, true)] {
            let dir = Directory::from(std::fs::File::open(path.path()).unwrap());
            let new = NewFile::create(dir, OsStr::new("file"), None).unwrap();
            new.file.with_std(|file| file.set_len(len)).unwrap();
            // A server's is closed by a thread anyway.
            let is_local = new.file.is_local();
            assert_eq!(new.is_slow_to_free(), is_slow && is_local, "{len} bytes");
            drop(new);
            assert!(!is_local || std::fs::read_dir(path.path()).unwrap().count() == 0);
        }
    }
}
