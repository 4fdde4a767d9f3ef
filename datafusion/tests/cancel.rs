//! Queries that are dropped, aborted or limited, and runtimes that end with queries: nothing stays
//! in flight, and the engine works for the next query.

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::StreamExt;
use ringway_datafusion::RingwayFileSystem;
use ringway_datafusion::ringway::Engine;
use ringway_datafusion_tests::{Answer, files, session, tpch};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const SCAN: &str = "SELECT l_comment, l_orderkey FROM lineitem";
const JOIN: &str = "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_partkey = b.l_partkey";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// After `cancelled`, nothing is in flight and a query gives the right answer, on each backend.
fn check(cancelled: impl AsyncFn(SessionContext)) {
    for backend in session::BACKENDS {
        for direct in [false, true] {
            let Some((session, engine)) = session::on(backend, direct, 4) else { continue };
            runtime().block_on(async {
                tpch::register(&session).await.unwrap();
                cancelled(session.clone()).await;
                session::idle(&engine).await.unwrap();
                let count =
                    Answer::of(&session, "SELECT count(*) AS n, sum(o_custkey) AS s FROM orders");
                assert_eq!(count.await.unwrap().rows[0][0], "150000", "{backend:?}");
                session::idle(&engine).await.unwrap();
            });
        }
    }
}

#[test]
fn a_dropped_stream_leaves_nothing_in_flight() {
    check(async |session| {
        for taken in [0, 1, 3] {
            let mut stream = session.sql(SCAN).await.unwrap().execute_stream().await.unwrap();
            for _ in 0..taken {
                stream.next().await.unwrap().unwrap();
            }
        }
    });
}

#[test]
fn an_aborted_task_leaves_nothing_in_flight() {
    check(async |session| {
        let (started, start) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let mut stream = session.sql(SCAN).await.unwrap().execute_stream().await.unwrap();
            stream.next().await.unwrap().unwrap();
            started.send(()).unwrap();
            while stream.next().await.is_some() {}
            std::future::pending::<()>().await;
        });
        start.await.unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn a_timeout_leaves_nothing_in_flight() {
    check(async |session| {
        for micros in [1, 200, 2000] {
            let query = async { session.sql(JOIN).await?.collect().await };
            // Whether it expires does not matter: what is in flight when it does, does.
            let _ = tokio::time::timeout(Duration::from_micros(micros), query).await;
        }
    });
}

#[test]
fn a_limit_leaves_nothing_in_flight() {
    check(async |session| {
        let query = "SELECT l_comment FROM lineitem WHERE l_quantity > 10 LIMIT 3";
        assert_eq!(Answer::of(&session, query).await.unwrap().rows.len(), 3);
    });
}

/// A query that is dropped while the next row group is prefetched.
#[test]
fn a_dropped_prefetch_leaves_nothing_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    files::write_numbers(&folder.path().join("1.parquet"), 0..50_000).unwrap();
    for backend in session::BACKENDS {
        // No read is taken for cached, so each row group is prefetched.
        let builder = Engine::builder().try_cached(false);
        let Some(engine) = session::build(backend, builder) else { continue };
        let store = RingwayFileSystem::new().with_engine(&engine);
        let session = session::ringway(store, 1);
        runtime().block_on(async {
            register(&session, folder.path()).await;
            for taken in 0..4 {
                let query = session.sql("SELECT * FROM numbers").await.unwrap();
                let mut stream = query.execute_stream().await.unwrap();
                for _ in 0..taken {
                    stream.next().await.unwrap().unwrap();
                }
                drop(stream);
                session::idle(&engine).await.unwrap();
            }
            let sum = Answer::of(&session, "SELECT sum(id) AS s FROM numbers").await.unwrap();
            assert_eq!(sum.rows, [[(0..50_000i64).sum::<i64>().to_string()]]);
            session::idle(&engine).await.unwrap();
        });
    }
}

/// A runtime ends while its queries read. Another runtime goes on with the same engine and store.
#[test]
fn a_runtime_may_end_with_queries_in_flight() {
    for backend in session::BACKENDS {
        let Some((session, engine)) = session::on(backend, true, 4) else { continue };
        let first = runtime();
        first.block_on(async {
            tpch::register(&session).await.unwrap();
            for _ in 0..4 {
                let session = session.clone();
                let (started, start) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    let mut stream =
                        session.sql(SCAN).await.unwrap().execute_stream().await.unwrap();
                    stream.next().await.unwrap().unwrap();
                    let _ = started.send(());
                    while stream.next().await.is_some() {}
                });
                start.await.unwrap();
            }
        });
        first.shutdown_background();
        runtime().block_on(async {
            let answer = Answer::of(&session, "SELECT sum(o_custkey) > 0 AS s FROM orders").await;
            assert_eq!(answer.unwrap().rows, [["true"]]);
            session::idle(&engine).await.unwrap();
        });
    }
}

/// Several runtimes use one session at the same time.
#[test]
fn runtimes_share_a_session() {
    let folder = tempfile::tempdir().unwrap();
    files::write_numbers(&folder.path().join("1.parquet"), 0..50_000).unwrap();
    let session = session::local(2);
    ringway_datafusion::register(&session);
    let table = register(&session, folder.path());
    runtime().block_on(table);
    std::thread::scope(|scope| {
        for threads in [0, 1, 2, 3] {
            let session = &session;
            scope.spawn(move || {
                let runtime = match threads {
                    0 => Builder::new_current_thread().enable_all().build().unwrap(),
                    threads => Builder::new_multi_thread()
                        .worker_threads(threads)
                        .enable_all()
                        .build()
                        .unwrap(),
                };
                for _ in 0..5 {
                    let sum = Answer::of(session, "SELECT sum(id) AS s FROM numbers");
                    let sum = runtime.block_on(sum).unwrap();
                    assert_eq!(sum.rows, [[(0..50_000i64).sum::<i64>().to_string()]]);
                }
            });
        }
    });
}

async fn register(session: &SessionContext, folder: &Path) {
    let folder = folder.to_str().unwrap();
    session.register_parquet("numbers", folder, ParquetReadOptions::default()).await.unwrap();
}

/// Many queries at once on one small engine.
#[test]
fn many_queries_share_an_engine() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..8 {
        let path = folder.path().join(format!("{file}.parquet"));
        files::write_numbers(&path, file * 4000..(file + 1) * 4000).unwrap();
    }
    for backend in session::BACKENDS {
        let Some((session, engine)) = session::on(backend, true, 4) else { continue };
        runtime().block_on(async {
            register(&session, folder.path()).await;
            let queries = (0..100).map(|query| {
                let session = session.clone();
                tokio::spawn(async move {
                    let sql = format!("SELECT sum(id) AS s FROM numbers WHERE id >= {query}");
                    let answer = Answer::of(&session, &sql).await.unwrap();
                    assert_eq!(answer.rows, [[(query..32_000i64).sum::<i64>().to_string()]]);
                })
            });
            for query in queries.collect::<Vec<_>>() {
                query.await.unwrap();
            }
            session::idle(&engine).await.unwrap();
        });
    }
}
