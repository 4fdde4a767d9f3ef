//! A full disk: the writer reports the error once, and after space is freed nothing is lost.

use crate::common::{open, pattern};
use crate::files::engines;
use std::path::Path;
use std::process::Command;

/// The mount point of a file system of 1 MiB, set in the child that has one.
const MOUNT_POINT: &str = "RINGWAY_FULL_DISK";

#[test]
fn a_full_disk_is_reported_once() {
    if let Some(dir) = std::env::var_os(MOUNT_POINT) {
        return futures::executor::block_on(fill(Path::new(&dir)));
    }
    let dir = tempfile::tempdir().unwrap();
    // A user and mount namespace: the mount needs no root and disappears with the child.
    let script = r#"mount -t tmpfs -o size=1m ringway "$0" && shift 0 && exec "$@""#;
    let test = ["--exact", "full_disk::a_full_disk_is_reported_once", "--nocapture"];
    let child = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(test)
        .env(MOUNT_POINT, dir.path())
        .output();
    match child {
        Ok(child) if child.status.success() => {
            // A name that is no test's would run nothing, and succeed.
            assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
        }
        Ok(child) if !String::from_utf8_lossy(&child.stdout).contains("running 1 test") => {
            println!(
                "skipped: no mount namespace: {}",
                String::from_utf8_lossy(&child.stderr).trim()
            );
        }
        Ok(child) => panic!("{}", String::from_utf8_lossy(&child.stdout)),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

async fn fill(dir: &Path) {
    let (ballast, path) = (dir.join("ballast"), dir.join("file"));
    for engine in engines() {
        std::fs::write(&ballast, vec![0; 512 << 10]).unwrap();
        std::fs::write(&path, b"").unwrap();
        let content = pattern(0, 900 << 10);
        let mut writer = open(engine, &path, false).writer().chunk(64 << 10).write_behind(4);
        let error = loop {
            let at = writer.position() as usize;
            match writer.write_all(&content[at..content.len().min(at + 1000)]).await {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let written = writer.written() as usize;
        assert!((256 << 10..=512 << 10).contains(&written), "{written}");
        assert!(std::fs::read(&path).unwrap().starts_with(&content[..written]));
        // The writes that were in flight with the failed one failed as well. They are not reported,
        // but submitted again, which succeeds now.
        std::fs::remove_file(&ballast).unwrap();
        let at = writer.position() as usize;
        writer.write_all(&content[at..]).await.unwrap();
        writer.flush().await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content);
        // A writer that has accepted more after the error writes all of it when it is dropped.
        let file = open(engine, &path, false);
        file.set_len(0).await.unwrap();
        std::fs::write(&ballast, vec![0; 512 << 10]).unwrap();
        let mut writer = file.clone().writer().chunk(64 << 10).write_behind(4);
        while writer.write_all(&[1; 4096]).await.is_ok() {}
        std::fs::remove_file(&ballast).unwrap();
        writer.write_all(b"more").await.unwrap();
        let end = writer.position();
        drop(writer);
        file.sync_data().await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), end);
        assert!(std::fs::read(&path).unwrap().ends_with(b"\x01more"));
        std::fs::remove_file(&path).unwrap();
    }
}
