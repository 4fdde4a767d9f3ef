//! Futures and writers that are dropped.

use crate::support::{bytes, each};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// Polls a future some times and drops it.
async fn begin(future: impl Future, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_write_leaves_the_old_object_or_the_new() {
    for files in each() {
        let new = bytes(700_000);
        for polls in 0..12 {
            files.op.write("object", "old").await.unwrap();
            begin(files.op.write("object", new.clone()), polls).await;
            // What had begun ends.
            let mut found = std::fs::read(files.path("object")).unwrap();
            assert!(found == b"old" || found == new, "{} bytes", found.len());
            begin(files.op.write("other", new.clone()), polls).await;
            found = std::fs::read(files.path("other")).unwrap_or_default();
            assert!(found.is_empty() || found == new, "{} bytes", found.len());
        }
        files.settles_to_either(&["object"], &["object", "other"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_writer_leaves_nothing() {
    for files in each() {
        files.op.write("object", "old").await.unwrap();
        for concurrent in [1, 4] {
            for key in ["object", "new"] {
                let writer = files.op.writer_with(key).concurrent(concurrent);
                let mut writer = writer.await.unwrap();
                for _ in 0..4 {
                    writer.write(bytes(300_000)).await.unwrap();
                }
                drop(writer);
            }
        }
        files.settles_to(&["object"]).await;
        assert_eq!(files.op.read("object").await.unwrap().to_vec(), b"old");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_copy_leaves_nothing_or_a_copy() {
    for files in each() {
        let content = bytes(20_000_000);
        std::fs::write(files.path("source"), &content).unwrap();
        for polls in 0..10 {
            begin(files.op.copy("source", "copy"), polls).await;
            if let Ok(found) = std::fs::read(files.path("copy")) {
                assert!(found == content, "{} bytes", found.len());
            }
        }
        files.settles_to_either(&["source"], &["copy", "source"]).await;
    }
}

#[tokio::test]
async fn dropped_reads_do_no_harm() {
    for files in each() {
        let content = bytes(2_000_000);
        files.op.write("object", content.clone()).await.unwrap();
        let reader = files.op.reader("object").await.unwrap();
        for polls in 0..5 {
            begin(reader.read(0..2_000_000), polls).await;
            begin(files.op.read("object"), polls).await;
            begin(files.op.list("/"), polls).await;
        }
        assert!(reader.read(..).await.unwrap().to_vec() == content);
    }
}
