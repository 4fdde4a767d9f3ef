use crate::support::{Files, bytes, each, kind};
use opendal_core::{ErrorKind, Operator};
use ringway_opendal::{Durability, RingwayFs};
use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

#[tokio::test]
async fn objects_of_all_lengths_are_written() {
    for files in each() {
        for len in [0, 1, 4096, 256 << 10, (256 << 10) + 1, 5_000_000] {
            let content = bytes(len);
            let written = files.op.write("dir/object", content.clone()).await.unwrap();
            assert_eq!(written.content_length(), len as u64);
            assert!(written.last_modified().is_some());
            assert!(std::fs::read(files.path("dir/object")).unwrap() == content, "{len}");
            assert_eq!(files.op.stat("dir/object").await.unwrap().content_length(), len as u64);
        }
        assert_eq!(files.on_disk(), ["dir/", "dir/object"]);
    }
}

#[tokio::test]
async fn pieces_are_written_in_order() {
    for files in each() {
        let content = bytes(3_000_000);
        for concurrent in [1, 8] {
            for piece in [1000, 300_000, 1_000_001] {
                let mut writer =
                    files.op.writer_with("object").concurrent(concurrent).await.unwrap();
                for piece in content.chunks(piece) {
                    writer.write(piece.to_vec()).await.unwrap();
                }
                let written = writer.close().await.unwrap();
                assert_eq!(written.content_length(), 3_000_000);
                assert!(std::fs::read(files.path("object")).unwrap() == content);
            }
        }
        assert_eq!(files.on_disk(), ["object"]);
    }
}

/// Readers see the old object until the writer is closed.
#[tokio::test]
async fn an_object_appears_as_a_whole() {
    for files in each() {
        files.op.write("object", "old").await.unwrap();
        let mut writer = files.op.writer("object").await.unwrap();
        for _ in 0..4 {
            writer.write(bytes(300_000)).await.unwrap();
        }
        assert_eq!(files.op.read("object").await.unwrap().to_vec(), b"old");
        writer.close().await.unwrap();
        assert_eq!(files.op.stat("object").await.unwrap().content_length(), 1_200_000);
        assert_eq!(kind(writer.close().await), Some(ErrorKind::Unexpected));
    }
}

/// The host's file service refuses `abort` without `atomic_write_dir` and leaves the object
/// truncated (opendal 0.59.5).
#[tokio::test]
async fn an_aborted_writer_leaves_nothing() {
    for files in each() {
        files.op.write("object", "old").await.unwrap();
        for pieces in [0, 1, 5] {
            for key in ["object", "new"] {
                let mut writer = files.op.writer(key).await.unwrap();
                for _ in 0..pieces {
                    writer.write(bytes(300_000)).await.unwrap();
                }
                writer.abort().await.unwrap();
                assert_eq!(files.op.read("object").await.unwrap().to_vec(), b"old");
                assert!(!files.op.exists("new").await.unwrap());
            }
        }
        files.settles_to(&["object"]).await;
    }
}

#[tokio::test]
async fn appends_are_appended() {
    for files in each() {
        for piece in ["a", "bc", "def"] {
            let mut writer = files.op.writer_with("dir/log").append(true).await.unwrap();
            writer.write(piece).await.unwrap();
            writer.write(vec![b'.'; 2]).await.unwrap();
            writer.close().await.unwrap();
        }
        assert_eq!(files.op.read("dir/log").await.unwrap().to_vec(), b"a..bc..def..");
        let mut writer = files.op.writer_with("dir/log").append(true).await.unwrap();
        writer.write("more").await.unwrap();
        assert_eq!(kind(writer.abort().await), Some(ErrorKind::Unsupported));
        let mut writer = files.op.writer_with("other").append(true).await.unwrap();
        writer.abort().await.unwrap();
        assert!(!files.op.exists("other").await.unwrap());
        let mut writer = files.op.writer_with("empty").append(true).await.unwrap();
        assert_eq!(writer.close().await.unwrap().content_length(), 0);
    }
}

#[tokio::test]
async fn the_users_metadata_is_kept() {
    for files in each() {
        let user = |value: &str| HashMap::from([("owner".to_owned(), value.to_owned())]);
        files.op.write_with("object", "x").user_metadata(user("a")).await.unwrap();
        let mut writer =
            files.op.writer_with("log").append(true).user_metadata(user("b")).await.unwrap();
        writer.write("x").await.unwrap();
        writer.close().await.unwrap();
        files.op.copy("object", "copy").await.unwrap();
        for (key, expected) in [("object", "a"), ("log", "b"), ("copy", "a")] {
            let found = files.op.stat(key).await.unwrap();
            let found = found.user_metadata().and_then(|user| user.get("owner").map(str::to_owned));
            assert_eq!(found.as_deref(), Some(expected), "{key}");
        }
        files.op.write("object", "without").await.unwrap();
        assert!(files.op.stat("object").await.unwrap().user_metadata().is_none());
    }
}

#[tokio::test]
async fn what_is_no_place_for_an_object_has_a_kind() {
    for files in each() {
        files.op.write("object", "x").await.unwrap();
        files.op.create_dir("dir/").await.unwrap();
        let below = kind(files.op.write("object/below", "x").await);
        assert_eq!(below, Some(ErrorKind::NotADirectory));
        assert_eq!(kind(files.op.write("dir", "x").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.write("dir/", "x").await), Some(ErrorKind::IsADirectory));
        let mut long = files.op.writer(&"n".repeat(300)).await.unwrap();
        long.write("x").await.unwrap();
        assert_eq!(kind(long.close().await), Some(ErrorKind::Unexpected));
        files.settles_to(&["dir/", "object"]).await;
    }
}

/// An object that is replaced keeps who may use it.
#[tokio::test]
async fn an_overwrite_keeps_the_permissions() {
    for files in each() {
        let owner = || {
            let found = files.path("object").metadata().unwrap();
            (found.mode() & 0o7777, found.uid(), found.gid())
        };
        files.op.write("object", "old").await.unwrap();
        files.op.write("source", "copied").await.unwrap();
        // Only root may give files away.
        let _ = chown(files.path("object"), Some(1234), Some(4321));
        for mode in [0o600, 0o640, 0o777] {
            std::fs::set_permissions(files.path("object"), PermissionsExt::from_mode(mode))
                .unwrap();
            let before = owner();
            assert_eq!(before.0, mode);
            files.op.write("object", "new").await.unwrap();
            assert_eq!(owner(), before);
            let mut writer = files.op.writer("object").await.unwrap();
            for _ in 0..3 {
                writer.write(bytes(1000)).await.unwrap();
            }
            writer.close().await.unwrap();
            assert_eq!(owner(), before);
            // A copy has the permissions of its source.
            files.op.copy("source", "object").await.unwrap();
            assert_eq!((owner().1, owner().2), (before.1, before.2));
        }
    }
}

/// As with the host's file service, what a link leads to is written, and created.
#[tokio::test]
async fn a_write_follows_links() {
    let staging = tempfile::tempdir().unwrap();
    let mut all = each();
    all.push(Files::with(|builder| builder.atomic_write_dir(staging.path().to_str().unwrap())));
    for files in all {
        files.op.create_dir("dir/").await.unwrap();
        files.op.write("source", "copied").await.unwrap();
        let links = [("dir/object", "link"), ("../link", "dir/second"), ("circle", "circle")];
        for (to, link) in links {
            std::os::unix::fs::symlink(to, files.path(link)).unwrap();
        }
        let found = || std::fs::read_to_string(files.path("dir/object")).unwrap();
        files.op.write("link", "created").await.unwrap();
        assert_eq!(found(), "created");
        files.op.write("dir/second", "replaced").await.unwrap();
        assert_eq!(found(), "replaced");
        files.op.copy("source", "link").await.unwrap();
        assert_eq!(found(), "copied");
        let exclusive = files.op.write_with("link", "refused").if_not_exists(true).await;
        assert_eq!(kind(exclusive), Some(ErrorKind::ConditionNotMatch));
        assert!(files.op.write("circle", "x").await.is_err());
        assert_eq!(found(), "copied");
        for (to, link) in links {
            assert_eq!(std::fs::read_link(files.path(link)).unwrap().to_str(), Some(to));
        }
        assert_eq!(std::fs::read_dir(staging.path()).unwrap().count(), 0);
    }
}

/// Nothing is written next to the root.
#[tokio::test]
async fn the_root_is_no_object() {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    let op = Operator::new(RingwayFs::default().root(root.to_str().unwrap())).unwrap();
    op.write("./a/./object", "x").await.unwrap();
    assert_eq!(std::fs::read(root.join("a/object")).unwrap(), b"x");
    let refused = Some(ErrorKind::IsADirectory);
    for key in [".", "./."] {
        assert_eq!(kind(op.write(key, "x").await), refused);
        assert_eq!(kind(op.write_with(key, "x").append(true).await), refused);
        assert_eq!(kind(op.copy("a/object", key).await), refused);
        assert_eq!(kind(op.rename("a/object", key).await), refused);
    }
    // It is created by whatever is written first.
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(kind(op.write(".", "x").await), refused);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn files_that_are_written_may_be_elsewhere() {
    let staging = tempfile::tempdir().unwrap();
    let files = Files::with(|builder| builder.atomic_write_dir(staging.path().to_str().unwrap()));
    for content in ["first", "second"] {
        files.op.write("dir/object", content).await.unwrap();
        assert_eq!(files.op.read("dir/object").await.unwrap().to_vec(), content.as_bytes());
    }
    assert_eq!(std::fs::read_dir(staging.path()).unwrap().count(), 0);
    let elsewhere = ringway_opendal::RingwayFs::default()
        .root(staging.path().to_str().unwrap())
        .atomic_write_dir("/proc/self");
    let refused = kind(opendal_core::Operator::new(elsewhere));
    assert_eq!(refused, Some(ErrorKind::ConfigInvalid));
    let rootless = ringway_opendal::RingwayFs::default().durability(Durability::Full);
    assert_eq!(kind(opendal_core::Operator::new(rootless)), Some(ErrorKind::ConfigInvalid));
}
