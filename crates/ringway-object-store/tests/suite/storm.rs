//! A storm of writes and reads that are dropped at random points: afterwards nothing is in flight,
//! no staged file is left, and every object is one that was written as a whole.

use super::RingwayFileSystem;
use super::object_store::ObjectStoreExt;
use super::object_store::path::Path;
use crate::common::{engines, runtime, scratch, tree, until_idle, until_unstaged};
use futures::{StreamExt, stream};
use std::future::poll_fn;
use std::pin::pin;

const TASKS: u64 = 16;
const ROUNDS: u64 = 60;
/// Bytes of the objects that are put, of which the short ones are written by one call.
const SHORT: usize = 1000;
const LEN: usize = 300_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Polls a future at most this many times, and drops it.
async fn polls(future: impl Future<Output = ()>, times: u64) {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|cx| match left {
        0 => std::task::Poll::Ready(()),
        _ => {
            left -= 1;
            let polled = future.as_mut().poll(cx);
            if left == 0 { std::task::Poll::Ready(()) } else { polled }
        }
    })
    .await;
}

/// One call. Objects are removed and renamed meanwhile, so errors are expected.
async fn call(store: &RingwayFileSystem, which: u64, path: &Path, other: &Path, fill: u8) {
    match which {
        0 => _ = store.put(path, vec![fill; SHORT].into()).await,
        1 => _ = store.put(path, vec![fill; LEN].into()).await,
        2 | 3 => {
            let Ok(mut upload) = store.put_multipart(path).await else { return };
            let parts: Vec<_> =
                (0..3).map(|_| upload.put_part(vec![fill; LEN / 3].into())).collect();
            stream::iter(parts).buffer_unordered(2).for_each(async |_| ()).await;
            match fill % 4 {
                0 => _ = upload.abort().await,
                _ => _ = upload.complete().await,
            }
        }
        4 => match fill % 2 {
            0 => _ = store.copy_if_not_exists(other, path).await,
            _ => _ = store.copy(other, path).await,
        },
        5 => _ = store.rename(other, path).await,
        6 => _ = store.delete(path).await,
        _ => {
            let Ok(got) = store.get(path).await else { return };
            let mut stream = got.into_stream();
            while let Some(Ok(bytes)) = stream.next().await {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
            }
        }
    }
}

#[test]
fn dropped_calls_leave_nothing() {
    for engine in engines() {
        for fsync in [false, true] {
            let dir = scratch();
            let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
            let store = store.with_engine(&engine).with_fsync(fsync);
            runtime().block_on(async {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|task| {
                        let store = store.clone();
                        tokio::spawn(async move {
                            let mut random = Random(task);
                            for _ in 0..ROUNDS {
                                let [path, other] =
                                    [(); 2].map(|()| Path::from(format!("d/{}", random.below(4))));
                                let which = random.below(8);
                                let fill = random.below(255) as u8;
                                let times = 1 + random.below(12);
                                polls(call(&store, which, &path, &other, fill), times).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
                until_idle(&engine).await;
                until_unstaged(dir.path()).await;
            });
            let objects: Vec<_> = tree(dir.path())
                .into_iter()
                .filter_map(|(name, (_, c))| Some((name, c?)))
                .collect();
            println!("{}: fsync {fsync}: {} objects", engine.backend(), objects.len());
            for (name, content) in objects {
                assert!([SHORT, LEN].contains(&content.len()), "{name}: {} bytes", content.len());
                assert!(content.iter().all(|byte| *byte == content[0]), "{name} is torn");
            }
        }
    }
}
