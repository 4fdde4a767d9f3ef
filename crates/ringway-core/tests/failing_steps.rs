//! Every step of every compound operation fails in turn: split reads, writes, appends, vectored
//! transfers, chains with and without `continue_on_error`, barriers and timeouts. Each runs on
//! every backend with each kind of result, at once and after all others. The test compares the
//! results and the content of the file with what the documentation promises.
//!
//! Real devices that complete late (`conformance/large.rs`) and random operations (`model.rs`) are
//! tested elsewhere.

// The results are those of direct I/O, whose short transfers are whole blocks; the build with
// `ringway_portable` runs it for the code of the other systems.
#![cfg(target_os = "linux")]

use ringway_core::op::{self, Vectored};
use ringway_core::{
    AlignedBuffer, BackendKind, Completion, FaultPlan, FaultStep, File, Late, OpId, OpenOptions,
    Operation, Options, Queue,
};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BACKENDS: &[BackendKind] = if cfg!(ringway_linux) {
    &[BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads]
} else {
    &[BackendKind::Threads]
};
/// After this a call hangs, even on a loaded machine.
const HANG_LIMIT: Duration = Duration::from_secs(60);
/// A timeout that never expires.
const NEVER_EXPIRES: Duration = Duration::from_secs(600);
/// A timeout that expires for a starving step.
const EXPIRES: Duration = Duration::from_millis(3);
const BLOCK: usize = 4096;
/// The initial content of the file.
const OLD: u8 = 1;
/// The content that is written.
const NEW: u8 = 2;
/// The content of a buffer before a read.
const UNREAD: u8 = 3;

/// The injected result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    /// No fault.
    Own,
    Short,
    /// A transfer of 0 bytes.
    Nothing,
    Errno(i32),
}

const RESULTS: [Injected; 8] = [
    Injected::Own,
    Injected::Short,
    Injected::Nothing,
    Injected::Errno(libc::EIO),
    Injected::Errno(libc::ENOSPC),
    Injected::Errno(libc::EINTR),
    Injected::Errno(libc::EAGAIN),
    Injected::Errno(libc::ECANCELED),
];

/// The results to try where only completion matters.
const FEW_RESULTS: [Injected; 3] =
    [Injected::Own, Injected::Errno(libc::EIO), Injected::Errno(libc::EAGAIN)];

impl Injected {
    /// Whether the queue retries this result without reporting it.
    fn is_retried(self) -> bool {
        matches!(self, Self::Errno(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
    }

    fn plan(self, step: FaultStep, late: Option<Late>) -> FaultPlan {
        let plan = late.into_iter().fold(FaultPlan::new(1), |plan, late| plan.late(step, late));
        match self {
            Self::Own => plan,
            Self::Short => plan.cut(step),
            Self::Nothing => plan.fail(step, 0),
            Self::Errno(errno) => plan.fail(step, errno),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Readv,
    Write,
    Writev,
    WriteDsync,
    /// To a descriptor open for appending.
    Append,
    AppendDsync,
    Fsync,
    Fdatasync,
}

/// One operation. All but the appends are at offset 0.
#[derive(Clone, Copy, Debug)]
struct Part {
    call: Call,
    len: usize,
    exact: bool,
    continue_on_error: bool,
    drain: bool,
    timeout: Option<Duration>,
}

fn part(call: Call, len: usize) -> Part {
    Part { call, len, exact: false, continue_on_error: false, drain: false, timeout: None }
}

impl Part {
    fn exact(self) -> Self {
        Self { exact: true, ..self }
    }

    fn continue_on_error(self) -> Self {
        Self { continue_on_error: true, ..self }
    }

    fn drain(self) -> Self {
        Self { drain: true, ..self }
    }

    fn is_write(self) -> bool {
        !matches!(self.call, Call::Read | Call::Readv | Call::Fsync | Call::Fdatasync)
    }

    /// The number of requests that the backend gets.
    fn jobs(self, request: usize) -> u64 {
        if self.call == Call::Read { self.len.div_ceil(request).max(1) as u64 } else { 1 }
    }
}

/// The operations of one run: chains of one or more members, pushed one after the other.
type Compound = Vec<Vec<Part>>;

struct World {
    backend: BackendKind,
    path: PathBuf,
    file: File,
    log: File,
    /// Bytes of the largest request, and initial bytes of the file.
    request: usize,
    size: usize,
    runs: Cell<u64>,
}

impl World {
    fn new(backend: BackendKind, name: &str, on_disk: bool) -> Option<Self> {
        if let Err(error) = Options::new().backend(backend).build() {
            // If `CI` is set, every backend must be available.
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: {error}");
            return None;
        }
        // In memory if possible, where syncs cost nothing. Only a device has a largest request.
        let name = format!("steps-{name}-{backend}-{}", std::process::id());
        let places = [Path::new("/dev/shm"), Path::new(env!("CARGO_TARGET_TMPDIR"))];
        let path =
            places.map(|dir| dir.join(&name)).into_iter().skip(usize::from(on_disk)).find(|path| {
                std::fs::write(path, [OLD; BLOCK]).unwrap();
                let direct = OpenOptions::new().read(true).direct(true).open(path).is_ok();
                if !direct {
                    std::fs::remove_file(path).unwrap();
                }
                direct
            });
        let path = path.expect("no direct I/O on disk");
        let open = |append: bool| {
            OpenOptions::new()
                .read(true)
                .write(!append)
                .append(append)
                .direct(true)
                .open(&path)
                .unwrap()
        };
        let (file, log) = (open(false), open(true));
        let request =
            file.largest_request().map_or(1 << 30, |bytes| bytes as usize / BLOCK * BLOCK);
        let size = if on_disk { 2 * request.min(2 << 20) + BLOCK } else { 8 * BLOCK };
        Some(Self { backend, path, file, log, request, size, runs: Cell::new(0) })
    }

    fn reset(&self) {
        std::fs::write(&self.path, vec![OLD; self.size]).unwrap();
    }

    fn queue(&self, plan: FaultPlan) -> Queue {
        self.runs.set(self.runs.get() + 1);
        let options = Options::new().backend(self.backend).faults(plan).close_wait(HANG_LIMIT);
        // Other processes may have used up its resources.
        let until = Instant::now() + HANG_LIMIT;
        loop {
            match options.build() {
                Ok(queue) => return queue,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn operation(&self, number: usize, part: Part) -> Operation {
        let fill = if part.is_write() { NEW } else { UNREAD };
        let buffer = || {
            let mut buffer = AlignedBuffer::for_direct(self.file.direct_io(), part.len);
            buffer.fill(fill);
            buffer
        };
        let halves = || {
            let first = part.len / 2 / BLOCK * BLOCK;
            Vectored::new([first, part.len - first].map(|len| {
                let mut buffer = AlignedBuffer::for_direct(self.file.direct_io(), len);
                buffer.fill(fill);
                buffer
            }))
        };
        let mut operation = match part.call {
            Call::Read => op::read(&self.file, buffer(), 0),
            Call::Readv => op::readv(&self.file, halves(), 0),
            Call::Write => op::write(&self.file, buffer(), 0),
            Call::Writev => op::writev(&self.file, halves(), 0),
            Call::WriteDsync => op::write_dsync(&self.file, buffer(), 0),
            Call::Append => op::write(&self.log, buffer(), 0),
            Call::AppendDsync => op::write_dsync(&self.log, buffer(), 0),
            Call::Fsync => op::fsync(&self.file),
            Call::Fdatasync => op::fdatasync(&self.file),
        };
        operation = operation.user_data(number as u64);
        if part.exact {
            operation = operation.exact();
        }
        if part.continue_on_error {
            operation = operation.continue_on_error();
        }
        if part.drain {
            operation = operation.drain();
        }
        match part.timeout {
            Some(limit) => operation.timeout(limit),
            None => operation,
        }
    }

    /// Pushes all chains, and returns the id of the first member of each.
    fn push(&self, queue: &mut Queue, compound: &Compound) -> Vec<OpId> {
        let mut number = 0;
        let mut ids = Vec::new();
        for chain in compound {
            let operations: Vec<Operation> = chain
                .iter()
                .zip(number..)
                .map(|(part, number)| self.operation(number, *part))
                .collect();
            number += chain.len();
            let id = match <[Operation; 1]>::try_from(operations) {
                Ok([alone]) => queue.push(alone),
                Err(chain) => queue.push_chain(chain),
            };
            ids.push(id.unwrap());
        }
        ids
    }

    /// Checks that the file has the content that follows from these results.
    fn check_content(&self, compound: &Compound, results: &[Result<u64, i32>]) {
        let mut expected = vec![OLD; self.size];
        for (part, result) in compound.iter().flatten().zip(results) {
            let done = result.unwrap_or(0) as usize;
            match part.call {
                Call::Append | Call::AppendDsync => expected.resize(expected.len() + done, NEW),
                Call::Write | Call::Writev | Call::WriteDsync => expected[..done].fill(NEW),
                _ => {}
            }
        }
        let content = std::fs::read(&self.path).unwrap();
        assert!(
            content == expected,
            "{} bytes, {} expected, or other content",
            content.len(),
            expected.len()
        );
    }
}

/// The results by number, and the order of the completions.
fn all(queue: &mut Queue) -> (Vec<Result<u64, i32>>, Vec<usize>) {
    let count = queue.in_flight();
    let until = Instant::now() + HANG_LIMIT;
    let done: Vec<Completion> = queue.reap_until(count, until).unwrap().collect();
    assert_eq!(done.len(), count, "it hangs after {done:?}");
    let counts = queue.stats().counts;
    assert_eq!((counts.pushed, counts.in_flight), (counts.delivered, 0));
    let mut results = vec![Err(0); count];
    let order = done.iter().map(|done| done.user_data as usize).collect();
    for done in done {
        results[done.user_data as usize] = done.result.map_err(|error| error.errno());
        // All bytes that count as read were read. (All reads come before the writes.)
        if let (Ok(read), op::Opcode::Read) = (done.result, done.opcode) {
            let buffer = done.into_buffer().unwrap();
            assert!(
                buffer.as_slice()[..read as usize] == vec![OLD; read as usize],
                "{read} bytes are not those of the file"
            );
        }
    }
    (results, order)
}

/// Whether `result` is as documented when job `hit` of this operation has this result.
fn fits(
    part: Part,
    request: usize,
    hit: Option<(u64, Injected)>,
    result: Result<u64, i32>,
) -> bool {
    let sync = matches!(part.call, Call::Fsync | Call::Fdatasync);
    let vectored = matches!(part.call, Call::Readv | Call::Writev);
    let full = Ok(if sync { 0 } else { part.len as u64 });
    let Some((job, injected)) = hit else { return result == full };
    let before = job * request as u64;
    let piece = (part.len as u64 - before.min(part.len as u64)).min(if part.jobs(request) > 1 {
        request as u64
    } else {
        u64::MAX
    });
    match injected {
        Injected::Errno(errno) if !injected.is_retried() => {
            result == if before > 0 && !part.exact { Ok(before) } else { Err(errno) }
        }
        Injected::Short if !sync && !part.exact && (piece > BLOCK as u64 || vectored) => result
            .is_ok_and(|done| {
                done > before && done < before + piece && done.is_multiple_of(BLOCK as u64)
            }),
        Injected::Nothing if !sync && !part.exact => result == Ok(before),
        Injected::Nothing if part.is_write() => result == Err(libc::ENOSPC),
        // As at the end of the file. After bytes that were read, `exact` reads once more.
        Injected::Nothing if !sync && before == 0 => result == Ok(0),
        _ => result == full,
    }
}

fn succeeded(part: Part, result: Result<u64, i32>) -> bool {
    match part.call {
        Call::Fsync | Call::Fdatasync => result.is_ok(),
        _ => result == Ok(part.len as u64),
    }
}

/// Each step of `compound` in turn has each result, at once and after all others.
fn each_step(world: &World, compound: &Compound) {
    let parts: Vec<Part> = compound.iter().flatten().copied().collect();
    let jobs: Vec<(usize, u64)> = (0..)
        .zip(&parts)
        .flat_map(|(number, part)| (0..part.jobs(world.request)).map(move |job| (number, job)))
        .collect();
    // Pushed together, single operations reach the backend in the order of the pushes, as chains
    // do.
    for (step, (hit, piece)) in (0..).zip(jobs) {
        for injected in RESULTS {
            for late in [None, Some(Late::Last)] {
                world.reset();
                let mut queue = world.queue(injected.plan(FaultStep::Job(step), late));
                world.push(&mut queue, compound);
                let (results, order) = all(&mut queue);
                let case = format!(
                    "{} {compound:?}: step {step} {injected:?} {late:?}: {results:?}",
                    world.backend
                );
                let mut number = 0;
                for chain in compound {
                    let mut broken = false;
                    for part in chain {
                        let result = results[number];
                        if broken {
                            assert_eq!(
                                result,
                                Err(libc::ECANCELED),
                                "operation {number} in {case}"
                            );
                        } else {
                            let hit = (number == hit).then_some((piece, injected));
                            assert!(
                                fits(*part, world.request, hit, result),
                                "operation {number} in {case}"
                            );
                        }
                        broken = !succeeded(*part, result) && !part.continue_on_error;
                        number += 1;
                    }
                }
                // A barrier completes after all operations before it, and before all after it.
                for (number, _) in parts.iter().enumerate().filter(|(_, part)| part.drain) {
                    let at = order.iter().position(|other| *other == number).unwrap();
                    assert!(order[..at].iter().all(|other| *other < number), "{order:?} in {case}");
                    assert!(
                        order[at..].iter().all(|other| *other >= number),
                        "{order:?} in {case}"
                    );
                }
                // A final error is not retried: an error of a sync is reported once.
                let retries = queue.stats().retries;
                assert_eq!(retries, u64::from(injected.is_retried()), "retries in {case}");
                world.check_content(compound, &results);
            }
        }
    }
}

/// Each step of `compound` in turn starves forever. Then all operations are cancelled, or the first
/// of each chain, or the queue is closed or dropped.
fn each_step_starves(world: &World, compound: &Compound) {
    let parts: Vec<Part> = compound.iter().flatten().copied().collect();
    let jobs = parts.iter().map(|part| part.jobs(world.request)).sum();
    for step in (0..jobs).map(FaultStep::Job) {
        for injected in FEW_RESULTS {
            for ending in 0..4 {
                world.reset();
                let mut queue = world.queue(injected.plan(step, Some(Late::Forever)));
                let ids = world.push(&mut queue, compound);
                for _ in 0..3 {
                    queue.submit().unwrap();
                }
                match ending {
                    0 => _ = queue.cancel_all(),
                    1 => ids.iter().for_each(|id| _ = queue.cancel(*id)),
                    2 => assert_eq!(queue.close(HANG_LIMIT).unwrap(), 0),
                    _ => {
                        let in_flight = queue.in_flight();
                        drop(queue);
                        assert!(in_flight > 0 || parts.is_empty());
                        continue;
                    }
                }
                if ending == 1 {
                    // The rest of a chain whose first member has completed still starves.
                    let moment = Instant::now() + Duration::from_millis(5);
                    queue.reap_until(usize::MAX, moment).unwrap().for_each(drop);
                    queue.cancel_all();
                    let left = queue.in_flight();
                    let done = queue.reap_until(left, Instant::now() + HANG_LIMIT).unwrap().count();
                    assert_eq!(
                        done, left,
                        "{} {compound:?} {step:?} {injected:?} hangs",
                        world.backend
                    );
                    continue;
                }
                let (results, _) = all(&mut queue);
                let case = format!(
                    "{} {compound:?} {step:?} {injected:?} {ending}: {results:?}",
                    world.backend
                );
                for (part, result) in parts.iter().zip(&results) {
                    let fits = match (result, injected) {
                        (Ok(done), _) => {
                            *done <= part.len as u64
                                && (!part.exact
                                    || succeeded(*part, *result)
                                    || injected == Injected::Nothing)
                        }
                        (Err(libc::ECANCELED), _) => true,
                        (Err(errno), Injected::Errno(expected)) => *errno == expected,
                        (Err(errno), Injected::Nothing) => *errno == libc::ENOSPC,
                        _ => false,
                    };
                    assert!(fits, "{case}");
                }
                // A write that completes with ECANCELED may have been done.
                if !parts.iter().any(|part| part.is_write()) {
                    world.check_content(compound, &results);
                }
            }
        }
    }
}

/// Runs `test` for each compound on one of the backends in turn; if tests take their time, on all.
fn on_each(
    name: &str,
    on_disk: bool,
    compounds: impl Fn(&World) -> Vec<Compound>,
    test: impl Fn(&World, &Compound),
) {
    for (turn, &backend) in BACKENDS.iter().enumerate() {
        let Some(world) = World::new(backend, name, on_disk) else { continue };
        let begin = Instant::now();
        for (number, compound) in compounds(&world).into_iter().enumerate() {
            if ringway_torture::is_long() || number % BACKENDS.len() == turn {
                test(&world, &compound);
            }
        }
        std::fs::remove_file(&world.path).unwrap();
        println!("{name}: {backend}: {} runs in {:.1?}", world.runs.get(), begin.elapsed());
    }
}

/// Single transfers, some in several pieces.
fn transfers(world: &World) -> Vec<Compound> {
    let long = world.size;
    let lens = [
        (Call::Read, long),
        (Call::Readv, 4 * BLOCK),
        (Call::Write, long),
        (Call::Writev, 4 * BLOCK),
        (Call::WriteDsync, long),
        (Call::Append, long),
        (Call::AppendDsync, long),
    ];
    lens.into_iter()
        .flat_map(|(call, len)| [part(call, len), part(call, len).exact()])
        .flat_map(|part| [part, Part { timeout: Some(NEVER_EXPIRES), ..part }])
        .map(|part| vec![vec![part]])
        .collect()
}

/// Chains of two to four members, and operations around barriers.
fn chains(_: &World) -> Vec<Compound> {
    use Call::{Append, Fdatasync, Fsync, Read, Write, Writev};
    let len = 2 * BLOCK;
    let (read, write, append, sync) =
        (part(Read, len), part(Write, len), part(Append, len), part(Fdatasync, 0));
    let limited = |part: Part| Part { timeout: Some(NEVER_EXPIRES), ..part };
    vec![
        vec![vec![write, sync]],
        vec![vec![write.exact(), sync]],
        vec![vec![append.exact(), sync]],
        vec![vec![write.continue_on_error(), sync]],
        vec![vec![read, part(Writev, len), part(Fsync, 0)]],
        vec![vec![append.exact(), sync.continue_on_error(), append.exact()]],
        vec![vec![read.exact(), write.exact(), sync, append.exact()]],
        vec![vec![
            read.continue_on_error(),
            write.continue_on_error(),
            sync.continue_on_error(),
            append,
        ]],
        vec![vec![limited(write.exact()), limited(sync)]],
        vec![vec![read], vec![write.exact().drain()], vec![sync]],
        vec![vec![read], vec![write.exact().drain(), sync], vec![append]],
        vec![vec![append.exact(), sync], vec![sync.drain()], vec![append.exact(), sync]],
    ]
}

#[test]
fn each_step_of_a_transfer_fails() {
    on_each("transfers", true, transfers, each_step);
}

#[test]
fn each_step_of_a_chain_fails() {
    on_each("chains", false, chains, each_step);
}

#[test]
fn each_step_of_a_transfer_starves() {
    on_each("starving-transfers", true, transfers, each_step_starves);
}

#[test]
fn each_step_of_a_chain_starves() {
    on_each("starving-chains", false, chains, each_step_starves);
}

/// A timeout ends a starving step, whatever its result: with that result, or with ETIMEDOUT where
/// it would be retried.
#[test]
fn a_timeout_ends_each_step() {
    let limited = |compounds: Vec<Compound>| {
        let limit = |part: &Part| Part { timeout: Some(EXPIRES), ..*part };
        compounds
            .iter()
            .map(|chains| chains.iter().map(|chain| chain.iter().map(limit).collect()).collect())
            .collect()
    };
    on_each(
        "limits",
        true,
        |world| limited([transfers(world), chains(world)].concat()),
        |world, compound| {
            let parts: Vec<Part> = compound.iter().flatten().copied().collect();
            for step in
                (0..parts.iter().map(|part| part.jobs(world.request)).sum()).map(FaultStep::Job)
            {
                for injected in FEW_RESULTS {
                    world.reset();
                    let mut queue = world.queue(injected.plan(step, Some(Late::Forever)));
                    world.push(&mut queue, compound);
                    let (results, _) = all(&mut queue);
                    for (part, result) in parts.iter().zip(&results) {
                        let fits = match result {
                            Ok(_) => !part.exact || succeeded(*part, *result),
                            Err(libc::EIO) => injected == Injected::Errno(libc::EIO),
                            Err(errno) => [libc::ETIMEDOUT, libc::ECANCELED].contains(errno),
                        };
                        assert!(
                            fits,
                            "{} {compound:?} {step:?} {injected:?}: {results:?}",
                            world.backend
                        );
                    }
                }
            }
        },
    );
}
