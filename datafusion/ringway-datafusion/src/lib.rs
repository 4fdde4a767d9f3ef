//! Local files of a [DataFusion](datafusion) program through [`ringway`]: call [`register`] once.
//!
//! ```
//! use datafusion::prelude::*;
//!
//! # #[tokio::main]
//! # async fn main() -> datafusion::error::Result<()> {
//! let session = SessionContext::new();
//! ringway_datafusion::register(&session);
//! # std::fs::write(std::env::temp_dir().join("ringway-doc.csv"), "a,b\n1,2\n").unwrap();
//! # let path = std::env::temp_dir().join("ringway-doc.csv");
//! # let path = path.to_str().unwrap();
//! session.register_csv("numbers", path, CsvReadOptions::new()).await?;
//! session.sql("SELECT a + b FROM numbers").await?.show().await?;
//! # std::fs::remove_file(path).unwrap();
//! # Ok(()) }
//! ```
//!
//! # What goes through the store
//!
//! DataFusion has one object store for all local files. It looks this store up when it lists, reads
//! or writes a file, whatever names the file: a path without a scheme, a `file://` URL, `CREATE
//! EXTERNAL TABLE`, `COPY TO`, `INSERT INTO`, a catalog. So tables may be registered before or
//! after [`register`]. It does not look the store up for files of its own: what it spills to disk
//! when memory is short goes past it, as do files that a program reads without DataFusion.
//!
//! The store belongs to the session's `RuntimeEnv`, which sessions can share: registering it in one
//! registers it in all of them. A program that builds many sessions registers it once, when it
//! builds the runtime: [`registry`].

mod listing;
mod parquet;
mod prefetch;
#[cfg(test)]
mod test_files;
mod version;

pub use listing::{LISTING_TTL, expire_listings};
pub use parquet::OneVersion;
pub use ringway;
pub use ringway_object_store::object_store_0_13::RingwayFileSystem;
pub use ringway_object_store::parquet_59::ParquetReader;

use datafusion::execution::object_store::{
    DefaultObjectStoreRegistry, ObjectStoreRegistry, ObjectStoreUrl,
};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use object_store::ObjectStore;
use std::sync::Arc;

/// Makes a session read and write local files through ringway's global engine: all URLs that start
/// with `file://` and all plain paths. Returns the store that it replaces, usually a
/// `LocalFileSystem`; `session.register_object_store` puts it back.
///
/// It also adds the rule [`OneVersion`] to the session. DataFusion can do so only with a new state,
/// which has everything that the old one had except prepared statements: call this before
/// `PREPARE`. And it makes the session's runtime list the files of a table again after a second,
/// unless the program has set a time to live: [`expire_listings`].
///
/// This neither blocks nor fails. The global engine is built by the first read; to choose its
/// options, use [`ringway::EngineBuilder::install_global`] or [`register_store`].
pub fn register(session: &SessionContext) -> Option<Arc<dyn ObjectStore>> {
    register_store(session, RingwayFileSystem::new())
}

/// As [`register`], with a store of your own options. The store must be one of the whole file
/// system, not one with a prefix: DataFusion's paths of local files are absolute.
///
/// The store is registered [`with_file_payload`](RingwayFileSystem::with_file_payload): to infer
/// the schema of a JSON file, or to read an Arrow file, DataFusion gets the whole object, and would
/// collect all of a stream in memory.
///
/// ```
/// use datafusion::prelude::SessionContext;
/// use ringway_datafusion::{RingwayFileSystem, register_store, ringway::Engine};
///
/// # fn main() -> std::io::Result<()> {
/// let engine = Engine::builder().in_flight(64).build()?;
/// let store = RingwayFileSystem::new().with_engine(&engine).with_direct(true);
/// let session = SessionContext::new();
/// register_store(&session, store);
/// # Ok(()) }
/// ```
pub fn register_store(
    session: &SessionContext,
    store: RingwayFileSystem,
) -> Option<Arc<dyn ObjectStore>> {
    let local = ObjectStoreUrl::local_filesystem();
    let previous = session.register_object_store(local.as_ref(), registered(store.clone()));
    add_rule(session, Arc::new(OneVersion::new(&session.runtime_env(), store)));
    previous
}

/// The store as it is registered.
fn registered(store: RingwayFileSystem) -> Arc<dyn ObjectStore> {
    Arc::new(store.with_file_payload(true))
}

/// Adds the rule behind all others, in place of one that an earlier call added.
fn add_rule(session: &SessionContext, rule: Arc<OneVersion>) {
    let state = session.state_ref();
    let mut state = state.write();
    let before = state.clone();
    let id = before.session_id().to_owned();
    let mut builder = SessionStateBuilder::new_from_existing(before.clone()).with_session_id(id);
    if let Some(optimizer) = builder.physical_optimizers() {
        optimizer.rules.retain(|rule| rule.name() != OneVersion::NAME);
    }
    *state = builder.with_physical_optimizer_rule(rule).build();
    restore(&mut state, &before);
}

/// Undoes what building a state from another one changes.
fn restore(state: &mut SessionState, before: &SessionState) {
    // Off, so that the builder did not replace the catalog.
    let creates_catalog = before.config_options().catalog.create_default_catalog_and_schema;
    let options = state.config_mut().options_mut();
    options.catalog.create_default_catalog_and_schema = creates_catalog;

    // Functions were registered in no particular order, so one of DataFusion's may have taken a
    // name or an alias back from a function of the program.
    macro_rules! restore {
        ($functions:ident, $register:ident) => {
            // A function may take names from others in turn: each round restores at least one.
            for _ in before.$functions() {
                let is_lost = |(name, function): &(&String, &Arc<_>)| {
                    let found = state.$functions().get(*name);
                    !found.is_some_and(|found| Arc::ptr_eq(found, function))
                };
                let lost: Vec<_> = before.$functions().iter().filter(is_lost).collect();
                if lost.is_empty() {
                    break;
                }
                for (_, function) in lost {
                    // A session registers any function.
                    let _ = state.$register(function.clone());
                }
            }
        };
    }
    restore!(scalar_functions, register_udf);
    restore!(higher_order_functions, register_higher_order_function);
    restore!(aggregate_functions, register_udaf);
    restore!(window_functions, register_udwf);
}

/// DataFusion's default registry of object stores, with this store for local files. For programs
/// that build the runtime themselves: all sessions of that runtime use the store, with the options
/// that it has after [`register_store`]. These sessions do not have the rule [`OneVersion`]; its
/// documentation shows how to add it. Without the rule, the runtime needs a time to live for its
/// lists of files, as here: DataFusion would use the first one for ever ([`expire_listings`]).
///
/// ```
/// use datafusion::execution::runtime_env::RuntimeEnvBuilder;
/// use datafusion::prelude::{SessionConfig, SessionContext};
/// use ringway_datafusion::{LISTING_TTL, RingwayFileSystem, registry};
///
/// # fn main() -> datafusion::error::Result<()> {
/// let runtime = RuntimeEnvBuilder::new()
///     .with_object_store_registry(registry(RingwayFileSystem::new()))
///     .with_object_list_cache_ttl(Some(LISTING_TTL))
///     .build_arc()?;
/// let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.clone());
/// let another = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
/// # Ok(()) }
/// ```
pub fn registry(store: RingwayFileSystem) -> Arc<dyn ObjectStoreRegistry> {
    let registry = DefaultObjectStoreRegistry::new();
    registry.register_store(ObjectStoreUrl::local_filesystem().as_ref(), registered(store));
    Arc::new(registry)
}

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
