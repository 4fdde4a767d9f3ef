//! Every step of every compound operation fails in turn: split reads, writes, appends, vectored
//! transfers, chains with and without `always`, barriers and time limits, on every backend, with
//! each kind of answer, at once and after everything else. The answers are held against what the
//! documentation promises, and so is the content of the file.
//!
//! What is left out: real devices that answer late (`conformance/large.rs`), and random operations
//! (`model.rs`).

use ringway_core::op::{self, Vectored};
use ringway_core::{
    AlignedBuffer, BackendKind, Completion, FaultPlan, FaultStep, File, Late, OpId, OpenOptions,
    Operation, Options, Queue,
};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BACKENDS: [BackendKind; 3] = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
/// A hang, even on a loaded machine.
const HANGS: Duration = Duration::from_secs(60);
/// A time limit that nothing reaches.
const LONG: Duration = Duration::from_secs(600);
/// A time limit that is reached by what starves.
const BRIEF: Duration = Duration::from_millis(3);
const BLOCK: usize = 4096;
/// What is in the file.
const OLD: u8 = 1;
/// What is written.
const NEW: u8 = 2;
/// What is in a buffer before it is read into.
const ROOM: u8 = 3;

/// What one step answers in place of what it would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// As without a fault.
    Own,
    Short,
    /// A transfer of nothing.
    Nothing,
    Errno(i32),
}

const ANSWERS: [Answer; 8] = [
    Answer::Own,
    Answer::Short,
    Answer::Nothing,
    Answer::Errno(libc::EIO),
    Answer::Errno(libc::ENOSPC),
    Answer::Errno(libc::EINTR),
    Answer::Errno(libc::EAGAIN),
    Answer::Errno(libc::ECANCELED),
];

/// Where what it comes to matters less than that it comes.
const BRIEFLY: [Answer; 3] = [Answer::Own, Answer::Errno(libc::EIO), Answer::Errno(libc::EAGAIN)];

impl Answer {
    /// The queue tries again, and it does not show.
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
enum What {
    Read,
    Readv,
    Write,
    Writev,
    WriteDsync,
    /// By a descriptor for appending.
    Append,
    AppendDsync,
    Fsync,
    Fdatasync,
}

/// One operation. All of them but the appends are at the beginning of the file.
#[derive(Clone, Copy, Debug)]
struct Part {
    what: What,
    len: usize,
    exact: bool,
    always: bool,
    drain: bool,
    timeout: Option<Duration>,
}

fn part(what: What, len: usize) -> Part {
    Part { what, len, exact: false, always: false, drain: false, timeout: None }
}

impl Part {
    fn exact(self) -> Self {
        Self { exact: true, ..self }
    }

    fn continue_on_error(self) -> Self {
        Self { always: true, ..self }
    }

    fn drain(self) -> Self {
        Self { drain: true, ..self }
    }

    fn is_write(self) -> bool {
        !matches!(self.what, What::Read | What::Readv | What::Fsync | What::Fdatasync)
    }

    /// In how many requests it goes to the backend.
    fn jobs(self, request: usize) -> u64 {
        if self.what == What::Read { self.len.div_ceil(request).max(1) as u64 } else { 1 }
    }
}

/// The operations of one test: chains, of one or more, pushed one after the other.
type Compound = Vec<Vec<Part>>;

struct World {
    backend: BackendKind,
    path: PathBuf,
    file: File,
    log: File,
    /// Bytes of the largest request, and in the file at first.
    request: usize,
    size: usize,
    runs: Cell<u64>,
}

impl World {
    fn new(backend: BackendKind, name: &str, on_disk: bool) -> Option<Self> {
        if let Err(error) = Options::new().backend(backend).build() {
            // Where `CI` is set, everything can be tested.
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: {error}");
            return None;
        }
        // In memory, where syncs cost nothing; but only a device has a largest request.
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
        let options = Options::new().backend(self.backend).faults(plan).close_wait(HANGS);
        // Another test may have switched io_uring off for a while, or used up what there is of it.
        let until = Instant::now() + HANGS;
        loop {
            match options.build() {
                Ok(queue) => return queue,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn operation(&self, number: usize, part: Part) -> Operation {
        let fill = if part.is_write() { NEW } else { ROOM };
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
        let mut operation = match part.what {
            What::Read => op::read(&self.file, buffer(), 0),
            What::Readv => op::readv(&self.file, halves(), 0),
            What::Write => op::write(&self.file, buffer(), 0),
            What::Writev => op::writev(&self.file, halves(), 0),
            What::WriteDsync => op::write_dsync(&self.file, buffer(), 0),
            What::Append => op::write(&self.log, buffer(), 0),
            What::AppendDsync => op::write_dsync(&self.log, buffer(), 0),
            What::Fsync => op::fsync(&self.file),
            What::Fdatasync => op::fdatasync(&self.file),
        };
        operation = operation.user_data(number as u64);
        if part.exact {
            operation = operation.exact();
        }
        if part.always {
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

    /// Pushes all of it; the ids of each chain's first.
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

    /// What the file has to be after these results.
    fn check_content(&self, compound: &Compound, results: &[Result<u64, i32>]) {
        let mut expected = vec![OLD; self.size];
        for (part, result) in compound.iter().flatten().zip(results) {
            let done = result.unwrap_or(0) as usize;
            match part.what {
                What::Append | What::AppendDsync => expected.resize(expected.len() + done, NEW),
                What::Write | What::Writev | What::WriteDsync => expected[..done].fill(NEW),
                _ => {}
            }
        }
        let content = std::fs::read(&self.path).unwrap();
        assert!(
            content == expected,
            "{} bytes, {} expected: or other ones",
            content.len(),
            expected.len()
        );
    }
}

/// The results by number, and the order in which they came.
fn all(queue: &mut Queue) -> (Vec<Result<u64, i32>>, Vec<usize>) {
    let count = queue.in_flight();
    let until = Instant::now() + HANGS;
    let done: Vec<Completion> = queue.reap_until(count, until).unwrap().collect();
    assert_eq!(done.len(), count, "it hangs: {done:?}");
    let counts = queue.stats().counts;
    assert_eq!((counts.pushed, counts.in_flight), (counts.delivered, 0));
    let mut results = vec![Err(0); count];
    let order = done.iter().map(|done| done.user_data as usize).collect();
    for done in done {
        results[done.user_data as usize] = done.result.map_err(|error| error.errno());
        // What counts as read has been read, byte by byte; all reads come before the writes.
        if let (Ok(read), op::Opcode::Read) = (done.result, done.opcode) {
            let buffer = done.into_buffer().unwrap();
            assert!(
                buffer.as_slice()[..read as usize] == vec![OLD; read as usize],
                "{read} bytes that were not read"
            );
        }
    }
    (results, order)
}

/// Whether `result` is what is promised when the job `hit` of this operation gives this answer.
fn fits(part: Part, request: usize, hit: Option<(u64, Answer)>, result: Result<u64, i32>) -> bool {
    let sync = matches!(part.what, What::Fsync | What::Fdatasync);
    let vectored = matches!(part.what, What::Readv | What::Writev);
    let full = Ok(if sync { 0 } else { part.len as u64 });
    let Some((job, answer)) = hit else { return result == full };
    let before = job * request as u64;
    let piece = (part.len as u64 - before.min(part.len as u64)).min(if part.jobs(request) > 1 {
        request as u64
    } else {
        u64::MAX
    });
    match answer {
        Answer::Errno(errno) if !answer.is_retried() => {
            result == if before > 0 && !part.exact { Ok(before) } else { Err(errno) }
        }
        Answer::Short if !sync && !part.exact && (piece > BLOCK as u64 || vectored) => result
            .is_ok_and(|done| {
                done > before && done < before + piece && done.is_multiple_of(BLOCK as u64)
            }),
        Answer::Nothing if !sync && !part.exact => result == Ok(before),
        Answer::Nothing if part.is_write() => result == Err(libc::ENOSPC),
        // As at the end of the file; behind something that was read, `exact` asks once more.
        Answer::Nothing if !sync && before == 0 => result == Ok(0),
        _ => result == full,
    }
}

fn succeeded(part: Part, result: Result<u64, i32>) -> bool {
    match part.what {
        What::Fsync | What::Fdatasync => result.is_ok(),
        _ => result == Ok(part.len as u64),
    }
}

/// Each step of `compound` in turn gives each answer, at once and after all others.
fn each_step(world: &World, compound: &Compound) {
    let parts: Vec<Part> = compound.iter().flatten().copied().collect();
    let jobs: Vec<(usize, u64)> = (0..)
        .zip(&parts)
        .flat_map(|(number, part)| (0..part.jobs(world.request)).map(move |job| (number, job)))
        .collect();
    // All at once, single operations are carried in the order in which they were pushed, as chains
    // are.
    for (step, (hit, piece)) in (0..).zip(jobs) {
        for answer in ANSWERS {
            for late in [None, Some(Late::Last)] {
                world.reset();
                let mut queue = world.queue(answer.plan(FaultStep::Job(step), late));
                world.push(&mut queue, compound);
                let (results, order) = all(&mut queue);
                let case = format!(
                    "{} {compound:?}: step {step} {answer:?} {late:?}: {results:?}",
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
                            let hit = (number == hit).then_some((piece, answer));
                            assert!(
                                fits(*part, world.request, hit, result),
                                "operation {number} in {case}"
                            );
                        }
                        broken = !succeeded(*part, result) && !part.always;
                        number += 1;
                    }
                }
                // A barrier comes after all before it, and before all after it.
                for (number, _) in parts.iter().enumerate().filter(|(_, part)| part.drain) {
                    let at = order.iter().position(|other| *other == number).unwrap();
                    assert!(order[..at].iter().all(|other| *other < number), "{order:?} in {case}");
                    assert!(
                        order[at..].iter().all(|other| *other >= number),
                        "{order:?} in {case}"
                    );
                }
                // What fails for good is not asked again: an error of a sync is reported once.
                let retries = queue.stats().retries;
                assert_eq!(retries, u64::from(answer.is_retried()), "retries in {case}");
                world.check_content(compound, &results);
            }
        }
    }
}

/// Each step of `compound` in turn starves for ever, and then all of it is cancelled, or its first
/// chain, or the queue is closed.
fn each_step_starves(world: &World, compound: &Compound) {
    let parts: Vec<Part> = compound.iter().flatten().copied().collect();
    let jobs = parts.iter().map(|part| part.jobs(world.request)).sum();
    for step in (0..jobs).map(FaultStep::Job) {
        for answer in BRIEFLY {
            for way in 0..4 {
                world.reset();
                let mut queue = world.queue(answer.plan(step, Some(Late::Forever)));
                let ids = world.push(&mut queue, compound);
                for _ in 0..3 {
                    queue.submit().unwrap();
                }
                match way {
                    0 => _ = queue.cancel_all(),
                    1 => ids.iter().for_each(|id| _ = queue.cancel(*id)),
                    2 => assert_eq!(queue.close(HANGS).unwrap(), 0),
                    _ => {
                        let in_flight = queue.in_flight();
                        drop(queue);
                        assert!(in_flight > 0 || parts.is_empty());
                        continue;
                    }
                }
                if way == 1 {
                    // What is left of a chain whose first was done already starves on.
                    let moment = Instant::now() + Duration::from_millis(5);
                    queue.reap_until(usize::MAX, moment).unwrap().for_each(drop);
                    queue.cancel_all();
                    let left = queue.in_flight();
                    let done = queue.reap_until(left, Instant::now() + HANGS).unwrap().count();
                    assert_eq!(
                        done, left,
                        "{} {compound:?} {step:?} {answer:?} hangs",
                        world.backend
                    );
                    continue;
                }
                let (results, _) = all(&mut queue);
                let case = format!(
                    "{} {compound:?} {step:?} {answer:?} {way}: {results:?}",
                    world.backend
                );
                for (part, result) in parts.iter().zip(&results) {
                    let fits = match (result, answer) {
                        (Ok(done), _) => {
                            *done <= part.len as u64
                                && (!part.exact
                                    || succeeded(*part, *result)
                                    || answer == Answer::Nothing)
                        }
                        (Err(libc::ECANCELED), _) => true,
                        (Err(errno), Answer::Errno(injected)) => *errno == injected,
                        (Err(errno), Answer::Nothing) => *errno == libc::ENOSPC,
                        _ => false,
                    };
                    assert!(fits, "{case}");
                }
                // A write that answers ECANCELED may have been carried out.
                if !parts.iter().any(|part| part.is_write()) {
                    world.check_content(compound, &results);
                }
            }
        }
    }
}

fn on_each(
    name: &str,
    on_disk: bool,
    compounds: impl Fn(&World) -> Vec<Compound>,
    test: impl Fn(&World, &Compound),
) {
    for backend in BACKENDS {
        let Some(world) = World::new(backend, name, on_disk) else { continue };
        let begin = Instant::now();
        for compound in compounds(&world) {
            test(&world, &compound);
        }
        std::fs::remove_file(&world.path).unwrap();
        println!("{name}: {backend}: {} runs in {:.1?}", world.runs.get(), begin.elapsed());
    }
}

/// Transfers by themselves; reads in several pieces.
fn transfers(world: &World) -> Vec<Compound> {
    let long = world.size;
    let lens = [
        (What::Read, long),
        (What::Readv, 4 * BLOCK),
        (What::Write, long),
        (What::Writev, 4 * BLOCK),
        (What::WriteDsync, long),
        (What::Append, long),
        (What::AppendDsync, long),
    ];
    lens.into_iter()
        .flat_map(|(what, len)| [part(what, len), part(what, len).exact()])
        .flat_map(|part| [part, Part { timeout: Some(LONG), ..part }])
        .map(|part| vec![vec![part]])
        .collect()
}

/// Chains of two to four, and what is beside and behind barriers.
fn chains(_: &World) -> Vec<Compound> {
    use What::{Append, Fdatasync, Fsync, Read, Write, Writev};
    let len = 2 * BLOCK;
    let (read, write, append, sync) =
        (part(Read, len), part(Write, len), part(Append, len), part(Fdatasync, 0));
    let limited = |part: Part| Part { timeout: Some(LONG), ..part };
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

/// A time limit ends what starves, whatever it would answer: with that answer, or ETIMEDOUT where
/// it would be tried again.
#[test]
fn a_time_limit_ends_each_step() {
    let limited = |compounds: Vec<Compound>| {
        let limit = |part: &Part| Part { timeout: Some(BRIEF), ..*part };
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
                for answer in BRIEFLY {
                    world.reset();
                    let mut queue = world.queue(answer.plan(step, Some(Late::Forever)));
                    world.push(&mut queue, compound);
                    let (results, _) = all(&mut queue);
                    for (part, result) in parts.iter().zip(&results) {
                        let fits = match result {
                            Ok(_) => !part.exact || succeeded(*part, *result),
                            Err(libc::EIO) => answer == Answer::Errno(libc::EIO),
                            Err(errno) => [libc::ETIMEDOUT, libc::ECANCELED].contains(errno),
                        };
                        assert!(
                            fits,
                            "{} {compound:?} {step:?} {answer:?}: {results:?}",
                            world.backend
                        );
                    }
                }
            }
        },
    );
}
