//! Local files of a DataFusion program through ringway: call [`register`] once.

pub use ringway;
pub use ringway_object_store::object_store_0_13::RingwayFileSystem;
pub use ringway_object_store::parquet_59::ParquetReader;

use datafusion::prelude::SessionContext;
use object_store::ObjectStore;
use std::sync::Arc;
use url::Url;

/// Makes a session read and write local files through ringway: all URLs that start with `file://`,
/// and all plain paths. Returns the store that it replaces, usually a `LocalFileSystem`.
pub fn register(session: &SessionContext) -> Option<Arc<dyn ObjectStore>> {
    let url = Url::parse("file://").expect("a valid URL");
    session.register_object_store(&url, Arc::new(RingwayFileSystem::new()))
}
