//! TPC-H's queries have equal answers through both stores.

use datafusion::prelude::SessionContext;
use ringway_datafusion_tests::{Answer, session, tpch};
use tokio::sync::OnceCell;

/// The answers of DataFusion on its own store, in one partition.
pub async fn expected(query: usize) -> &'static Answer {
    static ANSWERS: [OnceCell<Answer>; 22] = [const { OnceCell::const_new() }; 22];
    let answer = ANSWERS[query - 1].get_or_init(|| async {
        let session = session::local(1);
        tpch::register(&session).await.unwrap();
        Answer::of(&session, tpch::sql(query)).await.unwrap()
    });
    answer.await
}

async fn check(session: &SessionContext, queries: impl IntoIterator<Item = usize>, on: &str) {
    tpch::register(session).await.unwrap();
    for query in queries {
        let answer = Answer::of(session, tpch::sql(query)).await;
        let answer = answer.unwrap_or_else(|error| panic!("query {query} {on}: {error}"));
        assert_eq!(&answer, expected(query).await, "query {query} {on}");
    }
}

/// All queries on the default engine, as a program gets it from `register`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_queries_on_the_default_engine() {
    let session = session::local(2);
    ringway_datafusion::register(&session);
    check(&session, tpch::QUERIES, "on the default engine").await;
}

/// All queries on each backend, direct and buffered: each query in 1, 2 or 8 partitions, another
/// number on each of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_queries_on_each_backend() {
    for (number, backend) in session::BACKENDS.into_iter().enumerate() {
        for direct in [false, true] {
            for (third, partitions) in [1, 2, 8].into_iter().enumerate() {
                let Some((session, engine)) = session::on(backend, direct, partitions) else {
                    continue;
                };
                let on = format!("on {backend:?}, direct {direct}, {partitions} partitions");
                let turn = |query: &usize| (query + number + usize::from(direct)) % 3 == third;
                check(&session, tpch::QUERIES.filter(turn), &on).await;
                session::idle(&engine).await.unwrap();
            }
        }
    }
}

/// The answers are those that TPC-H's data must have, not only equal: an empty table would have
/// equal answers too.
#[tokio::test]
async fn answers_have_rows() {
    for query in tpch::QUERIES {
        let rows = expected(query).await.rows.len();
        assert!(rows > 0, "query {query}");
    }
    let session = session::local(2);
    tpch::register(&session).await.unwrap();
    let orders = Answer::of(&session, "SELECT count(*) AS orders FROM orders").await.unwrap();
    assert_eq!(orders.rows, [["150000"]]);
}
