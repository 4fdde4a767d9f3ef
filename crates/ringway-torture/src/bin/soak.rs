//! Runs random scripts on all backends, with and without faults, on several threads, for the given
//! time. It finds what fails once in a million operations. `make soak` runs it.
//!
//!     soak [TIME] [--seed NUMBER] [--jobs COUNT] [--dir DIR]
//!     soak --replay SEED [--times COUNT] [--dir DIR]
//!
//! TIME is like `90s`, `10m` or `2h`; the default is ten minutes. Each script has its own seed,
//! which is printed when it fails. A replay pushes the same operations to the same backend under
//! the same faults, but the kernel's timing differs, so some failures need several times.

use ringway_core::{BackendKind, Counts};
use ringway_torture::{Conditions, Faults, Random, Report, Script, run, watchdog::Watchdog};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BACKENDS: [BackendKind; 4] =
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads, BackendKind::Null];
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Allowed growth of memory: allocators keep some, and the largest scripts may come late.
const GROWTH: u64 = 64 << 20;

struct Arguments {
    time: Duration,
    seed: u64,
    jobs: u64,
    dir: PathBuf,
    replay: Option<u64>,
    times: u64,
}

fn main() -> ExitCode {
    keep_no_memory();
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("soak: {text}");
            return ExitCode::from(2);
        }
    };
    let result = match arguments.replay {
        Some(seed) => replay(seed, &arguments),
        None => soak(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the allocator return freed memory, so that growth is a leak. By default glibc keeps large
/// buffers, and an arena for each of many short-lived threads.
fn keep_no_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the calls take numbers only; no other thread has been started.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

impl Arguments {
    fn read(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut this = Self {
            time: Duration::from_secs(600),
            seed: now.map_or(0, |now| now.as_nanos() as u64),
            jobs: 4,
            dir: std::env::temp_dir(),
            replay: None,
            times: 1,
        };
        let number = |text: String| text.parse().map_err(|_| format!("`{text}` is not a number"));
        while let Some(word) = given.next() {
            let mut value = || given.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--seed" => this.seed = number(value()?)?,
                "--jobs" => this.jobs = number(value()?)?.max(1),
                "--dir" => this.dir = value()?.into(),
                "--replay" => this.replay = Some(number(value()?)?),
                "--times" => this.times = number(value()?)?,
                time => this.time = duration(time)?,
            }
        }
        Ok(this)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a duration: use 90s, 10m or 2h");
    let unit = text.chars().last().ok_or_else(bad)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(bad()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| bad())?;
    Ok(Duration::from_secs(count * seconds))
}

/// The script and conditions of a seed.
fn make(seed: u64) -> (Script, Conditions) {
    let mut random = Random(seed);
    let backend = BACKENDS[random.number() as usize % 10 % BACKENDS.len()];
    let direct = random.number().is_multiple_of(2);
    let mut rate =
        || if random.number().is_multiple_of(2) { 0 } else { (random.number() % 300) as u16 };
    let [short, errors, retryable, delay, reorder, starve, sync_errors] =
        std::array::from_fn(|_| rate());
    // A completion that starves while an endless operation is in flight takes 50 ms.
    let starve = starve / 4;
    let faults = Faults { seed, short, errors, retryable, delay, reorder, starve, sync_errors };
    let faults = random.number().is_multiple_of(2).then_some(faults);
    let length = 20 + random.number() % 1500;
    (Script::decode(&random.bytes(length as usize)), Conditions { backend, direct, faults })
}

/// Runs one script in a directory of its own below `dir`. Returns `None` if its backend is refused.
fn one(seed: u64, dir: &Path) -> Result<Option<Report>, String> {
    let (script, conditions) = make(seed);
    let path = dir.join(format!("ringway-soak-{}-{seed}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let _watched = Watchdog::new(&format!("soak --replay {seed}: {conditions:?}"));
    let ran = run(&script, &conditions, &path);
    // Leftovers matter only to a repetition of this seed.
    let _ = std::fs::remove_dir_all(&path);
    match ran {
        Ok(report) => Ok(Some(report)),
        Err(failure) if failure.refused => Ok(None),
        Err(failure) => Err(format!("soak --replay {seed}: {conditions:?}\n{failure}")),
    }
}

fn replay(seed: u64, arguments: &Arguments) -> Result<(), String> {
    let (script, conditions) = make(seed);
    println!("{conditions:?}\n{script:#?}");
    for _ in 0..arguments.times {
        one(seed, &arguments.dir)?.ok_or("the backend is refused here")?;
    }
    println!("{} times without a failure", arguments.times);
    Ok(())
}

#[derive(Default)]
struct Total {
    scripts: u64,
    /// Scripts whose backend is refused here.
    refused: u64,
    counts: Counts,
    compared: u64,
}

fn soak(arguments: &Arguments) -> Result<(), String> {
    // Starts what stays for the whole process: the watchdog, and one-time setup of the library.
    one(arguments.seed, &arguments.dir)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = Usage::now();
    println!("soak: {:?}, seed {}, {before:?}", arguments.time, arguments.seed);
    let next = AtomicU64::new(arguments.seed.wrapping_add(1));
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    let begin = Instant::now();
    let work = || -> Result<(), String> {
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < arguments.time {
            let report =
                one(next.fetch_add(1, Ordering::Relaxed), &arguments.dir).inspect_err(|text| {
                    eprintln!("{text}");
                    stop.store(true, Ordering::Relaxed);
                })?;
            let mut total = total.lock().map_err(|_| "another worker has panicked")?;
            match report {
                None => total.refused += 1,
                Some(report) => {
                    total.scripts += 1;
                    total.counts += report.stats.counts;
                    total.compared += report.compared;
                }
            }
        }
        Ok(())
    };
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs).map(|_| scope.spawn(work)).collect();
        let mut shown = Instant::now();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(50));
            if shown.elapsed() >= REPORT_INTERVAL {
                shown = Instant::now();
                println!("{:4} s  {}", begin.elapsed().as_secs(), line(&total));
            }
        }
        workers
            .into_iter()
            .map(|worker| worker.join())
            .filter(|end| !matches!(end, Ok(Ok(()))))
            .count()
    });
    println!("{:4} s  {}", begin.elapsed().as_secs(), line(&total));
    if failed > 0 {
        return Err("soak: FAILED".into());
    }
    // Threads left in a blocking call need a moment, and the kernel closes some descriptors late.
    let until = Instant::now() + Duration::from_secs(20);
    let after = loop {
        let now = Usage::now();
        if (now.descriptors <= before.descriptors && now.threads <= before.threads)
            || Instant::now() >= until
        {
            break now;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    println!("before: {before:?}; after: {after:?}");
    if after.descriptors > before.descriptors || after.threads > before.threads {
        return Err("soak: FAILED: descriptors or threads are left over".into());
    }
    if after.memory > before.memory + GROWTH {
        return Err("soak: FAILED: memory has grown".into());
    }
    println!("soak: passed");
    Ok(())
}

fn line(total: &Mutex<Total>) -> String {
    let Ok(total) = total.lock() else { return "a worker has panicked".into() };
    let Total { scripts, refused, counts, compared } = *total;
    let usage = Usage::now();
    format!("{scripts} scripts ({refused} refused), {counts:?}, {} MiB; {usage:?}", compared >> 20)
}

/// Resources of this process.
#[derive(Debug)]
struct Usage {
    descriptors: usize,
    threads: usize,
    /// Resident bytes.
    memory: u64,
}

impl Usage {
    fn now() -> Self {
        let count = |dir: &str| std::fs::read_dir(dir).map_or(0, Iterator::count);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            memory: kib.unwrap_or(0u64) << 10,
        }
    }
}
