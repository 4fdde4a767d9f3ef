//! Operations that never complete, or take very long, do not delay others: opens of FIFOs, reads of
//! idle pipes, and calls blocked on a file system.

use super::errors::small_file_system;
use super::world::{
    Checked, MS, World, descriptors, own_threads, pattern, pipe, skip, thread_names, threads,
    wait_for, write_all,
};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{BackendKind, File, OpId, OpenOptions};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than a queue has threads.
const MANY: usize = 150;
/// Long enough on any machine; what takes longer hangs.
const SOON: Duration = Duration::from_secs(20);
/// User data of the operations that must not be delayed.
const PROMPT: u64 = 1 << 40;

pub fn fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Runs every other kind of operation on ordinary files.
fn other_operations_complete(world: &World, queue: &mut Checked) {
    let buffered = world.file(&pattern(0, 65536));
    let direct = world.direct(&pattern(0, 65536));
    let path = world.disk.join("well");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let operations = [
        op::open(&path, &options),
        op::read(&buffered, vec![0; 4096], 0).exact(),
        op::read(&direct, super::world::buffer_for(&direct, 4096), 0).exact(),
        op::write(&buffered, vec![1; 4096], 4096).exact(),
        op::fdatasync(&buffered),
        op::fsync(&direct),
        op::statx(&world.disk),
        op::mkdir(world.disk.join("well-too"), 0o700),
        op::rmdir(world.disk.join("well-too")),
        op::nop(),
    ];
    for (number, operation) in (PROMPT..).zip(operations) {
        queue.push(operation.user_data(number)).unwrap();
        let until = Instant::now() + SOON;
        let mut done = Vec::new();
        while done.is_empty() {
            assert!(Instant::now() < until, "operation {} is delayed", number - PROMPT);
            done.extend(queue.reap_until(1, until).unwrap());
        }
        assert_eq!((done.len(), done[0].user_data), (1, number), "{done:?}");
        assert!(done[0].result.is_ok(), "operation {}: {:?}", number - PROMPT, done[0].result);
    }
    std::fs::remove_file(path).unwrap();
}

/// Pushes opens of FIFOs whose other end is closed.
fn waiting_opens(world: &World, queue: &mut Checked, paths: &[PathBuf]) -> Vec<OpId> {
    let mut ids = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        // io_uring opens a FIFO for reading at once.
        let read = number % 3 == 2 && world.kind != BackendKind::Uring;
        let mut options = OpenOptions::new();
        options.read(read).write(!read);
        ids.push(queue.push(op::open(path, &options).user_data(number as u64)).unwrap());
    }
    assert_eq!(queue.reap(0).unwrap().len(), 0);
    ids
}

pub fn opens_of_fifos(world: &World) {
    let dir = world.dir("fifos");
    let paths: Vec<_> = (0..MANY).map(|number| dir.join(number.to_string())).collect();
    for path in &paths {
        fifo(path);
    }
    let mut queue = world.build(&world.options().close_wait(2 * SOON));
    let before = (descriptors(), own_threads());
    let ids = waiting_opens(world, &mut queue, &paths);
    other_operations_complete(world, &mut queue);
    assert_eq!(queue.in_flight(), MANY);
    // Each completes when the other end is opened, or is cancelled or abandoned, and its slot is
    // free at once.
    let other = std::fs::File::options().read(true).write(true).open(&paths[0]).unwrap();
    let done: Vec<_> = queue.reap(1).unwrap().collect();
    assert_eq!((done.len(), done[0].user_data), (1, 0));
    assert!(done.into_iter().next().unwrap().into_file().is_ok());
    assert!(queue.cancel(ids[1]));
    let cancelled = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
    assert_eq!(
        (cancelled.user_data, cancelled.result.map_err(|error| error.errno())),
        (1, Err(libc::ECANCELED))
    );
    for id in ids[2..].iter() {
        assert!(queue.abandon(*id));
    }
    let gone = wait_for(SOON, || {
        assert_eq!(queue.reap(0).unwrap().len(), 0);
        queue.in_flight() == 0
    });
    assert!(gone, "{} are still in flight", queue.in_flight());
    let until = Instant::now() + SOON;
    let limited = op::open(&paths[1], OpenOptions::new().write(true)).timeout(20 * MS);
    assert_eq!(queue.result(limited), Err(libc::ETIMEDOUT));
    assert!(Instant::now() < until);
    // Abandoned opens do not delay others either.
    other_operations_complete(world, &mut queue);
    let begin = Instant::now();
    drop(queue);
    assert!(begin.elapsed() < SOON, "dropping took {:?}", begin.elapsed());
    // Descriptors they open in the end are closed, and their threads end.
    drop(other);
    let ends: Vec<_> = paths
        .iter()
        .map(|path| std::fs::File::options().read(true).write(true).open(path).unwrap())
        .collect();
    let are_gone = wait_for(SOON, || own_threads() <= before.1);
    assert!(are_gone, "threads: {}, then {:?}", before.1, thread_names());
    drop(ends);
    assert!(
        wait_for(SOON, || descriptors() <= before.0),
        "descriptors: {}, then {}",
        before.0,
        descriptors()
    );
}

/// The number of blocked opens is bounded; more fail with EAGAIN.
pub fn the_number_of_blocked_opens_is_bounded(world: &World) {
    const MOST: usize = 1024;
    let path = world.dir("fifos").join("fifo");
    fifo(&path);
    let mut queue = world.build(&world.options().in_flight(2048));
    for number in 0..MOST as u64 + 20 {
        queue.push(op::open(&path, OpenOptions::new().write(true)).user_data(number)).unwrap();
    }
    let until = Instant::now() + SOON;
    let mut refused = 0;
    while refused < 20 {
        assert!(Instant::now() < until, "{refused} are refused");
        for done in queue.reap_until(1, until).unwrap() {
            assert_eq!(done.result.map_err(|error| error.errno()), Err(libc::EAGAIN));
            refused += 1;
        }
    }
    assert_eq!(queue.in_flight(), MOST);
    other_operations_complete(world, &mut queue);
    assert_eq!(queue.cancel_all(), MOST);
    let results = queue.rest();
    assert!(results.values().all(|result| *result == Err(libc::ECANCELED)), "{results:?}");
    // Cancelled opens occupy their threads until the other end is opened.
    let again = op::open(&path, OpenOptions::new().write(true));
    assert_eq!(queue.result(again), Err(libc::EAGAIN));
    let other = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    assert!(wait_for(SOON, || threads() < MOST));
    assert!(queue.one(op::open(&path, OpenOptions::new().write(true))).into_file().is_ok());
    drop(other);
}

/// An open with O_NONBLOCK that would block fails with EAGAIN and is not retried.
pub fn an_open_behind_a_lease(world: &World) {
    let path = world.dir("lease").join("file");
    let holder = std::fs::File::create(&path).unwrap();
    // SAFETY: SIGIO, by which the kernel breaks the lease, is ignored. The other call takes
    // numbers.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        if libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) != 0 {
            return skip("the file system has no leases");
        }
    }
    let mut queue = world.queue();
    let open = op::open(&path, OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK));
    assert_eq!(queue.result(open), Err(libc::EAGAIN));
}

/// Reads and polls of pipes without data, as many as a large program may have.
pub fn idle_pipes(world: &World) {
    let mut queue = world.build(&world.options().in_flight(2048));
    let pipes: Vec<_> = (0..64).map(|_| pipe()).collect();
    for number in 0..1024 {
        let (reader, _) = &pipes[number as usize % pipes.len()];
        let idle = match number % 2 {
            0 => op::poll(reader, Readiness::READABLE),
            _ => op::read(reader, vec![0; 1], Position::Current),
        };
        queue.push(idle.user_data(number)).unwrap();
    }
    assert_eq!(queue.reap(0).unwrap().len(), 0);
    for _ in 0..3 {
        other_operations_complete(world, &mut queue);
    }
    assert_eq!(queue.in_flight(), 1024);
    for (_, writer) in &pipes {
        write_all(writer, &[1; 16]);
    }
    let all = queue.rest();
    assert_eq!(all.len(), 1024);
    assert!(all.values().all(|result| *result == Ok(1)), "{all:?}");
}

/// Writes into full pipes and terminals that nothing reads.
pub fn full_streams(world: &World) {
    let mut queue = world.queue();
    let full: Vec<_> = (0..MANY).map(|_| pipe()).collect();
    for (number, (_, writer)) in full.iter().enumerate() {
        // More than a pipe holds, so the call has begun and does not end.
        queue
            .push(
                op::write(writer, vec![0; 1 << 20], Position::Current)
                    .exact()
                    .user_data(number as u64),
            )
            .unwrap();
    }
    let terminals: Vec<File> = (0..70).map(|_| terminal()).collect();
    for (number, terminal) in terminals.iter().enumerate() {
        let number = (MANY + number) as u64;
        queue
            .push(
                op::write(&terminal_side(terminal), vec![b'x'; 1 << 16], Position::Current)
                    .exact()
                    .user_data(number),
            )
            .unwrap();
    }
    assert_eq!(queue.reap(0).unwrap().len(), 0);
    other_operations_complete(world, &mut queue);
    assert_eq!(queue.in_flight(), MANY + terminals.len());
    // They fail when the other ends are closed.
    drop(full.into_iter().map(|(reader, writer)| (drop(reader), writer)).collect::<Vec<_>>());
    drop(terminals);
    let results = queue.rest();
    assert_eq!(results.len(), MANY + 70);
    assert!(
        results.values().all(|result| matches!(result, Err(libc::EPIPE | libc::EIO))),
        "{results:?}"
    );
}

/// The main side of a new pseudoterminal.
fn terminal() -> File {
    // SAFETY: the calls take numbers and a descriptor that is owned here.
    unsafe {
        let main = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(main >= 0 && libc::grantpt(main) == 0 && libc::unlockpt(main) == 0);
        <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(main).into()
    }
}

/// The terminal side of a pseudoterminal.
fn terminal_side(main: &File) -> File {
    let mut name = [0; 64];
    // SAFETY: the name is written into live memory of this length.
    assert_eq!(unsafe { libc::ptsname_r(main.as_raw_fd(), name.as_mut_ptr(), name.len()) }, 0);
    // SAFETY: the call above has ended the name with a NUL.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) };
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name.to_str().unwrap())
        .unwrap()
}

/// A frozen file system. It thaws when this is dropped; a helper thaws it if this process hangs.
struct Frozen {
    dir: std::fs::File,
    helper: Child,
}

impl Frozen {
    fn new(dir: &Path) -> Self {
        let helper = Command::new("sh")
            .args(["-c", "timeout 40 cat; exec fsfreeze -u \"$1\" 2>/dev/null", "sh"])
            .arg(dir)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let dir = std::fs::File::open(dir).unwrap();
        const FIFREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
        // SAFETY: the request takes a number.
        let returned = unsafe { libc::ioctl(dir.as_raw_fd(), FIFREEZE, 0) };
        assert_eq!(returned, 0, "{}", std::io::Error::last_os_error());
        Self { dir, helper }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        const FITHAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;
        // SAFETY: the request takes a number.
        unsafe { libc::ioctl(self.dir.as_raw_fd(), FITHAW, 0) };
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

/// Writes, syncs and changes of names that block until the file system is thawed.
pub fn a_frozen_file_system(world: &World) {
    let Some(dir) = small_file_system(world, 32 << 10) else { return };
    if Command::new("fsfreeze").arg("-V").stdout(Stdio::null()).status().is_err() {
        return skip("no fsfreeze");
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let open = |number: usize| options.open(dir.join(number.to_string())).unwrap();
    let files: Vec<File> = (0..MANY).map(open).collect();
    let mut queue = world.queue();
    let frozen = Frozen::new(&dir);
    for (number, file) in files.iter().enumerate() {
        let write = match number % 4 {
            0 => op::write(file, vec![1; 4096], 0),
            _ => op::write_dsync(file, vec![1; 4096], 0),
        };
        queue.push(write.exact().user_data(number as u64)).unwrap();
    }
    for number in 0..10 {
        let path = dir.join(format!("dir{number}"));
        queue.push(op::mkdir(path, 0o700).user_data((MANY + number) as u64)).unwrap();
    }
    assert_eq!(queue.reap(0).unwrap().len(), 0);
    std::thread::sleep(20 * MS);
    other_operations_complete(world, &mut queue);
    other_operations_complete(world, &mut queue);
    assert_eq!(queue.in_flight(), MANY + 10, "the file system was not frozen");
    drop(frozen);
    let results = queue.rest();
    assert!(
        results
            .iter()
            .all(|(number, result)| *result == Ok(if *number < MANY as u64 { 4096 } else { 0 }))
    );
    // Surplus threads end, once their calls return. (The kernel keeps its own for a while.)
    if world.kind != BackendKind::Uring {
        assert!(wait_for(SOON, || threads() <= 64 + 4 + 3), "{} threads", threads());
    }
}

/// A loop device over a file in this directory.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(image: &Path) -> Self {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Submitting a durable write does not wait for the device, even if the page cache takes the write
/// without blocking (XFS).
pub fn durable_writes(world: &World) {
    let Some(dir) = small_file_system(world, 1 << 20) else { return };
    let image = dir.join("image");
    std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    let device = LoopDevice::over(&image);
    let inner = world.dir("inner");
    let run = |program: &str, arguments: &[&Path]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let path =
        if run("mkfs.xfs", &[Path::new("-q"), &device.0]) && run("mount", &[&device.0, &inner]) {
            inner.join("file")
        } else {
            println!("without XFS");
            device.0.clone()
        };
    let file = OpenOptions::new().read(true).write(true).create(true).open(&path).unwrap();
    let again = std::fs::File::options().write(true).open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::write_dsync(&file, vec![0; 4096], 0)), Ok(4096));
    let frozen = Frozen::new(&dir);
    // The page cache takes the write, and the device below blocks. (Updating the time of the file
    // would block too, but it has just been updated.)
    assert_eq!(again.write_at(b"x", 0).unwrap(), 1);
    queue.push(op::write_dsync(&file, vec![1; 4096], 0).exact().user_data(7)).unwrap();
    let begin = Instant::now();
    assert_eq!(queue.reap(0).unwrap().len(), 0);
    assert!(begin.elapsed() < SOON, "submitting took {:?}", begin.elapsed());
    other_operations_complete(world, &mut queue);
    assert_eq!(queue.in_flight(), 1, "the device was not frozen");
    drop(frozen);
    assert_eq!(queue.rest()[&7], Ok(4096));
    drop((queue, file, again));
    run("umount", &[&inner]);
}
