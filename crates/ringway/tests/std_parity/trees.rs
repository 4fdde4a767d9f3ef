//! Directories: listing them and removing whole trees.

use crate::common::poll_once;
use crate::wait;
use ringway::fs;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// More than one batch holds.
const MANY: usize = 2_000;

#[test]
fn a_listing_survives_dropped_futures() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    for number in 0..MANY {
        std::fs::write(
            dir.path().join(format!("a name of some length, so that few fit {number}")),
            b"",
        )?;
    }
    // The first poll may already find a batch. So the listing is repeated until some futures were
    // dropped while they waited.
    let mut dropped = 0;
    for _ in 0..100 {
        let mut found = HashSet::new();
        let mut entries = wait(fs::read_dir(dir.path()))?;
        loop {
            // The first poll returns an entry or requests a batch. Either way its future is
            // dropped.
            match poll_once(pin!(entries.next_entry())) {
                Poll::Ready(next) => match next? {
                    Some(entry) => {
                        assert!(found.insert(entry.file_name()), "{entry:?} was returned twice")
                    }
                    None => break,
                },
                Poll::Pending => {
                    dropped += 1;
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(found.len(), MANY);
        if dropped > 0 {
            return Ok(());
        }
    }
    panic!("no future was dropped while it waited");
}

/// A listing may be dropped early or while a batch is on its way, and its directory may be removed
/// meanwhile.
#[test]
fn listings_may_end_early() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner)?;
    std::fs::write(inner.join("one"), b"")?;
    std::fs::write(inner.join("two"), b"")?;
    wait(async {
        let mut entries = fs::read_dir(&inner).await?;
        let entry = entries.next_entry().await?.unwrap();
        drop(entries);
        assert!(entry.metadata().await?.is_file(), "an entry keeps its directory open");
        let mut entries = fs::read_dir(&inner).await?;
        let _ = poll_once(pin!(entries.next_entry()));
        drop(entries);
        let mut entries = fs::read_dir(&inner).await?;
        fs::remove_dir_all(&inner).await?;
        assert!(entries.next_entry().await?.is_none(), "the directory was removed");
        assert!(entries.next_entry().await?.is_none());
        assert_eq!(entry.metadata().await.unwrap_err().kind(), io::ErrorKind::NotFound);
        Ok(())
    })
}

/// The tree is deeper than recursion on a small stack allows.
#[test]
fn a_deep_tree_is_removed() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let deep = dir.path().join("deep");
    std::fs::create_dir_all(deep.join("d/".repeat(500)))?;
    std::fs::write(deep.join("d/".repeat(499)).join("file"), b"")?;
    wait(fs::remove_dir_all(&deep))?;
    assert!(!deep.exists());
    Ok(())
}

/// Another thread replaces directories of the tree with links to elsewhere while the tree is
/// removed.
#[test]
fn links_that_appear_during_removal_are_not_followed() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let (elsewhere, tree) = (dir.path().join("elsewhere"), dir.path().join("tree"));
    std::fs::create_dir(&elsewhere)?;
    let precious: Vec<PathBuf> = (0..50).map(|number| elsewhere.join(number.to_string())).collect();
    for file in &precious {
        std::fs::write(file, b"precious")?;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (aside, exchanged) = (dir.path().join("aside"), tree.join("exchanged"));
            while !done.load(Ordering::Relaxed) {
                let _ = std::fs::rename(&exchanged, &aside);
                let _ = std::os::unix::fs::symlink(&elsewhere, &exchanged);
                let _ = std::fs::remove_file(&exchanged);
                let _ = std::fs::rename(&aside, &exchanged);
            }
        });
        for _ in 0..200 {
            let _ = std::fs::create_dir_all(tree.join("exchanged/below"));
            let _ = std::fs::write(tree.join("exchanged/file"), b"");
            // Directories that the other thread creates meanwhile may make this fail.
            let _ = wait(fs::remove_dir_all(&tree));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(precious.iter().all(|file| file.exists()), "the target of a link was removed");
    std::os::unix::fs::symlink(&elsewhere, dir.path().join("link"))?;
    wait(fs::remove_dir_all(dir.path().join("link")))?;
    assert!(
        !dir.path().join("link").is_symlink() && precious[0].exists(),
        "removing a link removed its target"
    );
    Ok(())
}
