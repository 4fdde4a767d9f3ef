//! TPC-H's queries on a cluster of Ballista have the answers of one process, and none is wrong when
//! something fails.

mod cluster;

use crate::tpch::expected;
use cluster::{Cluster, PATIENCE, soon, wait_for};
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use ringway::{BackendKind, Engine};
use ringway_ballista::client;
use ringway_datafusion_tests::{Answer, session, tpch};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Checks answers of a cluster.
async fn check(session: &SessionContext, queries: impl IntoIterator<Item = usize>, on: &str) {
    tpch::register(session).await.unwrap();
    for query in queries {
        let what = format!("an answer to query {query} on {on}");
        let answer = soon(&what, Answer::of(session, tpch::sql(query))).await.unwrap();
        let answer = answer.unwrap_or_else(|error| panic!("query {query} on {on}: {error}"));
        assert_eq!(&answer, expected(query).await, "query {query} on {on}");
    }
}

/// The reads and writes that an engine has done.
fn done(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.cached + stats.counts.pushed
}

fn engines() -> [Engine; 2] {
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    [Engine::builder().build().unwrap(), threads]
}

/// All queries, on an executor with the best backend and one with threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_queries_on_a_cluster() {
    let engines = engines();
    let cluster = Cluster::start(&engines.clone().map(Some)).await.unwrap();
    check(&cluster.session(|config| config), tpch::QUERIES, "a cluster").await;
    for engine in &engines {
        assert!(done(engine) > 0);
        soon("an engine to be idle", session::idle(engine)).await.unwrap().unwrap();
    }
}

/// Some queries with joins and large shuffles, on each backend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_on_each_backend() {
    for backend in session::BACKENDS {
        let Some(engine) = session::engine(backend) else { continue };
        let both = [Some(engine.clone()), Some(engine.clone())];
        let cluster = Cluster::start(&both).await.unwrap();
        check(&cluster.session(|config| config), [3, 13], &format!("{backend:?}")).await;
        assert!(done(&engine) > 0);
    }
}

/// An executor without ringway reads what one with it has written, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_be_mixed() {
    let engine = Engine::builder().build().unwrap();
    let cluster = Cluster::start(&[Some(engine), None]).await.unwrap();
    check(&cluster.session(|config| config), [5, 13, 18], "a mixed cluster").await;
    // Everything over the network, encoded anew by the sender.
    let session = cluster.session(|config| {
        config
            .set_bool("ballista.shuffle.force_remote_read", true)
            .set_bool("ballista.shuffle.remote_read_prefer_flight", true)
    });
    check(&session, [10], "a mixed cluster, by Flight").await;
    let session = cluster.session(|config| {
        config
            .set_bool("ballista.shuffle.force_remote_read", true)
            .set_str("ballista.shuffle.compression.codec", "none")
    });
    check(&session, [10], "a mixed cluster, uncompressed").await;
}

/// A query of which an executor is killed has its answer in the end, or an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_is_killed() {
    let engines = engines();
    // The scheduler gives up an executor after this time.
    let seconds = 10;
    let mut cluster = Cluster::start_with(&engines.clone().map(Some), seconds).await.unwrap();
    let session = cluster.session(|config| config);
    tpch::register(&session).await.unwrap();
    let before = done(&engines[1]);
    let query = tokio::spawn(async move { Answer::of(&session, tpch::sql(9)).await });
    let has_begun = || done(&engines[1]) > before + 10 || query.is_finished();
    wait_for("the executor to read", has_begun).await.unwrap();
    cluster.executors[1] = None;
    match soon("the query to end", query).await.unwrap().unwrap() {
        Ok(answer) => assert_eq!(&answer, expected(9).await),
        Err(error) => println!("an error: {error}"),
    }
    // The rest of the cluster still answers.
    let session = cluster.session(|config| config);
    check(&session, [6], "the other executor").await;
}

/// A cancelled query ends on the executors, which have nothing in flight after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_cancelled() {
    let engines = engines();
    let cluster = Cluster::start(&engines.clone().map(Some)).await.unwrap();
    let session = cluster.session(|config| config);
    tpch::register(&session).await.unwrap();
    // The scheduler has the other engine.
    let before = done(&engines[1]);
    // Reads the same table many times.
    let tables = vec!["SELECT l_comment FROM lineitem"; 300].join(" UNION ALL ");
    let sql = format!("SELECT sum(length(l_comment)) FROM ({tables})");
    let plan = session.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
    let query = tokio::spawn(collect(plan.clone(), session.task_ctx()));
    let has_begun = || done(&engines[1]) > before + 10 || query.is_finished();
    wait_for("the executor to read", has_begun).await.unwrap();
    let jobs = client::jobs(plan.as_ref());
    assert_eq!(jobs.len(), 1);
    client::cancel(&cluster.scheduler, &jobs[0]).await.unwrap();
    let error = soon("the query to end", query).await.unwrap().unwrap().unwrap_err().to_string();
    assert!(error.contains("Cancelled"), "{error}");
    // Its tasks hold no processor any more: another query runs.
    check(&cluster.session(|config| config), [6], "the cluster").await;
    for engine in &engines {
        soon("an engine to be idle", session::idle(engine)).await.unwrap().unwrap();
    }
}

/// A table file that is damaged is an error. It has the path if an executor reads the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_file_is_damaged() {
    let cluster = Cluster::start(&engines().map(Some)).await.unwrap();
    // For statistics, the scheduler reads the metadata of a file when it plans. DataFusion's error
    // has no path then.
    for (scheduler_reads, text) in [(false, "damaged.parquet"), (true, "Corrupt footer")] {
        let name = "datafusion.execution.collect_statistics";
        let session = cluster.session(|config| config.set_bool(name, scheduler_reads));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("damaged.parquet");
        std::fs::copy(tpch::folder().join("supplier/part-1.parquet"), &file).unwrap();
        let path = file.to_str().unwrap();
        session.register_parquet("damaged", path, ParquetReadOptions::default()).await.unwrap();
        let opened = File::options().write(true).open(&file).unwrap();
        opened.set_len(opened.metadata().unwrap().len() / 2).unwrap();
        let answer = Answer::of(&session, "SELECT min(s_comment) FROM damaged");
        let error = soon("an error", answer).await.unwrap().unwrap_err().to_string();
        assert!(error.contains(text), "{scheduler_reads}: {error}");
    }
}

/// Shuffle files that are cut in the middle of a query never give a wrong answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shuffle_files_are_damaged() {
    let cluster = Cluster::start(&engines().map(Some)).await.unwrap();
    let session = cluster.session(|config| config);
    tpch::register(&session).await.unwrap();
    let folders: Vec<PathBuf> =
        cluster.executors.iter().flatten().map(|one| one.work_dir.path().to_owned()).collect();
    let mut query = tokio::spawn(async move { Answer::of(&session, tpch::sql(13)).await });
    let mut damaged = HashSet::new();
    let start = std::time::Instant::now();
    let answer = loop {
        assert!(start.elapsed() < PATIENCE, "the query does not end");
        for folder in &folders {
            for file in shuffle_files(folder) {
                // Not all: a task whose output is damaged every time is repeated too often.
                if damaged.len() < 3 && damaged.insert(file.clone()) {
                    damage(&file);
                }
            }
        }
        let pause = tokio::time::timeout(std::time::Duration::from_millis(1), &mut query).await;
        if let Ok(answer) = pause {
            break answer.unwrap();
        }
    };
    assert!(!damaged.is_empty());
    match answer {
        Ok(answer) => assert_eq!(&answer, expected(13).await),
        Err(error) => println!("an error: {error}"),
    }
}

/// The data files, of tasks that are done, in a work directory: work/JOB/STAGE/TASK/data.arrow.
fn shuffle_files(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        // The executor may be removing it.
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().is_some_and(|path| path.ends_with("data.arrow.index")) {
                files.push(path.with_extension(""));
            }
        }
    }
    files
}

fn damage(path: &Path) {
    if let Ok(file) = File::options().write(true).open(path) {
        file.set_len(file.metadata().map_or(0, |metadata| metadata.len() / 2)).unwrap();
    }
}
