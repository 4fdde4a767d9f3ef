//! Functions on paths go through the engine that they are given. The global one cannot be made in these
//! tests, so that whatever asks for it fails.

#[path = "../../ringway-core/tests/common/mod.rs"]
#[allow(dead_code, reason = "the other suites use the rest")]
mod common;

use futures::executor::block_on;
use ringway::fs::DirBuilder;
use ringway::{BackendKind, Engine};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a test on each backend, where there is no global engine.
fn each(test: &str, body: impl AsyncFn(&Engine, &Path) -> io::Result<()>) {
    let prepare = |command: &mut std::process::Command| _ = command.env("RINGWAY_BACKEND", "none of them");
    common::in_child(test, prepare, || {
        assert_eq!(Engine::global().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
            match Engine::builder().backend(kind).shards(1).build() {
                Ok(engine) => {
                    let dir = tempfile::tempdir().unwrap();
                    block_on(body(&engine, dir.path())).unwrap();
                }
                Err(error) => println!("skipped: {kind}: {error}"),
            }
        }
    });
}

#[test]
fn every_function_has_its_engine() {
    each("every_function_has_its_engine", async |engine, dir| {
        let fs = engine.fs();
        let at = |name: &str| dir.join(name);
        fs.create_dir(at("one")).await?;
        fs.create_dir_all(at("two/and/deep")).await?;
        fs.create_dir_all(at("two/and/deep")).await?;
        DirBuilder::new().mode(0o700).engine(engine).create(at("three")).await?;
        fs.write(at("file"), b"text".to_vec()).await?;
        assert_eq!(fs.read(at("file")).await?, b"text");
        assert_eq!(fs.read_to_string(at("file")).await?, "text");
        fs.write_atomic(at("atomic"), b"new".to_vec()).await?;
        let mut file = fs.create_atomic(at("atomic")).await?;
        file.write_all(b"newer").await?;
        file.commit().await?;
        assert_eq!(fs.copy(at("atomic"), at("copy")).await?, 5);
        fs.rename(at("copy"), at("moved")).await?;
        fs.hard_link(at("moved"), at("hard")).await?;
        fs.symlink("hard", at("soft")).await?;
        assert_eq!(fs.metadata(at("soft")).await?.len(), 5);
        assert!(fs.symlink_metadata(at("soft")).await?.is_symlink());
        assert_eq!(fs.read_link(at("soft")).await?.as_os_str(), "hard");
        assert_eq!(fs.canonicalize(at("soft")).await?, std::fs::canonicalize(at("hard"))?);
        fs.set_permissions(at("hard"), PermissionsExt::from_mode(0o604)).await?;
        assert_eq!(fs.metadata(at("moved")).await?.mode() & 0o777, 0o604);
        fs.sync_dir(dir).await?;
        assert_eq!(fs.sync_dir(at("file")).await.unwrap_err().kind(), io::ErrorKind::NotADirectory);
        fs.remove_file(at("soft")).await?;
        assert!(!fs.exists(at("soft")).await? && fs.try_exists(at("hard")).await?);
        let mut entries = fs.read_dir(at("two")).await?;
        let entry = entries.next_entry().await?.unwrap();
        assert!(entry.file_name() == "and" && entry.metadata().await?.is_dir());
        fs.remove_dir(at("one")).await?;
        fs.remove_dir_all(at("two")).await?;
        assert!(!at("one").exists() && !at("two").exists());
        Ok(())
    });
}
