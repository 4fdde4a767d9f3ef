//! Files on a server: it may report at the close of a file what it could not store, and it may not
//! answer.

use opendal_core::{ErrorKind, Operator};
use ringway_hostile::Hostile;
use ringway_opendal::{Durability, RingwayFs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Longer than any work takes that waits for nothing.
const LONG: Duration = Duration::from_secs(20);
const ALL: [Durability; 3] = [Durability::None, Durability::Content, Durability::Full];

/// One test at a time: a program that another one starts closes copies of all descriptors first,
/// and the server may report its error to that close.
async fn mount() -> Option<(MutexGuard<'static, ()>, Hostile)> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let alone = ALONE.lock().await;
    let hostile = Hostile::mount_or_skip(|why| {
        println!("skipped: {why}");
        assert!(std::env::var_os("CI").is_none(), "skipped with CI set: {why}");
    });
    Some((alone, hostile?))
}

fn operator(hostile: &Hostile, durability: Durability) -> Operator {
    let root = hostile.path();
    let builder = RingwayFs::default().root(root.to_str().unwrap());
    Operator::new(builder.durability(durability)).unwrap()
}

fn names(hostile: &Hostile) -> Vec<String> {
    let entries = std::fs::read_dir(hostile.backing()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Nothing has taken the object's place then.
#[tokio::test]
async fn an_error_of_the_close_is_an_error() {
    let Some((_alone, hostile)) = mount().await else { return };
    for durability in ALL {
        let files = operator(&hostile, durability);
        std::fs::write(hostile.backing().join("object"), "old").unwrap();
        for pieces in [1, 3] {
            for append in [false, true] {
                let mut writer = files.writer_with("object").append(append).await.unwrap();
                for _ in 0..pieces {
                    writer.write(vec![1; 1000]).await.unwrap();
                }
                hostile.set("* flush fail 5").unwrap();
                let error = writer.close().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unexpected);
                assert!(error.to_string().contains("os error 5"), "{error}");
                hostile.set("clear").unwrap();
                assert!(writer.close().await.is_err(), "the data may be lost");
                assert_eq!(names(&hostile), ["object"]);
                if !append {
                    let found = std::fs::read(hostile.backing().join("object")).unwrap();
                    assert_eq!(found, b"old");
                }
                std::fs::write(hostile.backing().join("object"), "old").unwrap();
            }
        }
    }
}

/// What else fails then is no reason to try again.
#[tokio::test]
async fn an_error_of_the_close_goes_before_others() {
    let Some((_alone, hostile)) = mount().await else { return };
    for durability in ALL {
        let files = operator(&hostile, durability);
        for append in [false, true] {
            std::fs::write(hostile.backing().join("object"), "old").unwrap();
            let mut writer = files.writer_with("object").append(append).await.unwrap();
            // The file exists, and only its close is left.
            for _ in 0..3 {
                writer.write(vec![1; 300_000]).await.unwrap();
            }
            hostile.set("* getattr fail 110\n* flush fail 5").unwrap();
            let error = writer.close().await.unwrap_err();
            hostile.set("clear").unwrap();
            assert!(!error.is_temporary(), "{error}");
            assert!(writer.close().await.is_err(), "the data may be lost");
            assert_eq!(names(&hostile), ["object"]);
            if !append {
                let found = std::fs::read(hostile.backing().join("object")).unwrap();
                assert_eq!(found, b"old");
            }
        }
    }
}

/// The server reports an error once, to a call that nobody waits for any more.
#[tokio::test]
async fn an_error_of_a_dropped_close_is_kept() {
    let Some((_alone, hostile)) = mount().await else { return };
    let flushes = ALL.map(|durability| (durability, "flush"));
    for (durability, operation) in flushes.into_iter().chain([(Durability::Full, "fsync")]) {
        for append in [false, true] {
            let files = operator(&hostile, durability);
            // Nothing else of this name is closed or synced.
            let dir = format!("{durability:?}-{operation}-{append}");
            let key = format!("{dir}/{dir}-object");
            let mut writer = files.writer_with(&key).append(append).await.unwrap();
            for _ in 0..3 {
                writer.write(vec![1; 300_000]).await.unwrap();
            }
            let mut file = std::fs::read_dir(hostile.backing().join(&dir)).unwrap();
            let file = file.next().unwrap().unwrap().file_name().into_string().unwrap();
            let call = match operation {
                "flush" => format!("{file} flush"),
                _ => format!("{dir} fsync"),
            };
            hostile.set(&format!("{call} fail 5 1\n{call} freeze")).unwrap();
            let inside = async |wanted| {
                while hostile.count(operation).unwrap().inside != wanted {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                closed = writer.close() => panic!("{closed:?}"),
                begun = tokio::time::timeout(LONG, inside(1)) => begun.expect("no request"),
            }
            hostile.set(&format!("{call} thaw")).unwrap();
            tokio::time::timeout(LONG, inside(0)).await.expect("no answer");
            for _ in 0..2 {
                let closed = writer.close().await;
                assert!(closed.is_err(), "{call}, append: {append}: what was written may be lost");
            }
            hostile.set("clear").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dropped_writer_waits_for_no_answer() {
    let Some((_alone, hostile)) = mount().await else { return };
    let files = operator(&hostile, Durability::None);
    let mut writer = files.writer("object").await.unwrap();
    for _ in 0..3 {
        writer.write(vec![1; 300_000]).await.unwrap();
    }
    // The file is complete, and has no name.
    hostile.set("* rename fail 16").unwrap();
    assert!(writer.close().await.unwrap_err().is_temporary());
    hostile.set("clear\n* unlink freeze\n* flush freeze").unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        drop(writer);
        sender.send(())
    });
    let dropped = receiver.recv_timeout(LONG);
    hostile.set("clear").unwrap();
    dropped.expect("it waited for the server");
    let removed = async {
        while !names(&hostile).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, removed).await.expect("the file is left");
}
