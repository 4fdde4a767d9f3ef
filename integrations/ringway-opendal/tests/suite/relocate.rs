use crate::support::{bytes, each, kind};
use opendal_core::ErrorKind;
use std::os::unix::fs::PermissionsExt;

/// A copy is an object of its own: an append to it does not change the source.
#[tokio::test]
async fn a_copy_is_another_object() {
    for files in each() {
        for len in [0, 5, 20_000_000] {
            let content = bytes(len);
            std::fs::write(files.path("source"), &content).unwrap();
            std::fs::set_permissions(files.path("source"), PermissionsExt::from_mode(0o640))
                .unwrap();
            files.op.copy("source", "dir/copy").await.unwrap();
            assert!(std::fs::read(files.path("dir/copy")).unwrap() == content);
            let mode = files.path("dir/copy").metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
            let mut writer = files.op.writer_with("dir/copy").append(true).await.unwrap();
            writer.write("more").await.unwrap();
            writer.close().await.unwrap();
            assert_eq!(files.op.stat("source").await.unwrap().content_length(), len as u64);
        }
        assert_eq!(files.on_disk(), ["dir/", "dir/copy", "source"]);
    }
}

/// Also what this service does not show: what is no text.
#[tokio::test]
async fn a_copy_has_all_of_the_users_metadata() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    for files in each() {
        files.op.write("source", "x").await.unwrap();
        let attributes: [(&str, &[u8]); 3] =
            [("user.text", b"text"), ("user.bytes", b"\xff\0\xfe"), ("user.empty", b"")];
        for (name, value) in attributes {
            if setxattr(files.path("source"), name, value, XattrFlags::empty()).is_err() {
                return println!("skipped: the temporary folder has no such attributes");
            }
        }
        files.op.copy("source", "copy").await.unwrap();
        for (name, value) in attributes {
            let mut found = [0; 16];
            let len = getxattr(files.path("copy"), name, &mut found).unwrap();
            assert_eq!(&found[..len], value, "{name}");
        }
    }
}

#[tokio::test]
async fn copies_and_renames_replace() {
    for files in each() {
        files.op.write("source", "new").await.unwrap();
        files.op.write("copy", "old content").await.unwrap();
        files.op.write("dir/renamed", "old content").await.unwrap();
        files.op.copy("source", "copy").await.unwrap();
        assert_eq!(files.op.read("copy").await.unwrap().to_vec(), b"new");
        let refused = Some(ErrorKind::ConditionNotMatch);
        assert_eq!(kind(files.op.copy_with("source", "copy").if_not_exists(true).await), refused);
        let rename = files.op.rename_with("source", "copy").if_not_exists(true);
        assert_eq!(kind(rename.await), refused);
        files.op.rename("source", "dir/renamed").await.unwrap();
        assert_eq!(files.op.read("dir/renamed").await.unwrap().to_vec(), b"new");
        files.op.rename("dir/renamed", "new/dir/object").await.unwrap();
        files.settles_to(&["copy", "dir/", "new/", "new/dir/", "new/dir/object"]).await;
    }
}

#[tokio::test]
async fn what_cannot_be_moved_has_a_kind() {
    for files in each() {
        files.op.write("object", "x").await.unwrap();
        files.op.create_dir("dir/").await.unwrap();
        for missing in ["missing", "missing/below", "object/below"] {
            assert_eq!(kind(files.op.copy(missing, "to").await), Some(ErrorKind::NotFound));
            assert_eq!(kind(files.op.rename(missing, "to").await), Some(ErrorKind::NotFound));
        }
        assert_eq!(kind(files.op.copy("dir", "to").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.copy("dir/", "to").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.copy("object", "dir").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.rename("object", "dir").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.copy("object", "object").await), Some(ErrorKind::IsSameFile));
        assert_eq!(kind(files.op.create_dir("object/").await), Some(ErrorKind::AlreadyExists));
        let fifo = files.path("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(kind(files.op.copy("fifo", "to").await), Some(ErrorKind::Unsupported));
        files.settles_to(&["dir/", "fifo", "object"]).await;
    }
}
