//! Makes a query's scans of Parquet files read each file as it was listed.

use crate::listing;
use crate::prefetch::Prefetch;
use crate::version::Version;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, DefaultParquetFileReaderFactory,
};
use datafusion::datasource::physical_plan::{ParquetFileReaderFactory, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::cache::cache_manager::{FileMetadataCache, ListFilesCache};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use object_store::{ObjectMeta, ObjectStore};
use ringway_object_store::object_store_0_13::RingwayFileSystem;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A few columns of a row group of a million rows, and little memory for each partition.
const DEFAULT_PREFETCH: u64 = 32 << 20;

/// A rule for physical plans: a scan of local Parquet files opens each file once, and fails with
/// the file's path if the file is no longer the one that was listed.
///
/// DataFusion lists the files of a folder at most once in its time to live, which is
/// [`LISTING_TTL`](crate::LISTING_TTL) unless the program sets one
/// ([`expire_listings`](crate::expire_listings)), and a table of a single file for each query. A
/// scan that fails because a file was replaced, changed or removed also drops the list, so that the
/// next query lists the folder again and reads the new files, whatever the time to live is.
///
/// DataFusion itself opens a file for each row group, so a file that is replaced during a query
/// could be read half old, half new. [`register`](crate::register) adds this rule to a session.
/// A program that builds the state of its sessions itself adds it as the last one, with
/// `SessionStateBuilder::with_physical_optimizer_rule`, next to [`registry`](crate::registry):
///
/// ```
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::execution::runtime_env::RuntimeEnvBuilder;
/// use datafusion::prelude::SessionContext;
/// use ringway_datafusion::{OneVersion, RingwayFileSystem, registry};
/// use std::sync::Arc;
///
/// # fn main() -> datafusion::error::Result<()> {
/// let store = RingwayFileSystem::new();
/// let runtime = RuntimeEnvBuilder::new()
///     .with_object_store_registry(registry(store.clone()))
///     .build_arc()?;
/// let state = SessionStateBuilder::new_with_default_features()
///     .with_runtime_env(runtime.clone())
///     .with_physical_optimizer_rule(Arc::new(OneVersion::new(&runtime, store)))
///     .build();
/// let session = SessionContext::new_with_state(state);
/// # Ok(()) }
/// ```
///
/// DataFusion reads the columns of a row group and decodes them, and only then asks for the next
/// row group. Where these are not in the page cache, the rule has the kernel read them into it
/// meanwhile: at most one row group ahead, and at most [`with_prefetch`](Self::with_prefetch) bytes
/// of it.
///
/// A scan that the program built without ETags opens each file once, and compares nothing. Where
/// more than 256 files are open for scans of this process, further scans open and compare theirs
/// for each row group.
///
/// The rule leaves alone: files of other stores, scans with a `ParquetFileReaderFactory` of the
/// program's own, and everything while another store is registered for local files than when the
/// rule was made.
#[derive(Debug)]
pub struct OneVersion {
    runtime: Arc<RuntimeEnv>,
    /// What the runtime has registered for this store.
    registered: Option<Arc<dyn ObjectStore>>,
    store: Arc<RingwayFileSystem>,
    prefetch: u64,
}

impl OneVersion {
    /// A rule for the sessions of this runtime, in which this store is registered for local files.
    /// It calls [`expire_listings`](crate::expire_listings) for the runtime.
    pub fn new(runtime: &Arc<RuntimeEnv>, store: RingwayFileSystem) -> Self {
        listing::expire_listings(runtime);
        Self {
            runtime: runtime.clone(),
            registered: local_files(runtime),
            store: Arc::new(store),
            prefetch: DEFAULT_PREFETCH,
        }
    }

    /// Sets how many bytes of the next row group are prefetched at most, for each file that is
    /// being read. 0 prefetches nothing. Default: 32 MiB.
    ///
    /// It prefetches only whole column chunks, as long as the scan skips no row group. It does not
    /// with direct I/O, which has no page cache, and in a query with a `LIMIT` that the scan knows,
    /// which may end after the first row group.
    pub fn with_prefetch(mut self, bytes: u64) -> Self {
        self.prefetch = bytes;
        self
    }

    pub(crate) const NAME: &str = "ringway_one_version";

    /// Whether the store still serves local files.
    fn is_registered(&self) -> bool {
        let stores = local_files(&self.runtime).zip(self.registered.as_ref());
        stores.is_some_and(|(now, ours)| Arc::ptr_eq(&now, ours))
    }

    /// The scan with our reader factory; `None` if it is not one for us.
    fn scan(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
        let scan = plan.downcast_ref::<DataSourceExec>()?;
        let (config, source) = scan.downcast_to_file_source::<ParquetSource>()?;
        let caches_metadata = match source.parquet_file_reader_factory() {
            Some(factory) if !is_default(factory) => return None,
            factory => factory.is_some(),
        };
        if config.object_store_url != ObjectStoreUrl::local_filesystem() {
            return None;
        }
        let factory = OneVersionFactory {
            store: self.store.clone(),
            metadata: self.runtime.cache_manager.get_file_metadata_cache(),
            listings: self.runtime.cache_manager.get_list_files_cache(),
            caches_metadata,
            prefetch: if config.limit.is_none() { self.prefetch } else { 0 },
        };
        let source = source.clone().with_parquet_file_reader_factory(Arc::new(factory));
        let mut config = config.clone();
        config.file_source = Arc::new(source);
        Some(Arc::new(scan.clone().with_data_source(Arc::new(config))))
    }
}

/// The store that is registered for local files.
fn local_files(runtime: &RuntimeEnv) -> Option<Arc<dyn ObjectStore>> {
    runtime.object_store(ObjectStoreUrl::local_filesystem()).ok()
}

impl PhysicalOptimizerRule for OneVersion {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !self.is_registered() {
            return Ok(plan);
        }
        let replace = |node: Arc<dyn ExecutionPlan>| {
            Ok(match self.scan(&node) {
                Some(scan) => Transformed::yes(scan),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Creates DataFusion's own readers, each on one version of its file.
#[derive(Debug)]
struct OneVersionFactory {
    store: Arc<RingwayFileSystem>,
    metadata: Arc<FileMetadataCache>,
    listings: Option<Arc<ListFilesCache>>,
    /// As the scan would without this factory. What a program made without a listing may have no
    /// modification time, by which the cache tells versions of a file apart.
    caches_metadata: bool,
    prefetch: u64,
}

impl OneVersionFactory {
    /// Drops what is cached of another version of this file. DataFusion compares only the length
    /// and the modification time.
    fn drop_other_metadata(&self, listed: &ObjectMeta) {
        let cached = self.metadata.get(&listed.location).and_then(|cached| cached.meta.e_tag);
        if cached.is_some() && listed.e_tag.is_some() && cached != listed.e_tag {
            self.metadata.remove(&listed.location);
        }
    }
}

impl ParquetFileReaderFactory for OneVersionFactory {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let prefetch = Prefetch::new(self.prefetch, self.metadata.clone(), file.range.clone());
        self.drop_other_metadata(&file.object_meta);
        let (store, listed) = (self.store.clone(), file.object_meta.clone());
        let version = Arc::new(Version::new(store, listed, self.listings.clone(), prefetch));
        let readers: Box<dyn ParquetFileReaderFactory> = if self.caches_metadata {
            Box::new(CachedParquetFileReaderFactory::new(version, self.metadata.clone()))
        } else {
            Box::new(DefaultParquetFileReaderFactory::new(version))
        };
        readers.create_reader(partition, file, metadata_size_hint, metrics)
    }
}

/// Whether DataFusion made this factory, and not the program: it reads from a store of our type.
/// The trait cannot be downcast, so this asks for the names of the types, with which derived
/// `Debug` output starts.
fn is_default(factory: &Arc<dyn ParquetFileReaderFactory>) -> bool {
    let mut expected = Expected("CachedParquetFileReaderFactory { store: RingwayFileSystem {");
    // An error: it ended the formatting, after the names or at the first difference.
    let _ = write!(expected, "{factory:?}");
    expected.0.is_empty()
}

/// Accepts this text, and stops the formatting at its end or at the first difference.
struct Expected(&'static str);

impl Write for Expected {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let common = text.len().min(self.0.len());
        let (Some(text), Some(expected)) = (text.get(..common), self.0.get(..common)) else {
            return Err(fmt::Error);
        };
        if text != expected {
            return Err(fmt::Error);
        }
        self.0 = &self.0[common..];
        if self.0.is_empty() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::local::LocalFileSystem;

    #[test]
    fn factories_are_told_apart() {
        let store = Arc::new(RingwayFileSystem::new());
        let metadata = RuntimeEnv::default().cache_manager.get_file_metadata_cache();
        let cached = CachedParquetFileReaderFactory::new(store.clone(), metadata.clone());
        assert!(is_default(&(Arc::new(cached) as _)));
        let plain = DefaultParquetFileReaderFactory::new(store.clone());
        assert!(!is_default(&(Arc::new(plain) as _)));
        let other: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        let other = CachedParquetFileReaderFactory::new(other, metadata.clone());
        assert!(!is_default(&(Arc::new(other) as _)), "a store of the program's own");
        let ours = OneVersionFactory {
            store,
            metadata,
            listings: None,
            caches_metadata: true,
            prefetch: 0,
        };
        assert!(!is_default(&(Arc::new(ours) as _)));
    }

    /// A query with a limit may end after one row group.
    #[tokio::test]
    async fn a_limit_prefetches_nothing() {
        use datafusion::prelude::{ParquetReadOptions, SessionContext};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let path = path.to_str().unwrap();
        let session = SessionContext::new();
        crate::register(&session);
        let copy = format!("COPY (SELECT * FROM generate_series(1, 9)) TO '{path}'");
        session.sql(&copy).await.unwrap().collect().await.unwrap();
        session.register_parquet("t", path, ParquetReadOptions::default()).await.unwrap();
        for (sql, bytes) in [("SELECT * FROM t", DEFAULT_PREFETCH), ("SELECT * FROM t LIMIT 1", 0)]
        {
            let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            let scan = plan.downcast_ref::<DataSourceExec>().unwrap();
            let (_, source) = scan.downcast_to_file_source::<ParquetSource>().unwrap();
            let factory = format!("{:?}", source.parquet_file_reader_factory().unwrap());
            assert!(factory.ends_with(&format!("prefetch: {bytes} }}")), "{sql}: {factory}");
        }
    }
}
