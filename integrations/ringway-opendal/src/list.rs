//! Listing objects.

use crate::disk::Disk;
use crate::error::failed;
use crate::exclusive::Exclusive;
use crate::metadata::{Kind, builder};
use crate::staged::is_temporary;
use futures::future::join_all;
use opendal_core::raw::oio;
use opendal_core::{MetadataBuilder, Result};
use ringway::fs::{DirEntry, Metadata, ReadDir};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

/// Entries whose metadata is looked up at the same time.
const BATCH: usize = 32;

/// Lists a directory, or what has a prefix in one. Entries of a directory are in no particular
/// order; with `recursive`, what is in a directory follows some time after it.
pub(crate) struct FsLister {
    disk: Arc<Disk>,
    /// What the keys begin with.
    prefix: String,
    recursive: bool,
    /// Directories to be read: their keys, which end in `/`, but the root's is empty.
    dirs: Vec<String>,
    current: Option<(String, Exclusive<ReadDir>)>,
    ready: VecDeque<oio::Entry>,
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
            ready: VecDeque::new(),
        }
    }

    /// Opens the next directory. Returns false if there is none.
    async fn open_next(&mut self) -> Result<bool> {
        let Some(dir) = self.dirs.pop() else { return Ok(false) };
        match self.disk.engine.fs().read_dir(self.disk.path(&dir)?).await {
            Ok(entries) => {
                // A directory lists itself; one that was found has been listed.
                if dir == self.prefix {
                    let key = if dir.is_empty() { "/" } else { &dir };
                    let entry = oio::Entry::new(key, MetadataBuilder::dir().build());
                    self.ready.push_back(entry);
                }
                self.current = Some((dir, Exclusive::new(entries)));
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(failed("read the directory")(error)),
        }
        Ok(true)
    }

    /// Reads some entries of the current directory.
    async fn read_some(&mut self) -> Result<()> {
        let Some((dir, entries)) = &mut self.current else { return Ok(()) };
        let mut found = Vec::new();
        let mut ended = false;
        while found.len() < BATCH && !ended {
            match entries.get_mut().next_entry().await {
                Ok(Some(entry)) => {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    let key = format!("{dir}{name}");
                    // A prefix of a directory's name may go on after it.
                    if key.starts_with(&self.prefix) && !is_temporary(&name) {
                        found.push((key, entry));
                    }
                }
                Ok(None) => ended = true,
                // It was removed meanwhile.
                Err(error) if is_gone(&error) => ended = true,
                Err(error) => return Err(failed("read the directory")(error)),
            }
        }
        let looked_up = found.iter().map(|(_, entry)| look_up(&self.disk, entry));
        for ((key, _), looked_up) in found.iter().zip(join_all(looked_up).await) {
            let Some((kind, metadata, is_link)) = looked_up? else { continue };
            let mut key = key.clone();
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
        if ended {
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
    let mut found = disk.engine.fs().symlink_metadata(&path).await;
    let is_link = found.as_ref().is_ok_and(Metadata::is_symlink);
    if is_link {
        found = disk.engine.fs().metadata(&path).await;
    }
    match found {
        Ok(found) => {
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

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
