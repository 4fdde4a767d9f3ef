//! Which sessions use the store, from when on, and how a program switches back.

use arrow::datatypes::DataType;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use object_store::{GetResultPayload, ObjectStoreExt};
use ringway_datafusion::ringway::{BackendKind, Engine};
use ringway_datafusion::{OneVersion, RingwayFileSystem, register_store, registry};
use ringway_datafusion_tests::{Answer, files, session};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const SUM: &str = "SELECT sum(id) AS total FROM numbers";

fn engine() -> Engine {
    session::engine(BackendKind::Threads).unwrap()
}

fn numbers() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files::write_numbers(&folder.path().join("1.parquet"), 0..5000).unwrap();
    folder
}

async fn add_table(session: &SessionContext, folder: &Path) {
    let folder = folder.to_str().unwrap();
    session.register_parquet("numbers", folder, ParquetReadOptions::default()).await.unwrap();
}

/// Runs the query, which must be right, and returns how many reads the engine made for it.
async fn reads(session: &SessionContext, engine: &Engine) -> u64 {
    let reads = |stats: ringway_datafusion::ringway::Stats| stats.cached + stats.counts.pushed;
    let before = reads(engine.stats());
    let answer = Answer::of(session, SUM).await.unwrap();
    assert_eq!(answer.rows, [["12497500"]]);
    reads(engine.stats()) - before
}

fn names(session: &SessionContext) -> Vec<String> {
    session.state().physical_optimizers().iter().map(|rule| rule.name().to_owned()).collect()
}

#[tokio::test]
async fn tables_may_be_registered_before_the_store() {
    let (folder, engine, session) = (numbers(), engine(), session::local(2));
    add_table(&session, folder.path()).await;
    register_store(&session, RingwayFileSystem::new().with_engine(&engine));
    assert!(reads(&session, &engine).await > 0);
}

#[tokio::test]
async fn a_session_can_be_switched_back_and_registered_again() {
    let (folder, engine, session) = (numbers(), engine(), session::local(2));
    let id = session.session_id();
    add_table(&session, folder.path()).await;
    let store = RingwayFileSystem::new().with_engine(&engine);
    let before = names(&session);
    let previous = register_store(&session, store.clone()).unwrap();
    assert!(previous.to_string().starts_with("LocalFileSystem"), "{previous}");
    let local = ObjectStoreUrl::local_filesystem();
    session.register_object_store(local.as_ref(), previous);
    assert_eq!(reads(&session, &engine).await, 0, "the rule ends with the store");

    register_store(&session, store.clone());
    register_store(&session, store);
    assert!(reads(&session, &engine).await > 0);
    let added: Vec<_> = names(&session).split_off(before.len());
    assert_eq!(added, ["ringway_one_version"], "one rule, behind all others");
    assert_eq!(session.session_id(), id);
    assert_eq!(session.state().session_id(), id);
}

#[tokio::test]
async fn all_sessions_of_a_runtime_use_its_store() {
    let (folder, engine) = (numbers(), engine());
    let store = RingwayFileSystem::new().with_engine(&engine);
    let runtime =
        RuntimeEnvBuilder::new().with_object_store_registry(registry(store.clone())).build_arc();
    let runtime = runtime.unwrap();
    for _ in 0..2 {
        let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.clone());
        add_table(&session, folder.path()).await;
        assert!(reads(&session, &engine).await > 0);
    }
    let state = SessionStateBuilder::new_with_default_features()
        .with_runtime_env(runtime.clone())
        .with_physical_optimizer_rule(Arc::new(OneVersion::new(&runtime, store)))
        .build();
    let session = SessionContext::new_with_state(state);
    add_table(&session, folder.path()).await;
    assert!(reads(&session, &engine).await > 0);
    let other = Arc::new(RingwayFileSystem::new());
    session.register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), other);
    assert_eq!(reads(&session, &engine).await, 0, "the rule ends with the store");
}

/// Else DataFusion collects all of an object in memory, to look at its beginning.
#[tokio::test]
async fn large_objects_come_as_files() {
    let large = tempfile::NamedTempFile::new().unwrap();
    large.as_file().set_len(100 << 20).unwrap();
    let path = object_store::path::Path::from_absolute_path(large.path()).unwrap();
    let registry = registry(RingwayFileSystem::new());
    let with_registry = RuntimeEnvBuilder::new().with_object_store_registry(registry).build_arc();
    let with_registry =
        SessionContext::new_with_config_rt(SessionConfig::new(), with_registry.unwrap());
    let registered = session::ringway(RingwayFileSystem::new(), 1);
    for session in [with_registry, registered] {
        let store = session.runtime_env().object_store(ObjectStoreUrl::local_filesystem()).unwrap();
        let payload = store.get(&path).await.unwrap().payload;
        assert!(matches!(payload, GetResultPayload::File(..)));
    }
}

/// What a session knows is still there after `register`, which rebuilds its state.
#[tokio::test]
async fn registering_keeps_what_the_session_has() {
    let (folder, session) = (numbers(), session::local(3));
    add_table(&session, folder.path()).await;
    session.sql("SET datafusion.execution.batch_size = 77").await.unwrap();
    session.sql("CREATE VIEW small AS SELECT * FROM numbers WHERE id < 10").await.unwrap();
    let before = options(&session);
    ringway_datafusion::register(&session);
    assert_eq!(options(&session), before);
    let options = session.copied_config();
    assert_eq!(options.batch_size(), 77);
    assert_eq!(options.target_partitions(), 3);
    let answer = Answer::of(&session, "SELECT count(*) AS n FROM small").await.unwrap();
    assert_eq!(answer.rows, [["10"]]);
}

/// All options and their values.
fn options(session: &SessionContext) -> Vec<(String, Option<String>)> {
    let entries = session.copied_config().options().entries();
    entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// `EXPLAIN ANALYZE` counts the same bytes through both stores.
#[tokio::test]
async fn metrics_are_those_of_the_default_reader() {
    let folder = numbers();
    let mut scanned = Vec::new();
    for ours in [false, true] {
        let session = session::local(1);
        if ours {
            ringway_datafusion::register(&session);
        }
        add_table(&session, folder.path()).await;
        let plan = Answer::of(&session, &format!("EXPLAIN ANALYZE {SUM}")).await.unwrap();
        let plan = format!("{:?}", plan.rows);
        let (_, bytes) = plan.split_once("bytes_scanned=").unwrap();
        let (bytes, _) = bytes.split_once(',').unwrap();
        scanned.push(bytes.to_owned());
    }
    assert_eq!(scanned[0], scanned[1]);
    assert_ne!(scanned[0], "0");
}

/// A function of the program that has the name or an alias of one of DataFusion's.
#[tokio::test]
async fn registering_keeps_functions_that_replace_others() {
    // The builder of a state takes functions from a hash table, in another order each time.
    for _ in 0..8 {
        let session = session::local(1);
        // `date_format` is an alias of `to_char`, which is replaced by name; `strpos` has the alias
        // `instr`.
        for name in ["to_char", "instr"] {
            session.register_udf(constant(name));
        }
        let query = "SELECT to_char('a'), instr('a')";
        let expected = [["our to_char", "our instr"]];
        assert_eq!(Answer::of(&session, query).await.unwrap().rows, expected);
        let before = session.state();
        ringway_datafusion::register(&session);
        let after = session.state();
        for (name, function) in before.scalar_functions() {
            assert!(Arc::ptr_eq(function, &after.scalar_functions()[name]), "{name}");
        }
        assert_eq!(before.scalar_functions().len(), after.scalar_functions().len());
        assert_eq!(before.aggregate_functions(), after.aggregate_functions());
        assert_eq!(before.window_functions(), after.window_functions());
        assert_eq!(Answer::of(&session, query).await.unwrap().rows, expected);
    }
}

/// A function of one text, whose value is its name.
fn constant(name: &'static str) -> ScalarUDF {
    let value = ColumnarValue::Scalar(ScalarValue::from(format!("our {name}")));
    let function = Arc::new(move |_: &[ColumnarValue]| Ok(value.clone()));
    create_udf(name, vec![DataType::Utf8], DataType::Utf8, Volatility::Immutable, function)
}
