//! A scan beside a hot set, in a memory cgroup that holds the hot set and a part of the scanned
//! file: how much of the hot set the page cache has after the scan, and how fast the scan was.
//! Buffered, with `RWF_DONTCACHE`, and direct. Prints a line for each round.
//!
//! `cargo bench -p ringway --bench dont_cache -- [hot MiB] [memory MiB] [scanned MiB] [rounds]`
//!
//! It makes a cgroup, so it runs as root only. The files are in `CARGO_TARGET_TMPDIR`, which must
//! be on ext4 or XFS, with kernel 6.14 or newer.

use ringway::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs, io};

/// Set in the child process of a round: the way of its scan.
const WAY: &str = "RINGWAY_BENCH_WAY";
const WAYS: [&str; 3] = ["buffered", "dont_cache", "direct"];
const PAGE: u64 = 4096;

fn main() -> io::Result<()> {
    let numbers = env::args().skip(1).filter_map(|word| word.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.extend(&[64, 160, 640, 3][numbers.len().min(4)..]);
    let [hot, memory, scanned, rounds] = numbers[..] else { panic!("at most four numbers") };
    if let Ok(way) = env::var(WAY) {
        return round(&way, &PathBuf::from(env::var("RINGWAY_BENCH_DIR").unwrap()));
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    for (name, size) in [("hot", hot), ("scanned", scanned)] {
        let path = dir.path().join(name);
        fs::write(&path, vec![7; (size << 20) as usize])?;
        fs::File::open(&path)?.sync_all()?;
    }
    println!("hot set {hot} MiB, memory {memory} MiB, scan of {scanned} MiB");
    let group = Cgroup::new(memory << 20)?;
    for _ in 0..rounds {
        for way in WAYS {
            for name in ["hot", "scanned"] {
                let file = fs::File::open(dir.path().join(name))?;
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
            // The child joins the group before it reads anything.
            let script = format!("echo $$ > {} && exec \"$0\"", group.join());
            let status = Command::new("sh")
                .args(["-c", &script])
                .arg(env::current_exe()?)
                .env(WAY, way)
                .env("RINGWAY_BENCH_DIR", dir.path())
                .status()?;
            assert!(status.success(), "{way}: {status}");
        }
    }
    Ok(())
}

/// Reads the hot set, then all of the other file, and looks at what is left of the hot set.
#[tokio::main(flavor = "current_thread")]
async fn round(way: &str, dir: &Path) -> io::Result<()> {
    let hot = File::open(dir.join("hot")).await?;
    let len = hot.metadata().await?.len();
    let hot_reader = || async {
        let mut reader = hot.reader();
        while reader.next_block().await?.is_some() {}
        io::Result::Ok(())
    };
    hot_reader().await?;
    let mut options = OpenOptions::new();
    options.read(true).dont_cache(way == "dont_cache").direct(way == "direct");
    let file = options.open(dir.join("scanned")).await?;
    let (begun, mut bytes) = (Instant::now(), 0);
    let mut reader = file.reader();
    while let Some(block) = reader.next_block().await? {
        bytes += block.len();
    }
    let speed = (bytes >> 20) as f64 / begun.elapsed().as_secs_f64();
    let hits = (0..len / PAGE).filter(|page| is_cached(&hot, page * PAGE)).count();
    let rate = 100.0 * hits as f64 / (len / PAGE) as f64;
    println!("{way:11} hot set {rate:5.1} % cached   scan {speed:6.0} MiB/s   {}", file.caching());
    Ok(())
}

/// Whether the page cache has this page; asks the kernel every time.
fn is_cached(file: &File, offset: u64) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut byte = [0];
    let parts = &mut [io::IoSliceMut::new(&mut byte)];
    preadv2(file, parts, offset, ReadWriteFlags::NOWAIT).is_ok_and(|read| read == 1)
}

/// A memory cgroup, of version 2 or 1, which is removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(bytes: u64) -> io::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let is_old = root.join("memory").is_dir();
        let (root, limit) = if is_old {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            fs::write(root.join("cgroup.subtree_control"), "+memory")?;
            (root.to_owned(), "memory.max")
        };
        let group = Self(root.join(format!("ringway-bench-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join(limit), bytes.to_string())?;
        Ok(group)
    }

    fn join(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
