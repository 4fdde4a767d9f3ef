//! Listing objects.

use crate::disk::Disk;
use crate::error::failed;
use crate::exclusive::Exclusive;
use crate::metadata::{Kind, builder, is_gone};
use crate::staged::is_temporary;
use futures::future::join_all;
use opendal_core::raw::oio;
use opendal_core::{Error, ErrorKind, MetadataBuilder, Result};
use ringway::fs::{DirEntry, Metadata, ReadDir};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries whose metadata is looked up at the same time.
const BATCH: usize = 32;

/// Lists a directory, or what has a prefix in one. Entries of a directory are in no particular
/// order; with `recursive`, what is in a directory follows some time after it.
///
/// A dropped future of `next`, and a temporary error, lose no entry: the next call goes on.
pub(crate) struct FsLister {
    disk: Arc<Disk>,
    /// What the keys begin with.
    prefix: String,
    recursive: bool,
    /// Directories to be read: their keys, which end in `/`, but the root's is empty.
    dirs: Vec<String>,
    current: Option<Current>,
    /// Entries of the current directory that are to be looked up, with their keys.
    found: VecDeque<(String, DirEntry)>,
    ready: VecDeque<oio::Entry>,
}

/// A directory that is being read.
struct Current {
    /// What the keys of its entries begin with.
    key: String,
    entries: Exclusive<ReadDir>,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Reading,
    /// It has no more entries.
    Ended,
    /// An error has ended it, and how many entries it still had is not known.
    Broken,
}

impl FsLister {
    pub(crate) fn new(disk: Arc<Disk>, key: &str, recursive: bool) -> Self {
        let prefix = if key == "/" { "" } else { key };
        let dir = prefix.rfind('/').map_or("", |last| &prefix[..=last]);
        Self {
            disk,
            recursive,
            dirs: vec![dir.to_owned()],
            prefix: prefix.to_owned(),
            current: None,
            found: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// Opens the next directory. Returns false if there is none.
    async fn open_next(&mut self) -> Result<bool> {
        let Some(dir) = self.dirs.last() else { return Ok(false) };
        let opened = self.disk.engine.fs().read_dir(self.disk.path(dir)?).await;
        if opened.as_ref().is_err_and(|error| !is_gone(error)) {
            return opened.map(|_| true).map_err(failed("read the directory"));
        }
        let Some(key) = self.dirs.pop() else { return Ok(false) };
        if let Ok(entries) = opened {
            // A directory lists itself; one that was found has been listed.
            if key == self.prefix {
                let key = if key.is_empty() { "/" } else { &key };
                self.ready.push_back(oio::Entry::new(key, MetadataBuilder::dir().build()));
            }
            let entries = Exclusive::new(entries);
            self.current = Some(Current { key, entries, progress: Progress::Reading });
        }
        Ok(true)
    }

    /// Reads some entries of the current directory.
    async fn read_some(&mut self) -> Result<()> {
        let Some(Current { key: dir, entries, progress }) = &mut self.current else {
            return Ok(());
        };
        if *progress == Progress::Broken {
            let message = "an error has ended the listing of the directory";
            return Err(Error::new(ErrorKind::Unexpected, message).set_permanent());
        }
        while self.found.len() < BATCH && *progress == Progress::Reading {
            match entries.get_mut().next_entry().await {
                Ok(Some(entry)) => {
                    let key = format!("{dir}{}", entry.file_name().to_string_lossy());
                    // A prefix of a directory's name may go on after it.
                    if key.starts_with(&self.prefix) {
                        self.found.push_back((key, entry));
                    }
                }
                Ok(None) => *progress = Progress::Ended,
                // It was removed meanwhile.
                Err(error) if is_gone(&error) => *progress = Progress::Ended,
                Err(error) => {
                    *progress = Progress::Broken;
                    return Err(failed("read the directory")(error).set_permanent());
                }
            }
        }
        let looked_up = self.found.iter().map(|(_, entry)| look_up(&self.disk, entry));
        for looked_up in join_all(looked_up).await {
            let looked_up = looked_up?;
            let Some((mut key, entry)) = self.found.pop_front() else { break };
            let Some((kind, metadata, is_link)) = looked_up else { continue };
            let may_be_staged = kind == Kind::File && !is_link;
            if may_be_staged && is_temporary(&entry.file_name().to_string_lossy()) {
                continue;
            }
            if kind == Kind::Dir {
                key.push('/');
                // What a link leads to may be the directory that it is in.
                if self.recursive && !is_link {
                    self.dirs.push(key.clone());
                }
            }
            let metadata = builder(kind, metadata.len(), metadata.modified()).build();
            self.ready.push_back(oio::Entry::new(&key, metadata));
        }
        if *progress == Progress::Ended {
            self.current = None;
        }
        Ok(())
    }
}

impl oio::List for FsLister {
    async fn next(&mut self) -> Result<Option<oio::Entry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            if self.current.is_some() {
                self.read_some().await?;
            } else if !self.open_next().await? {
                return Ok(None);
            }
        }
    }
}

/// What an entry is, or what a symbolic link leads to; `None` if there is nothing any more.
async fn look_up(disk: &Disk, entry: &DirEntry) -> Result<Option<(Kind, Metadata, bool)>> {
    let path: PathBuf = entry.path();
    let found = match disk.engine.fs().symlink_metadata(&path).await {
        Ok(link) if link.is_symlink() => match disk.engine.fs().metadata(&path).await {
            // Links in a circle, or to what is not accessible: the link itself is there.
            Err(error) if !is_gone(&error) => Ok((link, true)),
            followed => followed.map(|found| (found, true)),
        },
        found => found.map(|found| (found, false)),
    };
    match found {
        Ok((found, is_link)) => {
            let kind = match &found {
                found if found.is_file() => Kind::File,
                found if found.is_dir() => Kind::Dir,
                _ => Kind::Other,
            };
            Ok(Some((kind, found, is_link)))
        }
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(failed("look up")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::test::{Descriptors, alone, disk, dropped_after};
    use opendal_core::raw::oio::List;
    use std::collections::BTreeSet;

    /// A tree with more entries than are looked up at the same time, and its keys.
    fn tree(root: &std::path::Path) -> BTreeSet<String> {
        let mut keys = BTreeSet::from(["/".to_owned()]);
        for dir in ["a/", "a/b/", "c/"] {
            std::fs::create_dir(root.join(dir)).unwrap();
            keys.insert(dir.to_owned());
            for number in 0..3 * BATCH {
                keys.insert(format!("{dir}{number}"));
                std::fs::write(root.join(format!("{dir}{number}")), "").unwrap();
            }
        }
        keys
    }

    fn insert(found: &mut BTreeSet<String>, entry: &oio::Entry) {
        assert!(found.insert(entry.path().to_owned()), "{} is there twice", entry.path());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_listing_goes_on_after_dropped_futures() {
        let root = tempfile::tempdir().unwrap();
        let expected = tree(root.path());
        for polls in 1..4 {
            let disk = disk(root.path(), Durability::Content);
            let mut lister = FsLister::new(disk, "/", true);
            let mut found = BTreeSet::new();
            // Every other future is dropped.
            loop {
                if let Some(dropped_future_ended) = dropped_after(polls, lister.next()).await {
                    match dropped_future_ended.unwrap() {
                        Some(entry) => insert(&mut found, &entry),
                        None => break,
                    }
                }
                match lister.next().await.unwrap() {
                    Some(entry) => insert(&mut found, &entry),
                    None => break,
                }
            }
            assert_eq!(found, expected, "after {polls} polls");
        }
    }

    #[test]
    fn a_listing_goes_on_when_there_are_descriptors_again() {
        alone("list::tests::a_listing_goes_on_when_there_are_descriptors_again", async {
            let root = tempfile::tempdir().unwrap();
            let expected = tree(root.path());
            let disk = disk(root.path(), Durability::Content);
            let mut lister = FsLister::new(disk, "/", true);
            let mut found = BTreeSet::new();
            let mut errors = 0;
            loop {
                let all = Descriptors::exhaust();
                let next = lister.next().await;
                drop(all);
                match next {
                    Ok(Some(entry)) => insert(&mut found, &entry),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(error.is_temporary(), "{error:?}");
                        errors += 1;
                        match lister.next().await.unwrap() {
                            Some(entry) => insert(&mut found, &entry),
                            None => break,
                        }
                    }
                }
            }
            assert!(errors > 0);
            assert_eq!(found, expected);
        });
    }
}
