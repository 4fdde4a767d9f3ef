//! Functions on paths behave like those of `std::fs`, and `write_atomic` replaces a file entirely
//! or not at all. `std_parity` compares all shapes of paths; here are the results of single calls.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

use ringway::fs::{self, File, OpenOptions, Resolve};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn files_are_written_read_copied_renamed_and_removed() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    let content: Vec<u8> = (0..3_000_001u32).map(|byte| (byte % 249) as u8).collect();
    fs::write(at("one"), content.clone()).await?;
    assert_eq!(fs::read(at("one")).await?, content);
    std::fs::set_permissions(at("one"), PermissionsExt::from_mode(0o640))?;
    assert_eq!(fs::copy(at("one"), at("two")).await?, content.len() as u64);
    assert!(std::fs::read(at("two"))? == content, "the copy differs");
    assert_eq!(std::fs::metadata(at("two"))?.mode() & 0o777, 0o640);
    fs::rename(at("two"), at("three")).await?;
    fs::hard_link(at("three"), at("four")).await?;
    fs::symlink("four", at("five")).await?;
    assert!(fs::metadata(at("five")).await?.is_file());
    assert!(!fs::symlink_metadata(at("five")).await?.is_file());
    assert_eq!(names(dir.path()), ["five", "four", "one", "three"]);
    assert!(fs::try_exists(at("five")).await?);
    fs::remove_file(at("four")).await?;
    assert!(!fs::try_exists(at("five")).await?, "the link is dangling");
    assert_eq!(
        fs::try_exists(at("one").join("below")).await.unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
    fs::write(at("one"), b"short".to_vec()).await?;
    assert_eq!(fs::read_to_string(at("one")).await?, "short");
    fs::write(at("one"), vec![0xff]).await?;
    assert_eq!(fs::read_to_string(at("one")).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    Ok(())
}

/// Files that report a length of 0, such as those of `/proc`, are read to their end.
#[tokio::test]
async fn files_that_report_no_length_are_read() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status").await?;
    assert!(status.contains("VmRSS"), "{status}");
    let empty = tempfile::NamedTempFile::new()?;
    assert!(fs::read(empty.path()).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn create_dir_all_creates_parents() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let deep = dir.path().join("a/b/../b/c");
    fs::create_dir_all(&deep).await?;
    fs::create_dir_all(&deep).await?;
    assert!(dir.path().join("a/b/c").is_dir());
    fs::remove_dir(dir.path().join("a/b/c")).await?;
    assert_eq!(
        fs::remove_dir(dir.path().join("a")).await.unwrap_err().kind(),
        io::ErrorKind::DirectoryNotEmpty
    );
    fs::write(dir.path().join("file"), b"x".to_vec()).await?;
    let below = fs::create_dir_all(dir.path().join("file/below")).await.unwrap_err();
    assert_eq!(below.kind(), io::ErrorKind::NotADirectory);
    let same = fs::create_dir_all(dir.path().join("file")).await.unwrap_err();
    assert_eq!(same.kind(), io::ErrorKind::AlreadyExists);
    Ok(())
}

#[tokio::test]
async fn an_atomic_write_replaces_all_or_nothing() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("settings");
    fs::write_atomic(&path, b"first".to_vec()).await?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o604))?;
    let inode = std::fs::metadata(&path)?.ino();
    fs::write_atomic(&path, b"second".to_vec()).await?;
    assert_eq!(std::fs::read(&path)?, b"second");
    let after = std::fs::metadata(&path)?;
    assert_ne!(after.ino(), inode, "the file was not replaced");
    assert_eq!(after.mode() & 0o777, 0o604);
    assert_eq!(names(dir.path()), ["settings"], "a temporary file is left");
    // A directory cannot be replaced: the call fails and removes its temporary file.
    std::fs::create_dir(dir.path().join("dir"))?;
    std::fs::write(dir.path().join("dir/entry"), b"")?;
    assert!(fs::write_atomic(dir.path().join("dir"), b"x".to_vec()).await.is_err());
    assert_eq!(names(dir.path()), ["dir", "settings"]);
    assert_eq!(
        fs::write_atomic("/", b"x".to_vec()).await.unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    // Dropped at any point, the call leaves either the old content or the new.
    let mut whole = vec![b"second".to_vec()];
    for polls in 0..40 {
        let content = format!("content {polls}").into_bytes();
        whole.push(content.clone());
        let mut write = Box::pin(fs::write_atomic(&path, content.clone()));
        for _ in 0..polls {
            if futures::poll!(&mut write).is_ready() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
        drop(write);
        // Its rename may have been submitted already, or that of an earlier call.
        let now = std::fs::read(&path)?;
        assert!(whole.contains(&now), "{polls} polls: {now:?}");
    }
    Ok(())
}

#[tokio::test]
async fn opens_relative_to_a_directory() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("file"), b"here")?;
    std::os::unix::fs::symlink("file", dir.path().join("link"))?;
    let handle = File::open(dir.path()).await?;
    let file = OpenOptions::new().read(true).in_dir(&handle).open("file").await?;
    assert_eq!(&file.read(0..10).await?[..], b"here");
    let link = OpenOptions::new().read(true).nofollow(true).in_dir(&handle).open("link").await;
    assert_eq!(link.unwrap_err().raw_os_error(), Some(libc::ELOOP));

    let outside =
        OpenOptions::new().read(true).resolve(Resolve::BENEATH).in_dir(&handle).open("../..").await;
    assert_eq!(outside.unwrap_err().kind(), io::ErrorKind::CrossesDevices);
    Ok(())
}

#[tokio::test]
async fn other_operations_of_a_file() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).await?;
    let again = OpenOptions::new().write(true).create_new(true).open(&path).await;
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    file.allocate(0, 100_000).await?;
    assert_eq!(file.metadata().await?.len(), 100_000);
    file.set_len(10).await?;
    let (written, parts) =
        file.write_all_vectored_at(vec![b"abc".to_vec(), b"defg".to_vec()], 5).await;
    written?;
    assert_eq!(parts[1], b"defg");
    let (read, parts) = file.read_all_vectored_at(vec![vec![0; 6], vec![0; 9]], 0).await;
    assert_eq!((read?, &parts[0][..], &parts[1][..6]), (12, &b"\0\0\0\0\0a"[..], &b"bcdefg"[..]));
    let (exact, _) = file.read_exact_at(vec![0; 13], 0).await;
    assert_eq!(exact.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    file.sync_range(0, 0).await?;
    file.sync_all().await?;
    file.advise(0, 0, ringway::fs::Advice::DontNeed).await?;
    let clone = file.clone();
    assert_eq!(
        clone.close().await.unwrap_err().kind(),
        io::ErrorKind::InvalidInput,
        "the other handle holds the file"
    );
    file.close().await?;
    Ok(())
}
