//! A folder of 10,000 small files.

use datafusion::prelude::ParquetReadOptions;
use ringway_datafusion_tests::{Answer, files, session};

const FILES: i64 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_small_files_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    // Hard links make 10,000 names of 100 files, which differ.
    for file in 0..FILES {
        let path = folder.path().join(format!("{file:05}.parquet"));
        if file < 100 {
            files::write_numbers(&path, file..file + 1).unwrap();
        } else {
            let first = folder.path().join(format!("{:05}.parquet", file % 100));
            std::fs::hard_link(first, path).unwrap();
        }
    }
    for backend in session::BACKENDS {
        let Some((session, engine)) = session::on(backend, false, 2) else { continue };
        let folder = folder.path().to_str().unwrap();
        session.register_parquet("numbers", folder, ParquetReadOptions::default()).await.unwrap();
        let answer = Answer::of(
            &session,
            "SELECT count(*) AS n, sum(id) AS s, max(text) > '' AS t FROM numbers",
        );
        let expected = (FILES / 100 * (0..100).sum::<i64>()).to_string();
        assert_eq!(answer.await.unwrap().rows, [["10000", &expected, "true"]], "{backend:?}");
        session::idle(&engine).await.unwrap();
    }
}
