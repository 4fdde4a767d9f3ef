use crate::support::{Files, each, kind};
use opendal_core::ErrorKind;
use std::collections::BTreeMap;

const REFUSED: Option<ErrorKind> = Some(ErrorKind::ConditionNotMatch);

/// With the host's file service and its `atomic_write_dir` both writers succeed, and the object is
/// that of the last close (opendal 0.59.5).
#[tokio::test]
async fn of_two_writers_the_first_to_close_succeeds() {
    let staging = tempfile::tempdir().unwrap();
    let mut all = each();
    all.push(Files::with(|builder| builder.atomic_write_dir(staging.path().to_str().unwrap())));
    for files in all {
        for len in [10, 1_000_000] {
            let mut first = files.op.writer_with("lock").if_not_exists(true).await.unwrap();
            let mut second = files.op.writer_with("lock").if_not_exists(true).await.unwrap();
            for piece in 0..3 {
                first.write(vec![piece; len]).await.unwrap();
                second.write(vec![9; len]).await.unwrap();
            }
            first.close().await.unwrap();
            assert_eq!(kind(second.close().await), REFUSED);
            let found = files.op.read("lock").await.unwrap().to_vec();
            assert!(found.len() == 3 * len && !found.contains(&9));
            assert_eq!(kind(files.op.write_with("lock", "x").if_not_exists(true).await), REFUSED);
            files.settles_to(&["lock"]).await;
            files.op.delete("lock").await.unwrap();
        }
    }
}

/// However many try at the same time, by whatever operation, one of them makes the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_succeeds() {
    for files in each() {
        for round in 0..10 {
            let key = format!("lock-{round}");
            let mut tasks = Vec::new();
            for task in 0..24 {
                let (op, key) = (files.op.clone(), key.clone());
                let source = format!("source-{round}-{task}");
                op.write(&source, task.to_string()).await.unwrap();
                tasks.push(tokio::spawn(async move {
                    let result = match task % 3 {
                        0 => op.write_with(&key, task.to_string()).if_not_exists(true).await,
                        1 => op.copy_with(&source, &key).if_not_exists(true).await,
                        _ => {
                            let renamed = op.rename_with(&source, &key).if_not_exists(true).await;
                            return (task, renamed.err().map(|error| error.kind()));
                        }
                    };
                    (task, result.err().map(|error| error.kind()))
                }));
            }
            let mut by_result = BTreeMap::new();
            for task in tasks {
                let (task, result) = task.await.unwrap();
                by_result.entry(result.map(|kind| kind.to_string())).or_insert(vec![]).push(task);
            }
            let winners = by_result.remove(&None).unwrap();
            assert_eq!(winners.len(), 1, "{winners:?}");
            assert_eq!(by_result.into_keys().collect::<Vec<_>>(), [REFUSED.map(|k| k.to_string())]);
            let found = files.op.read(&key).await.unwrap().to_vec();
            assert_eq!(found, winners[0].to_string().into_bytes());
        }
    }
}

#[tokio::test]
async fn appends_may_have_the_condition() {
    for files in each() {
        let append = || files.op.writer_with("log").append(true).if_not_exists(true);
        let mut writer = append().await.unwrap();
        writer.write("x").await.unwrap();
        writer.close().await.unwrap();
        let mut writer = append().await.unwrap();
        assert_eq!(kind(writer.write("y").await), REFUSED);
        assert_eq!(std::fs::read(files.path("log")).unwrap(), b"x");
    }
}

/// An object is replaced as a whole, however many write it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_one_version() {
    for files in each() {
        let content = |version: u8| vec![version; 70_000 + usize::from(version)];
        files.op.write("object", content(0)).await.unwrap();
        let writers: Vec<_> = (1..5)
            .map(|version| {
                let op = files.op.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        op.write("object", content(version)).await.unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let reader = files.op.reader("object").await.unwrap();
            let found = reader.read(0..70_000).await.unwrap().to_vec();
            assert!(found == vec![found[0]; 70_000]);
        }
        for writer in writers {
            writer.await.unwrap();
        }
        files.settles_to(&["object"]).await;
    }
}
