//! Copying and renaming objects.

use crate::disk::Disk;
use crate::error::{failed, failed_unless, not_found};
use crate::metadata::copy_user;
use crate::publication::{Publication, Target};
use crate::staged::{Access, rename};
use opendal_core::{Buffer, Error, Metadata, Result};
use ringway::fs::File;
use rustix::fs::{Mode, OFlags, open};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Bytes that are copied before the next look at whether the copy is still wanted.
const STEP: u64 = 8 << 20;

/// Copies an object: content, permissions and the user's metadata. The kernel copies the data, or
/// shares it where the file system can (`copy_file_range(2)`). If the future is dropped, nothing is
/// left, unless the copy is being given its name at that moment.
pub(crate) async fn copy(from: PathBuf, to: Target) -> Result<Metadata> {
    let engine = to.disk.engine.clone();
    // A file of the engine, since a future that is dropped must not close it in place.
    let open = move || Ok(File::from_fd(open_source(&from)?.into(), &engine));
    let source = to.disk.engine.call(open).await.map_err(not_found("open"))?;
    let wanted = Arc::new(());
    let is_wanted = Arc::downgrade(&wanted);
    let target = to.clone();
    let copy = move || {
        let staged = target.create(Buffer::new(), Access::Private)?;
        match copy_all(source, &staged.file, &is_wanted) {
            Ok(()) => Ok(staged),
            Err(error) => {
                staged.remove();
                Err(error)
            }
        }
    };
    let staged = to.disk.call("copy", copy).await?;
    Publication::of_file(to, staged).finish().await
}

/// Blocks, but not for the other end of a FIFO.
fn open_source(from: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = std::fs::File::from(open(from, flags, Mode::empty())?);
    match file.metadata()? {
        found if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        found if found.is_file() => Ok(file),
        _ => Err(io::Error::new(ErrorKind::Unsupported, "only a regular file can be copied")),
    }
}

/// Blocks. Errors: those of reading and writing, as of [`copy_content`].
fn copy_all(from: File, to: &File, is_wanted: &Weak<()>) -> io::Result<()> {
    let in_use = |_| io::Error::other("the source of a copy is in use");
    let from = std::fs::File::try_from(from).map_err(in_use)?;
    let to = std::fs::File::from(to.as_fd().try_clone_to_owned()?);
    copy_user(&from, &to)?;
    copy_content(&from, &to, is_wanted)?;
    ringway_core::close(to.into())
}

/// Copies permissions and content. Blocks.
///
/// Errors: those of reading and writing; Interrupted if nobody wants the copy any more.
fn copy_content(
    mut from: &std::fs::File,
    mut to: &std::fs::File,
    is_wanted: &Weak<()>,
) -> io::Result<()> {
    // First, since nobody may read of the copy what they may not read of the source. And the copy
    // belongs to somebody else: it must not run with their rights (`S_ISUID`).
    let mode = from.metadata()?.permissions().mode();
    to.set_permissions(Permissions::from_mode(mode & 0o777))?;
    while io::copy(&mut from.by_ref().take(STEP), &mut to)? > 0 {
        if is_wanted.strong_count() == 0 {
            return Err(ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

/// Renames an object. `exclusive`: only if there is none of the new name.
pub(crate) async fn relocate(
    disk: &Arc<Disk>,
    from: PathBuf,
    to: PathBuf,
    exclusive: bool,
) -> Result<()> {
    let parents = [&from, &to].map(|path| path.parent().map(Path::to_owned));
    let look = from.clone();
    let found = disk.engine.call(move || std::fs::symlink_metadata(look));
    let is_dir = found.await.map_err(not_found("look up"))?.is_dir();
    let on = disk.clone();
    let work = move || {
        let renamed = match rename(&from, &to, exclusive) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                to.parent().map_or(Ok(()), |parent| on.dirs.create(parent))?;
                rename(&from, &to, exclusive)
            }
            renamed => renamed,
        };
        if is_dir {
            on.dirs.forget();
        }
        renamed
    };
    disk.engine.call(work).await.map_err(failed_unless(exclusive, "rename"))?;
    let [old, new] = parents;
    // A repetition would not find the object under its old name.
    disk.sync_names(new.as_deref()).await.map_err(Error::set_permanent)?;
    if old != new {
        disk.sync_names(old.as_deref()).await.map_err(Error::set_permanent)?;
    }
    Ok(())
}

/// Creates a directory.
pub(crate) async fn create_dir(disk: &Arc<Disk>, path: PathBuf) -> Result<()> {
    let (on, dir) = (disk.clone(), path.clone());
    let created = disk.engine.call(move || on.dirs.create(&dir)).await;
    created.map_err(failed("create the directory"))?;
    disk.sync_names(Some(&path)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::test::faulty_disk;
    use rustix::io::Errno;

    /// Nobody may read of a staged file what they may not read of its source, nor run a copy with
    /// the rights of whoever made it (`S_ISUID`).
    #[test]
    fn an_incomplete_copy_has_the_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        std::fs::write(&from, vec![7; STEP as usize + 1]).unwrap();
        std::fs::set_permissions(&from, Permissions::from_mode(0o6700)).unwrap();
        let target = std::fs::File::create(&to).unwrap();
        let ended = copy_content(&open_source(&from).unwrap(), &target, &Weak::new()).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
        let found = target.metadata().unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o7777), (STEP, 0o700));
        let wanted = Arc::new(());
        copy_content(&open_source(&from).unwrap(), &target, &Arc::downgrade(&wanted)).unwrap();
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    }

    /// A repetition would not find the object.
    #[tokio::test]
    async fn a_rename_that_is_not_synced_is_not_to_be_repeated() {
        for sync in [0, 1] {
            let root = tempfile::tempdir().unwrap();
            let disk = faulty_disk(root.path(), Durability::Full, sync, Errno::BUSY);
            let [from, to] = ["old/object", "new/object"].map(|key| root.path().join(key));
            std::fs::create_dir(root.path().join("old")).unwrap();
            std::fs::write(&from, "content").unwrap();
            let error = relocate(&disk, from.clone(), to.clone(), false).await.unwrap_err();
            assert!(!error.is_temporary(), "{error}");
            assert!(to.exists() && !from.exists());
        }
    }
}
