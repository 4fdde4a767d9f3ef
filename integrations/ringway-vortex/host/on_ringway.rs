//! Opening files as Vortex's tests do, with ringway's reader. host.sh adds this module to the tests
//! of vortex-file, so it names things as they are called there.

use crate::{VortexFile, VortexOpenOptions};
use ringway_vortex::RingwayReadAt;
use std::path::Path;
use std::sync::Arc;
use vortex_array::memory::MemorySessionExt;
use vortex_buffer::ByteBuffer;
use vortex_error::VortexResult;

pub(crate) trait OnRingway: Sized {
    /// Instead of `open_path`.
    async fn open_path_on_ringway(self, path: &Path) -> VortexResult<VortexFile>;

    /// Instead of `open_buffer`: what was written to memory is written to a file.
    async fn open_buffer_on_ringway(self, bytes: impl Into<ByteBuffer>)
    -> VortexResult<VortexFile>;
}

impl OnRingway for VortexOpenOptions {
    async fn open_path_on_ringway(self, path: &Path) -> VortexResult<VortexFile> {
        let reader = RingwayReadAt::open(path).await?.with_allocator(self.session().allocator());
        self.open(Arc::new(reader)).await
    }

    async fn open_buffer_on_ringway(
        self,
        bytes: impl Into<ByteBuffer>,
    ) -> VortexResult<VortexFile> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), bytes.into())?;
        // The reader keeps the file open, so its name may go.
        self.open_path_on_ringway(file.path()).await
    }
}
