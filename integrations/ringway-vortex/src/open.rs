//! Opening a Vortex file by its path.

use crate::RingwayReadAt;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use vortex_array::memory::MemorySessionExt;
use vortex_error::VortexResult;
use vortex_file::{VortexFile, VortexOpenOptions};

/// Opens files with Vortex's options and ringway's reader.
pub trait OpenWithRingway: Sized {
    /// Opens a local file: as [`VortexOpenOptions::open_path`], with a [`RingwayReadAt`] that has
    /// the allocator of the session.
    ///
    /// Errors: those of [`RingwayReadAt::open`], of its reads, and of Vortex for what is no Vortex
    /// file. If the future is dropped, no descriptor is left open.
    fn open_path_with_ringway(
        self,
        path: impl AsRef<Path>,
    ) -> BoxFuture<'static, VortexResult<VortexFile>>;
}

impl OpenWithRingway for VortexOpenOptions {
    fn open_path_with_ringway(
        self,
        path: impl AsRef<Path>,
    ) -> BoxFuture<'static, VortexResult<VortexFile>> {
        let path = path.as_ref().to_owned();
        async move {
            let reader = RingwayReadAt::open(path).await?;
            let reader = reader.with_allocator(self.session().allocator());
            self.open(Arc::new(reader)).await
        }
        .boxed()
    }
}
