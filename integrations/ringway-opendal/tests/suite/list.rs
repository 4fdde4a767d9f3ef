use crate::support::{Files, each, kind};
use opendal_core::{EntryMode, ErrorKind};
use std::collections::BTreeSet;

async fn keys(files: &Files, key: &str, recursive: bool) -> BTreeSet<String> {
    let found = files.op.list_with(key).recursive(recursive).await.unwrap();
    let keys: BTreeSet<_> = found.iter().map(|entry| entry.path().to_owned()).collect();
    assert_eq!(keys.len(), found.len(), "an entry is there twice");
    keys
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[tokio::test]
async fn directories_are_listed() {
    for files in each() {
        for key in ["a/b/c/deep", "a/b/x", "a/bc", "a/y", "top"] {
            files.op.write(key, key).await.unwrap();
        }
        files.op.create_dir("empty/").await.unwrap();
        assert_eq!(keys(&files, "/", false).await, set(&["/", "a/", "empty/", "top"]));
        assert_eq!(keys(&files, "a/", false).await, set(&["a/", "a/b/", "a/bc", "a/y"]));
        assert_eq!(keys(&files, "a/b", false).await, set(&["a/b/", "a/bc"]));
        assert_eq!(keys(&files, "empty/", false).await, set(&["empty/"]));
        assert_eq!(keys(&files, "missing/", false).await, set(&[]));
        assert_eq!(keys(&files, "top/", false).await, set(&[]));
        let below_b = ["a/b/", "a/b/c/", "a/b/c/deep", "a/b/x"];
        assert_eq!(keys(&files, "a/b/", true).await, set(&below_b));
        let with_prefix = [&below_b[..], &["a/bc"]].concat();
        assert_eq!(keys(&files, "a/b", true).await, set(&with_prefix));
        let all = [&with_prefix[..], &["/", "a/", "a/y", "empty/", "top"]].concat();
        assert_eq!(keys(&files, "/", true).await, set(&all));
        for entry in files.op.list_with("/").recursive(true).await.unwrap() {
            let is_dir = entry.path().ends_with('/');
            let mode = if is_dir { EntryMode::DIR } else { EntryMode::FILE };
            assert_eq!(entry.metadata().mode(), mode);
            if !is_dir {
                assert_eq!(entry.metadata().content_length(), entry.path().len() as u64);
                assert!(entry.metadata().last_modified().is_some());
            }
        }
    }
}

#[tokio::test]
async fn many_entries_are_listed() {
    for files in each() {
        let expected: BTreeSet<_> = (0..1000).map(|number| format!("dir/{number}")).collect();
        std::fs::create_dir(files.path("dir")).unwrap();
        for key in &expected {
            std::fs::write(files.path(key), "").unwrap();
        }
        let mut found = keys(&files, "dir/", true).await;
        assert!(found.remove("dir/"));
        assert_eq!(found, expected);
    }
}

/// A link leads to an object; a circle of links does not make a recursive listing endless.
#[tokio::test]
async fn links_are_followed_once() {
    for files in each() {
        files.op.write("dir/object", "content").await.unwrap();
        for (to, link) in [("..", "dir/up"), ("object", "dir/link"), ("nothing", "dir/dangling")] {
            std::os::unix::fs::symlink(to, files.path(link)).unwrap();
        }
        let expected = set(&["dir/", "dir/link", "dir/object", "dir/up/"]);
        assert_eq!(keys(&files, "dir/", true).await, expected);
        assert_eq!(files.op.stat("dir/link").await.unwrap().content_length(), 7);
        files.op.delete("dir/up").await.unwrap();
        files.op.delete("dir/link").await.unwrap();
        files.op.delete("dir/dangling").await.unwrap();
        assert_eq!(files.on_disk(), ["dir/", "dir/object"]);
    }
}

/// What cannot be reached through a link does not end the listing.
#[tokio::test]
async fn links_to_what_cannot_be_reached_are_listed() {
    for files in each() {
        files.op.write("object", "content").await.unwrap();
        for (to, link) in [("circle", "circle"), (&*"n".repeat(300), "long")] {
            std::os::unix::fs::symlink(to, files.path(link)).unwrap();
        }
        let expected = set(&["/", "circle", "long", "object"]);
        for recursive in [false, true] {
            assert_eq!(keys(&files, "/", recursive).await, expected);
        }
        for entry in files.op.list("/").await.unwrap() {
            let mode = match entry.path() {
                "/" => EntryMode::DIR,
                "object" => EntryMode::FILE,
                _ => EntryMode::Unknown,
            };
            assert_eq!(entry.metadata().mode(), mode, "{}", entry.path());
            assert_eq!(files.op.stat(entry.path()).await.unwrap().mode(), mode);
        }
    }
}

#[tokio::test]
async fn temporary_names_are_hidden() {
    for files in each() {
        // Neither a directory nor a link is a file that is being written.
        let [dir, link] = [".dir.0123456789abcdef.tmp/", ".link.0123456789abcdef.tmp"];
        files.op.create_dir(dir).await.unwrap();
        std::os::unix::fs::symlink(".hidden", files.path(link)).unwrap();
        std::fs::write(files.path(".object.0123456789abcdef.tmp"), "part").unwrap();
        std::fs::write(files.path(".hidden"), "object").unwrap();
        assert_eq!(keys(&files, "/", true).await, set(&["/", dir, ".hidden", link]));
    }
}

#[tokio::test]
async fn objects_and_directories_are_deleted() {
    for files in each() {
        for key in ["a/b/c", "a/d", "e"] {
            files.op.write(key, "x").await.unwrap();
        }
        files.op.delete("e").await.unwrap();
        for missing in ["e", "missing", "missing/below", "a/d/below", "missing/"] {
            files.op.delete(missing).await.unwrap();
        }
        // The key of a directory is not that of an object.
        files.op.delete("a/d/").await.unwrap();
        assert!(files.op.exists("a/d").await.unwrap());
        assert_eq!(kind(files.op.delete("a/").await), Some(ErrorKind::Conflict));
        files.op.delete_iter(["a/d"]).await.unwrap();
        files.op.delete_with("a/").recursive(true).await.unwrap();
        assert!(files.on_disk().is_empty());
        // Of a directory that was removed and is needed again.
        files.op.write("a/b/c", "again").await.unwrap();
        assert_eq!(files.on_disk(), ["a/", "a/b/", "a/b/c"]);
    }
}

#[tokio::test]
async fn the_root_may_be_removed() {
    for files in each() {
        files.op.write("a/b", "x").await.unwrap();
        files.op.delete_with("/").recursive(true).await.unwrap();
        assert!(!files.path("").exists());
        assert!(files.op.list_with("/").recursive(true).await.unwrap().is_empty());
        files.op.write("a/b", "again").await.unwrap();
        assert_eq!(files.on_disk(), ["a/", "a/b"]);
    }
}
