//! Several names of one file, and what happens after a future was dropped or while the file system
//! does not answer.

use super::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt};
use crate::common::{engines, names, runtime, scratch, skip, until, until_unstaged};
use futures::StreamExt;
use futures::executor::block_on;
use ringway::Engine;
use ringway_hostile::Hostile;
use std::path::Path as FilePath;
use std::task::Context;

fn at(path: &str) -> Path {
    Path::from(path)
}

fn store(dir: &FilePath, engine: &Engine) -> RingwayFileSystem {
    RingwayFileSystem::new_with_prefix(dir).unwrap().with_engine(engine)
}

#[test]
fn a_copy_is_a_file_of_its_own() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        block_on(async {
            store.put(&at("a"), "content".into()).await.unwrap();
            for _ in 0..3 {
                store.copy(&at("a"), &at("b")).await.unwrap();
                store.copy(&at("a"), &at("a")).await.unwrap();
            }
            assert_eq!(names(dir.path()), ["a", "b"]);
            std::fs::write(dir.path().join("b"), b"changed").unwrap();
            assert_eq!(store.get(&at("a")).await.unwrap().bytes().await.unwrap(), "content");
            store.copy(&at("a"), &at("c")).await.unwrap();
            store.rename(&at("a"), &at("c")).await.unwrap();
            assert_eq!(names(dir.path()), ["b", "c"]);
        });
    }
}

/// As `LocalFileSystem` and other programs leave them.
#[test]
fn a_rename_to_another_name_of_the_file_removes_the_old_name() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        std::fs::write(dir.path().join("a"), b"content").unwrap();
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        block_on(store.rename(&at("a"), &at("b"))).unwrap();
        block_on(store.rename(&at("b"), &at("b"))).unwrap();
        assert_eq!(names(dir.path()), ["b"]);
    }
}

/// The object replaces the link that has led to it.
#[test]
fn an_object_is_renamed_to_a_link_to_its_directory() {
    for engine in engines() {
        for fsync in [false, true] {
            let dir = scratch();
            let store = store(dir.path(), &engine).with_fsync(fsync);
            std::fs::create_dir(dir.path().join("d")).unwrap();
            std::fs::write(dir.path().join("d/a"), b"content").unwrap();
            std::os::unix::fs::symlink("d", dir.path().join("link")).unwrap();
            block_on(store.rename(&at("link/a"), &at("link"))).unwrap();
            assert_eq!(std::fs::read(dir.path().join("link")).unwrap(), b"content");
            assert!(!dir.path().join("d/a").exists());
        }
    }
}

/// It does not run with the rights of whoever copies it (`S_ISUID`, `S_ISGID`).
#[test]
fn a_copy_keeps_permissions() {
    use std::os::unix::fs::PermissionsExt;
    for engine in engines() {
        for dont_cache in [false, true] {
            let dir = scratch();
            std::fs::write(dir.path().join("a"), vec![7; 20 << 20]).unwrap();
            let permissions = std::fs::Permissions::from_mode(0o6604);
            std::fs::set_permissions(dir.path().join("a"), permissions).unwrap();
            let store = store(dir.path(), &engine).with_dont_cache(dont_cache);
            block_on(store.copy(&at("a"), &at("d/b"))).unwrap();
            let copy = dir.path().join("d/b");
            assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o7777, 0o604);
            assert!(std::fs::read(copy).unwrap() == vec![7; 20 << 20]);
        }
    }
}

#[test]
fn a_dropped_put_replaces_nothing_that_was_put_later() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    for engine in engines() {
        let store = store(&hostile.path(), &engine);
        hostile.set("object#1 write freeze").unwrap();
        runtime().block_on(async {
            let first = tokio::spawn({
                let store = store.clone();
                async move { store.put(&at("object"), "first".into()).await }
            });
            until("the first write", || hostile.count("write").unwrap().inside == 1).await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            store.put(&at("object"), "second".into()).await.unwrap();
            hostile.set("clear").unwrap();
            until_unstaged(&hostile.backing()).await;
        });
        assert_eq!(std::fs::read(hostile.backing().join("object")).unwrap(), b"second");
    }
}

#[test]
fn listing_blocks_no_thread_outside_tokio() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    std::fs::write(hostile.backing().join("object"), b"content").unwrap();
    for engine in engines() {
        let store = store(&hostile.path(), &engine);
        hostile.set("* readdir freeze").unwrap();
        let mut list = store.list(None);
        let mut level = store.list_with_delimiter(None);
        let mut context = Context::from_waker(std::task::Waker::noop());
        // If these blocked, the test would not end.
        assert!(list.poll_next_unpin(&mut context).is_pending());
        assert!(level.as_mut().poll(&mut context).is_pending());
        hostile.set("clear").unwrap();
        let listed: Vec<_> = block_on(list.collect());
        assert_eq!(listed.len(), 1);
        assert_eq!(block_on(level).unwrap().objects.len(), 1);
    }
}
