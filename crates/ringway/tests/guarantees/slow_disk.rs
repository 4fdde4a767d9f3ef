//! No poll waits for a disk with slow writes while another thread syncs all the time: a commit of
//! ext4's journal keeps whoever changes an inode waiting, also with `RWF_NOWAIT`.

use crate::common::{block_on_timed, skip};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine};
use ringway_hostile::HostileDisk;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// How long each write of the disk takes.
const SLOW: Duration = Duration::from_millis(600);
/// A poll that is blocked as long has waited for one.
const WAITED: Duration = Duration::from_millis(300);
/// Of the disk, in bytes.
const LEN: u64 = 256 << 20;

/// An overlay of directories of a disk.
struct Overlay {
    mount: TempDir,
}

impl Overlay {
    /// Errors: why there is none here.
    fn on(disk: &HostileDisk) -> Result<Self, String> {
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| disk.path().join(name));
        for dir in [&lower, &upper, &work] {
            std::fs::create_dir(dir).map_err(|error| error.to_string())?;
        }
        let [lower, upper, work] = [&lower, &upper, &work].map(|dir| dir.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mount = TempDir::new().unwrap();
        let command = ["mount", "-t", "overlay", "overlay", "-o", &options].map(Path::new);
        run(&[&command[..], &[mount.path()]].concat())?;
        Ok(Self { mount })
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // Lazily: an engine that was dropped may still close files.
        let _ = run(&["umount".as_ref(), "--lazy".as_ref(), self.mount.path()]);
    }
}

/// Runs a command. Errors: what it printed.
fn run(command: &[&Path]) -> Result<(), String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said.trim())) }
}

/// The longest poll of each kind of transfer, next to the syncs.
fn polls(engine: &Engine, path: &Path) -> [(&'static str, Duration); 3] {
    let open = |direct, write| -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(write).direct(direct).engine(engine);
        block_on_timed(options.open(path)).0.unwrap()
    };
    let (buffered, direct) = (open(false, false), open(true, true));
    let plain = std::fs::File::options().write(true).open(path).unwrap();
    let mut longest = [Duration::ZERO; 3];
    for round in 0..4u64 {
        // The next read has to change the access time.
        std::os::unix::fs::FileExt::write_all_at(&plain, &[1; 16], 0).unwrap();
        std::thread::sleep(Duration::from_millis(40 + 130 * round));
        let block = || AlignedBuffer::new(4096, 4096);
        let ((read, _), first) = block_on_timed(buffered.read_at(vec![0; 4096], 0));
        let ((written, _), second) = block_on_timed(direct.write_at(block(), 8192));
        let ((again, _), third) = block_on_timed(direct.read_at(block(), 16384));
        assert_eq!([read, written, again].map(Result::unwrap), [4096; 3]);
        for (longest, poll) in longest.iter_mut().zip([first, second, third]) {
            *longest = poll.max(*longest);
        }
    }
    let [first, second, third] = longest;
    [("cached read", first), ("direct overwrite", second), ("direct read", third)]
}

/// Changes the size of a file and syncs it.
fn sync_forever(path: &Path, over: &AtomicBool) {
    for size in (1..8).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
        let file = std::fs::File::options().write(true).create(true).truncate(false).open(path);
        let _ = file.and_then(|file| file.set_len(size * 4096).and_then(|()| file.sync_all()));
    }
}

#[test]
fn no_poll_waits_for_a_commit_of_the_journal() {
    match HostileDisk::new(LEN, false) {
        Ok(disk) => check_polls(&disk, disk.path()),
        Err(why) => skip(&why),
    }
}

/// An overlay, as in a container, does not show what it is on.
#[test]
fn no_poll_waits_for_the_journal_below_an_overlay() {
    let overlaid = HostileDisk::new(LEN, false).and_then(|disk| Ok((Overlay::on(&disk)?, disk)));
    match overlaid {
        Ok((overlay, disk)) => check_polls(&disk, overlay.mount.path()),
        Err(why) => skip(&why),
    }
}

/// Files in `dir`, which is on the disk.
fn check_polls(disk: &HostileDisk, dir: &Path) {
    let backends = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
    for backend in backends {
        let path = dir.join(format!("{backend:?}"));
        std::fs::write(&path, vec![1; 1 << 16]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        std::fs::read(&path).unwrap();
    }
    disk.hostile().set(&format!("image write delay {}", SLOW.as_millis())).unwrap();
    let (over, synced) = (AtomicBool::new(false), disk.path().join("synced"));
    std::thread::scope(|scope| {
        scope.spawn(|| sync_forever(&synced, &over));
        let measured = backends.map(|backend| {
            let path = dir.join(format!("{backend:?}"));
            scope.spawn(move || {
                let engine = Engine::builder().backend(backend).shards(1).build().ok()?;
                Some((backend, polls(&engine, &path)))
            })
        });
        let measured: Vec<_> = measured.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        for (backend, polls) in measured.into_iter().flat_map(Result::unwrap) {
            for (what, longest) in polls {
                assert!(longest < WAITED, "{backend:?}, {what}: a poll of {longest:?}");
            }
        }
    });
}
