//! Multipart uploads: parts in any order, parts that are dropped or late, and calls out of turn.

use super::RingwayFileSystem;
use super::object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use crate::common::{engines, names, runtime, scratch, until, until_idle};
use bytes::Bytes;
use futures::future::join_all;
use ringway::Engine;

/// The text of the error of a call out of turn.
const ABORTED: &str = "Upload aborted";

fn store(dir: &std::path::Path, engine: &Engine) -> RingwayFileSystem {
    RingwayFileSystem::new_with_prefix(dir).unwrap().with_engine(engine)
}

fn part(fill: u8, len: usize) -> PutPayload {
    vec![fill; len].into()
}

#[test]
fn concurrent_parts_are_in_the_order_of_put_part() {
    const PARTS: usize = 40;
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        runtime().block_on(async {
            let mut upload = store.put_multipart(&"object".into()).await.unwrap();
            // Of different lengths, of several buffers, and some empty.
            let content: Vec<Vec<u8>> =
                (0..PARTS).map(|part| vec![part as u8; part % 7 * 10_001]).collect();
            let mut parts: Vec<_> = content
                .iter()
                .map(|bytes| {
                    upload.put_part(bytes.chunks(997).map(Bytes::copy_from_slice).collect())
                })
                .collect();
            parts.reverse();
            let parts = join_all(parts.into_iter().map(tokio::spawn)).await;
            for part in parts {
                part.unwrap().unwrap();
            }
            assert_eq!(names(dir.path()), ["object#1"]);
            let put = upload.complete().await.unwrap();
            assert_eq!(names(dir.path()), ["object"]);
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), content.concat());
            let head = store.head(&"object".into()).await.unwrap();
            assert_eq!(head.e_tag, put.e_tag);
        });
    }
}

#[test]
fn calls_out_of_turn_fail() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        runtime().block_on(async {
            let aborted = |error: super::object_store::Error| {
                assert!(error.to_string().ends_with(ABORTED), "{error}");
            };
            let mut upload = store.put_multipart(&"object".into()).await.unwrap();
            upload.put_part("one".into()).await.unwrap();
            upload.complete().await.unwrap();
            aborted(upload.complete().await.unwrap_err());
            aborted(upload.abort().await.unwrap_err());
            aborted(upload.put_part("late".into()).await.unwrap_err());
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"one");

            let mut upload = store.put_multipart(&"object".into()).await.unwrap();
            let late = upload.put_part("late".into());
            upload.abort().await.unwrap();
            assert_eq!(names(dir.path()), ["object"]);
            aborted(late.await.unwrap_err());
            aborted(upload.complete().await.unwrap_err());
            aborted(upload.abort().await.unwrap_err());
            drop(upload);
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"one");
        });
    }
}

/// `LocalFileSystem` publishes a file with a hole in these cases.
#[test]
fn an_unwritten_part_makes_complete_fail() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        runtime().block_on(async {
            for dropped in [false, true] {
                let mut upload = store.put_multipart(&"object".into()).await.unwrap();
                let first = upload.put_part(part(1, 3 << 20));
                let first = if dropped {
                    // Started, and dropped half-way, unless the write completed at once.
                    let mut first = first;
                    if futures::poll!(&mut first).is_ready() {
                        println!("skipped: the part was written in its first poll");
                        continue;
                    }
                    drop(first);
                    None
                } else {
                    Some(first)
                };
                upload.put_part(part(2, 10)).await.unwrap();
                let error = upload.complete().await.unwrap_err().to_string();
                assert!(error.contains("1 parts are not written"), "{error}");
                assert!(error.contains(dir.path().join("object").to_str().unwrap()), "{error}");
                match first {
                    // The missing part is written, and so the upload can be completed.
                    Some(first) => {
                        first.await.unwrap();
                        upload.complete().await.unwrap();
                        let object = std::fs::read(dir.path().join("object")).unwrap();
                        assert_eq!(object, [vec![1; 3 << 20], vec![2; 10]].concat());
                    }
                    None => upload.abort().await.unwrap(),
                }
                assert_eq!(names(dir.path()), ["object"]);
            }
            until_idle(&engine).await;
        });
    }
}

/// Writes in flight when the upload is aborted reach neither an object nor a later staged file.
#[test]
fn late_writes_reach_nothing() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        runtime().block_on(async {
            for round in 0..50 {
                let mut upload = store.put_multipart(&"object".into()).await.unwrap();
                let parts: Vec<_> = (0..4).map(|_| upload.put_part(part(0xff, 1 << 20))).collect();
                let mut parts = Box::pin(join_all(parts));
                let _ = futures::poll!(&mut parts);
                match round % 3 {
                    0 => upload.abort().await.unwrap(),
                    1 => drop(upload),
                    _ => {
                        drop(parts);
                        upload.complete().await.unwrap_err();
                    }
                }
                // Takes the same staged name if it is free.
                store.put(&"object".into(), vec![7; 4096].into()).await.unwrap();
                let object = std::fs::read(dir.path().join("object")).unwrap();
                assert!(object == [7; 4096], "round {round}: {} bytes", object.len());
            }
            until_idle(&engine).await;
            let object = std::fs::read(dir.path().join("object")).unwrap();
            assert!(object == [7; 4096], "{} bytes", object.len());
            until("staged files to be removed", || names(dir.path()) == ["object"]).await;
        });
    }
}

#[test]
fn dropping_an_upload_removes_its_file() {
    for engine in engines() {
        let dir = scratch();
        let store = store(dir.path(), &engine);
        runtime().block_on(async {
            let upload = store.put_multipart(&"a/b".into()).await.unwrap();
            let second = store.put_multipart(&"a/b".into()).await.unwrap();
            assert_eq!(names(dir.path()), ["a", "a/b#1", "a/b#2"]);
            drop((upload, second));
            until("staged files to be removed", || names(dir.path()) == ["a"]).await;
        });
        let upload = futures::executor::block_on(store.put_multipart(&"a/b".into())).unwrap();
        drop(upload);
        // By a thread in the background: a drop blocks nobody.
        let removed = until("a staged file to be removed", || names(dir.path()) == ["a"]);
        runtime().block_on(removed);
    }
}
