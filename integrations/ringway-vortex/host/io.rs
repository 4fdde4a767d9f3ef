//! Vortex's tests of readers and file systems, on ringway's. host.sh makes the modules.

/// `vortex_io::std_file`, whose reader is ringway's.
mod std_file {
    use ringway_vortex::RingwayReadAt;
    use std::path::Path;
    use vortex_error::VortexResult;
    use vortex_io::runtime::Handle;

    pub struct FileReadAt;

    impl FileReadAt {
        pub fn open(path: &Path, _: Handle) -> VortexResult<RingwayReadAt> {
            // On a thread of its own: the runtime of the test would not run meanwhile.
            std::thread::scope(|scope| {
                let open = || futures::executor::block_on(RingwayReadAt::open(path));
                scope.spawn(open).join().unwrap()
            })
        }
    }
}

#[rustfmt::skip]
mod readers;

mod file_systems {
    use object_store::ObjectStore;
    use ringway::Engine;
    use ringway_vortex::RingwayFileSystem;
    use std::sync::Arc;
    use vortex_error::VortexResult;
    use vortex_io::filesystem::FileListing;
    use vortex_io::object_store::ObjectStoreFileSystem;

    /// Instead of a store in memory: a directory with files of these sizes.
    async fn memory_fs(files: &[(&str, usize)]) -> VortexResult<RingwayFileSystem> {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?.keep();
        for (path, size) in files {
            let path = root.join(path);
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir)?;
            }
            std::fs::write(path, vec![0; *size])?;
        }
        Ok(RingwayFileSystem::new(root, Engine::global()?))
    }

    // Some of what the tests import is for the store.
    #[allow(unused_imports)]
    #[rustfmt::skip]
    mod tests;
}
