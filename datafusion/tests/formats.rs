//! Tables of all formats, read and written through the store: equal to DataFusion on its own store.

use datafusion::prelude::SessionContext;
use ringway_datafusion_tests::{Answer, session, tpch};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A session on the store, and one on DataFusion's own.
fn sessions() -> (SessionContext, SessionContext) {
    let ours = session::local(2);
    ringway_datafusion::register(&ours);
    (ours, session::local(2))
}

async fn run(session: &SessionContext, sql: &str) {
    session
        .sql(sql)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs the statement in both sessions, and compares the answers of the query.
async fn check_equal(statement: &str, query: &str) -> Answer {
    let (ours, theirs) = sessions();
    run(&ours, statement).await;
    run(&theirs, statement).await;
    let answer = Answer::of(&ours, query).await.unwrap();
    assert_eq!(answer, Answer::of(&theirs, query).await.unwrap(), "{statement}");
    answer
}

/// Text files of rows with an id, a number and a text.
fn write_text(folder: &Path, extension: &str, row: impl Fn(&mut String, usize)) {
    for file in 0..3 {
        let mut text = String::from(if extension == "csv" { "id,half,name\n" } else { "" });
        for id in file * 30_000..(file + 1) * 30_000 {
            row(&mut text, id);
        }
        fs::write(folder.join(format!("{file}.{extension}")), text).unwrap();
    }
}

const AGGREGATES: &str =
    "SELECT count(*) AS n, sum(id) AS ids, sum(half) AS halves, max(name) AS last FROM rows";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csv_tables_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), "csv", |text, id| {
        writeln!(text, "{id},{}.5,\"a, \"\"quoted\"\" name {id}\"", id / 2).unwrap();
    });
    let create = format!(
        "CREATE EXTERNAL TABLE rows STORED AS CSV LOCATION '{}/' \
         OPTIONS ('format.has_header' 'true')",
        folder.path().display()
    );
    let answer = check_equal(&create, AGGREGATES).await;
    assert_eq!(answer.rows[0][0], "90000");
    check_equal(&create, "SELECT * FROM rows ORDER BY id").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_tables_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), "json", |text, id| {
        writeln!(text, "{{\"id\":{id},\"half\":{}.5,\"name\":\"name {id}\"}}", id / 2).unwrap();
    });
    let create = format!(
        "CREATE EXTERNAL TABLE rows STORED AS JSON LOCATION '{}/'",
        folder.path().display()
    );
    let answer = check_equal(&create, AGGREGATES).await;
    assert_eq!(answer.rows[0][0], "90000");
    check_equal(&create, "SELECT * FROM rows ORDER BY id").await;
}

/// `COPY TO` in each format, also partitioned and compressed; what one store writes both read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_can_be_read_back() {
    let (ours, theirs) = sessions();
    tpch::register(&ours).await.unwrap();
    tpch::register(&theirs).await.unwrap();
    let expected =
        Answer::of(&theirs, "SELECT c_custkey, c_name, c_acctbal, c_mktsegment FROM customer");
    let expected = expected.await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (number, (format, partitioned)) in [
        ("STORED AS PARQUET", ""),
        ("STORED AS CSV", ""),
        ("STORED AS JSON", ""),
        ("STORED AS ARROW", ""),
        ("STORED AS PARQUET", "PARTITIONED BY (c_mktsegment)"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = folder.path().join(number.to_string());
        let target = target.display();
        let query = "SELECT c_custkey, c_name, c_acctbal, c_mktsegment FROM customer";
        run(&ours, &format!("COPY ({query}) TO '{target}/' {format} {partitioned}")).await;
        // CSV has no types; JSON has no order of columns.
        let columns = "c_custkey BIGINT, c_name VARCHAR, c_acctbal DECIMAL(15, 2), \
                       c_mktsegment VARCHAR";
        let options =
            if format.ends_with("CSV") { "OPTIONS ('format.has_header' 'true')" } else { "" };
        let create = format!(
            "CREATE EXTERNAL TABLE copy_{number} ({columns}) {format} {partitioned} \
             LOCATION '{target}/' {options}"
        );
        for session in [&ours, &theirs] {
            run(session, &create).await;
            let sql =
                format!("SELECT c_custkey, c_name, c_acctbal, c_mktsegment FROM copy_{number}");
            let answer = Answer::of(session, &sql).await.unwrap();
            assert_eq!(answer, expected, "{format} {partitioned}");
        }
        assert_eq!(staged(folder.path()), Vec::<String>::new(), "nothing temporary is left");
    }
}

/// DataFusion infers the schema of each format from what it wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_are_inferred() {
    for format in ["PARQUET", "CSV", "JSON", "ARROW"] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("rows.{}", format.to_lowercase());
        let file = folder.path().join(name).display().to_string();
        let (ours, theirs) = sessions();
        let options = if format == "CSV" { "OPTIONS ('format.has_header' 'true')" } else { "" };
        let copy = format!("COPY (SELECT value FROM generate_series(1, 100)) TO '{file}'");
        run(&ours, &format!("{copy} STORED AS {format} {options}")).await;
        for session in [&ours, &theirs] {
            let create = format!("CREATE EXTERNAL TABLE rows STORED AS {format}");
            run(session, &format!("{create} LOCATION '{file}' {options}")).await;
            let answer = Answer::of(session, "SELECT sum(value) AS sum FROM rows").await.unwrap();
            assert_eq!(answer.rows, [["5050"]], "{format}");
        }
    }
}

/// Names below a folder that are neither folders nor whole files.
fn staged(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found.extend(staged(&entry.path()));
        } else if ![".parquet", ".csv", ".json", ".arrow"]
            .iter()
            .any(|format| name.ends_with(format))
        {
            found.push(name);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserted_rows_are_read() {
    for format in ["PARQUET", "CSV", "JSON", "ARROW"] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = sessions();
        let create = format!(
            "CREATE EXTERNAL TABLE rows (a BIGINT, b VARCHAR) STORED AS {format} LOCATION '{}/'",
            folder.path().display()
        );
        run(&ours, &create).await;
        run(&ours, "INSERT INTO rows VALUES (1, 'x'), (2, 'y')").await;
        run(&ours, "INSERT INTO rows SELECT a + 2, b FROM rows").await;
        run(&theirs, &create).await;
        let query = "SELECT a, b FROM rows ORDER BY a";
        let answer = Answer::of(&ours, query).await.unwrap();
        assert_eq!(answer.rows, [["1", "x"], ["2", "y"], ["3", "x"], ["4", "y"]], "{format}");
        assert_eq!(answer, Answer::of(&theirs, query).await.unwrap(), "{format}");
    }
}

/// A table that is overwritten and read again in the same session is the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwritten_file_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.parquet").display().to_string();
    let (ours, theirs) = sessions();
    for (session, name) in [(&theirs, "theirs"), (&ours, "ours")] {
        for rows in [10, 2000] {
            let copy = format!(
                "COPY (SELECT value FROM generate_series(1, {rows})) TO '{file}' STORED AS PARQUET"
            );
            run(session, &copy).await;
            let read = session.read_parquet(&file, Default::default()).await.unwrap();
            assert_eq!(read.count().await.unwrap(), rows, "{name}");
        }
    }
}

/// Paths in every form that DataFusion takes.
#[tokio::test]
async fn paths_have_many_forms() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("with space %20 ä");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("a.csv"), "a\n1\n2\n").unwrap();
    let (ours, theirs) = sessions();
    let url = url::Url::from_file_path(odd.join("a.csv")).unwrap().to_string();
    let plain = odd.join("a.csv").display().to_string();
    let glob = format!("{}/*.csv", odd.display());
    for (number, path) in [url, plain, glob].into_iter().enumerate() {
        for session in [&theirs, &ours] {
            let create = format!(
                "CREATE EXTERNAL TABLE form_{number} STORED AS CSV LOCATION '{path}' \
                 OPTIONS ('format.has_header' 'true')"
            );
            run(session, &create).await;
            let sum = Answer::of(session, &format!("SELECT sum(a) AS s FROM form_{number}")).await;
            assert_eq!(sum.unwrap().rows, [["3"]], "{path}");
        }
    }
}

/// Compressed files that were concatenated, or written by several threads, have several members.
#[tokio::test]
async fn all_members_of_compressed_files_are_read() {
    for (codec, extension) in [("gzip", "gz"), ("bzip2", "bz2"), ("xz", "xz"), ("zstd", "zst")] {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("OPTIONS ('format.compression' '{codec}')");
        let mut members = Vec::new();
        for (member, number) in [0, 100].into_iter().enumerate() {
            let path = folder.path().join(format!("{member}.part"));
            let copy = format!(
                "COPY (SELECT value + {number} AS a FROM generate_series(1, 50)) TO '{}' \
                 STORED AS JSON {options}",
                path.display()
            );
            run(&session::local(1), &copy).await;
            members.extend(fs::read(path).unwrap());
        }
        let file = folder.path().join(format!("all.json.{extension}"));
        fs::write(&file, members).unwrap();
        let create = format!(
            "CREATE EXTERNAL TABLE rows STORED AS JSON LOCATION '{}' {options}",
            file.display()
        );
        let answer = check_equal(&create, "SELECT count(*) AS n, max(a) AS last FROM rows").await;
        assert_eq!(answer.rows, [["100", "150"]], "{codec}");
    }
}
