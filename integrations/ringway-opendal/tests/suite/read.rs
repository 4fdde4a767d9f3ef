use crate::support::{bytes, each, kind};
use opendal_core::{BytesRange, ErrorKind};

#[tokio::test]
async fn ranges_are_read() {
    for files in each() {
        let content = bytes(3_000_000);
        std::fs::write(files.path("object"), &content).unwrap();
        let reader = files.op.reader("object").await.unwrap();
        for range in [0..0, 0..1, 5..4096, 1_000_000..2_999_999, 2_999_999..3_000_000, 0..3_000_000]
        {
            let read = reader.read(range.clone()).await.unwrap().to_vec();
            assert!(read == content[range.start as usize..range.end as usize], "{range:?}");
        }
        assert!(reader.read(2_000_000..).await.unwrap().to_vec() == content[2_000_000..]);
        assert!(files.op.read("object").await.unwrap().to_vec() == content);
        let fetched = reader.fetch(vec![10..20, 2_500_000..2_500_010, 15..30]).await.unwrap();
        let fetched: Vec<_> = fetched.iter().map(|part| part.to_vec()).collect();
        assert_eq!(fetched, [&content[10..20], &content[2_500_000..2_500_010], &content[15..30]]);
    }
}

#[tokio::test]
async fn suffixes_are_read() {
    for files in each() {
        std::fs::write(files.path("object"), "0123456789").unwrap();
        for (size, expected) in [(3, "789"), (10, "0123456789"), (100, "0123456789"), (0, "")] {
            let read = files.op.read_with("object").range(BytesRange::suffix(size)).await.unwrap();
            assert_eq!(read.to_vec(), expected.as_bytes());
        }
    }
}

#[tokio::test]
async fn ranges_that_end_after_the_object_are_refused() {
    for files in each() {
        std::fs::write(files.path("object"), bytes(5000)).unwrap();
        let reader = files.op.reader("object").await.unwrap();
        for range in [
            0..5001,
            4999..6000,
            5000..5001,
            9000..9001,
            0..1 << 40,
            i64::MAX as u64 - 1..i64::MAX as u64 + 5,
            u64::MAX - 9..u64::MAX,
        ] {
            let refused = kind(reader.read(range.clone()).await);
            assert_eq!(refused, Some(ErrorKind::RangeNotSatisfied), "{range:?}");
        }
    }
}

/// As a program reads that has opened a version: a writer that replaces it does not mix two.
#[tokio::test]
async fn a_reader_keeps_the_object_that_it_opened() {
    for files in each() {
        files.op.write("object", "first").await.unwrap();
        let reader = files.op.reader("object").await.unwrap();
        assert_eq!(reader.read(0..2).await.unwrap().to_vec(), b"fi");
        files.op.write("object", "other").await.unwrap();
        assert_eq!(reader.read(2..5).await.unwrap().to_vec(), b"rst");
        assert_eq!(files.op.read("object").await.unwrap().to_vec(), b"other");
    }
}

#[tokio::test]
async fn what_is_no_object_has_a_kind() {
    for files in each() {
        files.op.write("dir/object", "content").await.unwrap();
        assert_eq!(kind(files.op.read("missing").await), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.op.read("dir/object/below").await), Some(ErrorKind::NotFound));
        assert_eq!(
            kind(files.op.read_with("dir").range(0..4).await),
            Some(ErrorKind::IsADirectory)
        );
        assert_eq!(kind(files.op.read("dir/").await), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(files.op.stat("missing").await), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.op.stat("dir/object/").await), Some(ErrorKind::NotFound));
        assert!(files.op.stat("dir/").await.unwrap().is_dir());
        assert!(!files.op.exists("dir/object/below").await.unwrap());
        let error = files.op.read("missing").await.unwrap_err().to_string();
        for part in ["errno: 2", "path: missing", "service: ringway-fs", "step: "] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

/// As the host's file service: what is outside the root does not exist.
#[tokio::test]
async fn keys_do_not_lead_out_of_the_root() {
    for files in each() {
        for key in ["../outside", "a/../../outside", "a/..", ".."] {
            let not_found = Some(ErrorKind::NotFound);
            assert_eq!(kind(files.op.read(key).await), not_found, "{key}");
            assert_eq!(kind(files.op.stat(key).await), not_found, "{key}");
            assert_eq!(kind(files.op.write(key, "x").await), not_found, "{key}");
            assert_eq!(kind(files.op.delete(key).await), not_found, "{key}");
            assert_eq!(kind(files.op.list(key).await), not_found, "{key}");
            assert_eq!(kind(files.op.create_dir(&format!("{key}/")).await), not_found, "{key}");
            assert_eq!(kind(files.op.copy(key, "copy").await), not_found, "{key}");
            assert_eq!(kind(files.op.rename("object", key).await), not_found, "{key}");
        }
        // The operator makes keys relative.
        files.op.write("/etc/object", "inside").await.unwrap();
        assert_eq!(std::fs::read(files.path("etc/object")).unwrap(), b"inside");
    }
}
