//! Operations on paths, where descriptors, `Metadata` or file content show the result. Cases that
//! data can express are in `conformance/paths.case`.

use super::world::{Checked, World, bytes, descriptors, pattern, wait_for};
use ringway_core::op;
use ringway_core::{File, OpenOptions};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn opened(queue: &mut Checked, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File, i32> {
    queue.one(op::open(path, options)).into_file().map_err(|error| error.errno())
}

fn failure<T: std::fmt::Debug>(result: Result<T, i32>) -> i32 {
    result.unwrap_err()
}

fn reading() -> OpenOptions {
    OpenOptions::new().read(true).clone()
}

fn writing() -> OpenOptions {
    OpenOptions::new().read(true).write(true).clone()
}

pub fn open(world: &World) {
    let dir = world.dir("open");
    let path = dir.join("file");
    let before = descriptors();
    let mut queue = world.queue();
    let idle = descriptors();
    assert_eq!(failure(opened(&mut queue, &path, &reading())), libc::ENOENT);
    let made = opened(&mut queue, &path, writing().create_new(true).mode(0o640)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(failure(opened(&mut queue, &path, writing().create_new(true))), libc::EEXIST);
    assert_eq!(queue.result(op::write(&made, b"some text".to_vec(), 0)), Ok(9));
    // SAFETY: the call takes numbers only.
    let flags = unsafe { libc::fcntl(made.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);

    let again = opened(&mut queue, &path, writing().create(true)).unwrap();
    assert_eq!(bytes(queue.one(op::read(&again, vec![0; 20], 0))), b"some text");
    let log = opened(&mut queue, &path, OpenOptions::new().append(true)).unwrap();
    assert_eq!(queue.result(op::write(&log, b", more".to_vec(), 0)), Ok(6));
    assert_eq!(fs::read(&path).unwrap(), b"some text, more");
    opened(&mut queue, &path, writing().truncate(true)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");

    let direct = opened(&mut queue, &path, writing().direct(true)).unwrap();
    assert!(direct.is_direct() && !again.is_direct());
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    assert_eq!(
        failure(opened(&mut queue, dir.join("link"), reading().nofollow(true))),
        libc::ELOOP
    );
    opened(&mut queue, dir.join("link"), &reading()).unwrap();
    assert_eq!(failure(opened(&mut queue, dir.join("file/below"), &reading())), libc::ENOTDIR);
    assert_eq!(failure(opened(&mut queue, &dir, &writing())), libc::EISDIR);
    assert_eq!(failure(opened(&mut queue, "", &reading())), libc::ENOENT);
    assert_eq!(failure(opened(&mut queue, "n".repeat(300), &reading())), libc::ENAMETOOLONG);
    assert_eq!(
        failure(opened(&mut queue, &path, reading().custom_flags(libc::O_DIRECTORY))),
        libc::ENOTDIR
    );

    let nameless = opened(&mut queue, &dir, writing().custom_flags(libc::O_TMPFILE)).unwrap();
    assert_eq!(queue.result(op::write(&nameless, pattern(0, 100), 0)), Ok(100));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);

    // A completion that is dropped closes its file.
    drop((made, again, log, direct, nameless));
    drop(queue.one(op::open(&path, &reading())));
    assert!(
        wait_for(Duration::from_secs(5), || descriptors() <= idle + 1),
        "{idle} before, {} now",
        descriptors()
    );
    drop(queue);
    assert!(
        wait_for(Duration::from_secs(5), || descriptors() == before),
        "{before} before, {} now",
        descriptors()
    );
}

pub fn close(world: &World) {
    let path = world.dir("close").join("file");
    fs::write(&path, b"x").unwrap();
    let open = || File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::close(open())), Ok(0));
    assert_eq!(queue.result(op::timeout(super::world::MS)), Ok(0));
    // By now the queue has opened its own descriptors.
    let idle = descriptors();
    let file = open();
    assert_eq!(descriptors(), idle + 1);
    assert_eq!(queue.result(op::close(file)), Ok(0));
    assert_eq!(descriptors(), idle);
    // A file with another owner is not closed, and stays usable.
    let file = open();
    let other = file.clone();
    assert_eq!(queue.result(op::close(file)), Err(libc::EBUSY));
    assert_eq!(bytes(queue.one(op::read(&other, vec![0; 5], 0))), b"x");
    assert_eq!(queue.result(op::close(other)), Ok(0));
    assert_eq!(descriptors(), idle);
    // An operation in flight owns the file too.
    let (reader, writer) = super::world::pipe();
    queue.push(op::read(&reader, vec![0; 5], op::Position::Current).user_data(1)).unwrap();
    queue.submit().unwrap();
    queue.push(op::close(reader).user_data(2)).unwrap();
    let done: Vec<_> = queue
        .reap(1)
        .unwrap()
        .map(|done| (done.user_data, done.result.map_err(|error| error.errno())))
        .collect();
    assert_eq!(done, [(2, Err(libc::EBUSY))]);
    super::world::write_all(&writer, b"late");
    assert_eq!(queue.rest()[&1], Ok(4));
    drop(writer);
    assert_eq!(descriptors(), idle);
}

pub fn statx(world: &World) {
    let dir = world.dir("statx");
    let path = dir.join("file");
    fs::write(&path, pattern(0, 1234)).unwrap();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    let expected = fs::metadata(&path).unwrap();
    let mut queue = world.queue();
    let found = queue.one(op::statx(&path)).into_metadata().unwrap();
    assert_eq!(
        (found.len(), found.mode(), found.is_file(), found.is_dir()),
        (1234, expected.mode(), true, false)
    );
    let raw = found.as_raw_statx();
    assert_eq!((raw.stx_ino, raw.stx_nlink, raw.stx_uid), (expected.ino(), 1, expected.uid()));
    assert_eq!(
        (raw.stx_mtime.tv_sec, i64::from(raw.stx_mtime.tv_nsec)),
        (expected.mtime(), expected.mtime_nsec())
    );
    assert!(queue.one(op::statx(&dir)).into_metadata().unwrap().is_dir());
    assert_eq!(queue.one(op::statx(dir.join("link"))).into_metadata().unwrap().len(), 1234);
    let at = File::open(&dir).unwrap();
    let link =
        queue.one(op::statx_at(&at, "link", libc::AT_SYMLINK_NOFOLLOW)).into_metadata().unwrap();
    assert_eq!(link.mode() & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(queue.one(op::statx_at(&at, "file", 0)).into_metadata().unwrap().len(), 1234);
    let file = File::open(&path).unwrap();
    assert_eq!(queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap().len(), 1234);
    for (operation, errno) in [
        (op::statx(dir.join("none")), libc::ENOENT),
        (op::statx(path.join("below")), libc::ENOTDIR),
        (op::statx(""), libc::ENOENT),
        (op::statx_at(&at, "file", 1 << 30), libc::EINVAL),
    ] {
        assert_eq!(queue.one(operation).into_metadata().unwrap_err().errno(), errno);
    }
}

pub fn write_file(world: &World) {
    let dir = world.dir("write_file");
    let path = dir.join("file");
    let before = descriptors();
    let mut queue = world.queue();
    let write = |queue: &mut Checked, path: &Path, content: Vec<u8>| {
        queue.result(op::write_file(path, content))
    };
    assert_eq!(write(&mut queue, &path, pattern(0, 100_000)), Ok(100_000));
    assert_eq!(fs::read(&path).unwrap(), pattern(0, 100_000));
    // The threads have started.
    let idle = descriptors();
    // What was there is gone.
    assert_eq!(write(&mut queue, &path, b"short".to_vec()), Ok(5));
    assert_eq!(fs::read(&path).unwrap(), b"short");
    assert_eq!(write(&mut queue, &path, Vec::new()), Ok(0));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    // The content returns with the result, also after an error.
    let done = queue.one(op::write_file(dir.join("no/such"), pattern(0, 10)));
    assert_eq!(done.result.as_ref().map_err(|error| error.errno()), Err(libc::ENOENT));
    assert_eq!(done.into_buffer().unwrap().as_slice(), pattern(0, 10));
    assert_eq!(write(&mut queue, &dir, b"x".to_vec()), Err(libc::EISDIR));
    // Nothing is opened that may keep a thread waiting, whether or not it would: the reader of a
    // FIFO would see its end.
    let fifo = dir.join("fifo");
    super::stuck::fifo(&fifo);
    assert_eq!(write(&mut queue, &fifo, b"x".to_vec()), Err(libc::ESPIPE));
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
    assert_eq!(write(&mut queue, &fifo, b"x".to_vec()), Err(libc::ESPIPE));
    drop(reader);
    assert_eq!(write(&mut queue, Path::new("/dev/full"), b"x".to_vec()), Err(libc::ESPIPE));
    assert!(queue.push(op::write_file("a\0b", Vec::new())).is_err());
    assert_eq!(descriptors(), idle);
    drop(queue);
    assert_eq!(descriptors(), before);
}

pub fn fallocate(world: &World) {
    let file = world.file(&pattern(0, 16384));
    let mut queue = world.queue();
    let len =
        |queue: &mut Checked| queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap().len();
    assert_eq!(queue.result(op::fallocate(&file, 0, 0, 32768)), Ok(0));
    assert_eq!(len(&mut queue), 32768);
    assert_eq!(queue.result(op::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 32768, 4096)), Ok(0));
    assert_eq!(len(&mut queue), 32768);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(queue.result(op::fallocate(&file, punch, 4096, 4096)), Ok(0));
    let mut expected = pattern(0, 16384);
    expected[4096..8192].fill(0);
    assert_eq!(bytes(queue.one(op::read(&file, vec![1; 16384], 0))), expected);
    assert_eq!(queue.result(op::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 100, 50)), Ok(0));
    expected[100..150].fill(0);
    assert_eq!(bytes(queue.one(op::read(&file, vec![1; 16384], 0))), expected);
    // A hole that changes the length, an unknown mode, and an empty range.
    assert_eq!(
        queue.result(op::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE, 0, 4096)),
        Err(libc::EOPNOTSUPP)
    );
    assert_eq!(queue.result(op::fallocate(&file, 1 << 20, 0, 4096)), Err(libc::EOPNOTSUPP));
    assert_eq!(queue.result(op::fallocate(&file, 0, 0, 0)), Err(libc::EINVAL));
    assert_eq!(queue.result(op::fallocate(&file, 0, i64::MAX as u64, 1)), Err(libc::EFBIG));
}

pub fn fadvise(world: &World) {
    use op::Advice::{DontNeed, NoReuse, Normal, Random, Sequential, WillNeed};
    let file = world.file(&pattern(0, 10_000));
    let mut queue = world.queue();
    for advice in [Normal, Random, Sequential, WillNeed, DontNeed, NoReuse] {
        for (offset, len) in [(0, 0), (4096, 100), (0, 1 << 33), (1 << 40, u64::from(u32::MAX))] {
            assert_eq!(
                queue.result(op::fadvise(&file, offset, len, advice)),
                Ok(0),
                "{advice:?} {offset} {len}"
            );
        }
    }
    assert_eq!(queue.result(op::fadvise(&file, 0, u64::MAX, WillNeed)), Err(libc::EINVAL));
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; 10_000], 0))), pattern(0, 10_000));
}

/// A file opened with O_TMPFILE gets a name by a link of its path below `/proc/self/fd`.
pub fn link_of_an_unnamed_file(world: &World) {
    let path = world.dir("link");
    let dir = File::open(&path).unwrap();
    let mut queue = world.queue();
    let options = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).clone();
    let nameless = queue.one(op::open(&path, &options)).into_file().unwrap();
    assert_eq!(queue.result(op::write(&nameless, b"named".to_vec(), 0)), Ok(5));
    let descriptor = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    assert_eq!(
        queue.result(op::link_at(&dir, descriptor, &dir, "named", libc::AT_SYMLINK_FOLLOW)),
        Ok(0)
    );
    assert_eq!(fs::read(path.join("named")).unwrap(), b"named");
}
