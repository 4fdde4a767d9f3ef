//! Operations on names: what is made, found and removed, and what is said where that cannot be.

use crate::common::is_root;
use crate::world::{Checked, World, bytes, descriptors, pattern, wait_for};
use ringway_core::op;
use ringway_core::{File, OpenOptions};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;

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

pub fn open_at(world: &World) {
    let path = world.dir("open_at");
    fs::create_dir(path.join("below")).unwrap();
    fs::write(path.join("below/file"), b"inside").unwrap();
    fs::write(path.join("beside"), b"outside").unwrap();
    let dir = File::open(path.join("below")).unwrap();
    let mut queue = world.queue();
    let mut at = |name: &str, options: &OpenOptions| {
        queue.one(op::open_at(&dir, name, options)).into_file().map_err(|error| error.errno())
    };
    at("file", &reading()).unwrap();
    at("../beside", &reading()).unwrap();
    assert_eq!(failure(at("beside", &reading())), libc::ENOENT);
    at("file", reading().resolve(RESOLVE_BENEATH)).unwrap();
    assert_eq!(failure(at("../beside", reading().resolve(RESOLVE_BENEATH))), libc::EXDEV);
    assert_eq!(failure(at("/etc/passwd", reading().resolve(RESOLVE_BENEATH))), libc::EXDEV);
    std::os::unix::fs::symlink("file", path.join("below/link")).unwrap();
    assert_eq!(failure(at("link", reading().resolve(RESOLVE_NO_SYMLINKS))), libc::ELOOP);
    assert_eq!(failure(at("file", reading().resolve(1 << 40))), libc::EINVAL);
    at("new", writing().create_new(true).resolve(RESOLVE_BENEATH)).unwrap();
    assert!(path.join("below/new").exists());
    let file = File::open(path.join("beside")).unwrap();
    assert_eq!(
        queue.one(op::open_at(&file, "x", &reading())).into_file().unwrap_err().errno(),
        libc::ENOTDIR
    );
}

pub fn close(world: &World) {
    let path = world.dir("close").join("file");
    fs::write(&path, b"x").unwrap();
    let open = || File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::close(open())), Ok(0));
    assert_eq!(queue.result(op::timeout(crate::world::MS)), Ok(0));
    // By now the queue has opened what it needs.
    let idle = descriptors();
    let file = open();
    assert_eq!(descriptors(), idle + 1);
    assert_eq!(queue.result(op::close(file)), Ok(0));
    assert_eq!(descriptors(), idle);
    // Held by someone else: refused, and still of use.
    let file = open();
    let other = file.clone();
    assert_eq!(queue.result(op::close(file)), Err(libc::EBUSY));
    assert_eq!(bytes(queue.one(op::read(&other, vec![0; 5], 0))), b"x");
    assert_eq!(queue.result(op::close(other)), Ok(0));
    assert_eq!(descriptors(), idle);
    // An operation in flight holds it too.
    let (reader, writer) = crate::world::pipe();
    queue.push(op::read(&reader, vec![0; 5], op::Position::Current).user_data(1)).unwrap();
    queue.submit().unwrap();
    queue.push(op::close(reader).user_data(2)).unwrap();
    let done: Vec<_> = queue
        .reap(1)
        .unwrap()
        .map(|done| (done.user_data, done.result.map_err(|error| error.errno())))
        .collect();
    assert_eq!(done, [(2, Err(libc::EBUSY))]);
    crate::world::put(&writer, b"late");
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
    // Holes that change the length, unknown modes, nothing at all.
    assert_eq!(
        queue.result(op::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE, 0, 4096)),
        Err(libc::EOPNOTSUPP)
    );
    assert_eq!(queue.result(op::fallocate(&file, 1 << 20, 0, 4096)), Err(libc::EOPNOTSUPP));
    assert_eq!(queue.result(op::fallocate(&file, 0, 0, 0)), Err(libc::EINVAL));
    assert_eq!(queue.result(op::fallocate(&file, 0, i64::MAX as u64, 1)), Err(libc::EFBIG));
}

pub fn ftruncate(world: &World) {
    for file in world.files("ftruncate", &pattern(0, 10_000)) {
        let mut queue = world.queue();
        for len in [5_000, 20_000, 0, 1 << 33] {
            assert_eq!(queue.result(op::ftruncate(&file, len)), Ok(0));
            assert_eq!(queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap().len(), len);
        }
    }
    let file = world.file(&pattern(0, 100));
    let mut queue = world.queue();
    assert_eq!(queue.result(op::ftruncate(&file, 50)), Ok(0));
    assert_eq!(queue.result(op::ftruncate(&file, 60)), Ok(0));
    let mut expected = pattern(0, 50);
    expected.resize(60, 0);
    assert_eq!(bytes(queue.one(op::read(&file, vec![1; 100], 0))), expected);
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

/// Names and contents below a directory.
fn listing(dir: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap_or_default(),
            )
        })
        .collect();
    all.sort();
    all
}

fn entries(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

pub fn rename(world: &World) {
    let path = world.dir("rename");
    let (a, b, c) = (path.join("a"), path.join("b"), path.join("c"));
    fs::write(&a, "A").unwrap();
    fs::write(&b, "B").unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::rename(&a, &c)), Ok(0));
    assert_eq!(listing(&path), entries(&[("b", "B"), ("c", "A")]));
    assert_eq!(queue.result(op::rename(&a, &c)), Err(libc::ENOENT));
    let dir = File::open(&path).unwrap();
    let flags = libc::RENAME_NOREPLACE;
    assert_eq!(queue.result(op::rename_at(&dir, "b", &dir, "c", flags)), Err(libc::EEXIST));
    assert_eq!(queue.result(op::rename_at(&dir, "b", &dir, "c", libc::RENAME_EXCHANGE)), Ok(0));
    assert_eq!(listing(&path), entries(&[("b", "A"), ("c", "B")]));
    assert_eq!(queue.result(op::rename_at(&dir, "b", &dir, "d", flags)), Ok(0));
    assert_eq!(queue.result(op::rename(path.join("d"), &c)), Ok(0));
    assert_eq!(listing(&path), entries(&[("c", "A")]));
    assert_eq!(queue.result(op::rename_at(&dir, "c", &dir, "d", 1 << 10)), Err(libc::EINVAL));
    fs::create_dir(path.join("full")).unwrap();
    fs::write(path.join("full/x"), "").unwrap();
    fs::create_dir(path.join("empty")).unwrap();
    assert_eq!(
        queue.result(op::rename(path.join("empty"), path.join("full"))),
        Err(libc::ENOTEMPTY)
    );
    assert_eq!(queue.result(op::rename(&c, path.join("empty"))), Err(libc::EISDIR));
    assert_eq!(
        queue.result(op::rename(path.join("full"), path.join("full/below"))),
        Err(libc::EINVAL)
    );
    let shm = world.shm.join("other");
    assert_eq!(queue.result(op::rename(&c, &shm)), Err(libc::EXDEV));
}

pub fn unlink(world: &World) {
    let path = world.dir("unlink");
    fs::write(path.join("file"), "").unwrap();
    fs::create_dir(path.join("dir")).unwrap();
    fs::write(path.join("dir/file"), "").unwrap();
    let dir = File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::unlink(path.join("dir"))), Err(libc::EISDIR));
    assert_eq!(queue.result(op::rmdir(path.join("file"))), Err(libc::ENOTDIR));
    assert_eq!(queue.result(op::rmdir(path.join("dir"))), Err(libc::ENOTEMPTY));
    assert_eq!(queue.result(op::unlink_at(&dir, "dir/file", 0)), Ok(0));
    assert_eq!(queue.result(op::unlink_at(&dir, "dir", libc::AT_REMOVEDIR)), Ok(0));
    assert_eq!(queue.result(op::unlink(path.join("file"))), Ok(0));
    assert_eq!(queue.result(op::unlink(path.join("file"))), Err(libc::ENOENT));
    assert_eq!(queue.result(op::unlink_at(&dir, "file", 1 << 5)), Err(libc::EINVAL));
    assert_eq!(listing(&path), []);
    assert_eq!(queue.result(op::rmdir(&path)), Ok(0));
}

pub fn mkdir(world: &World) {
    let path = world.dir("mkdir");
    let dir = File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::mkdir(path.join("one"), 0o700)), Ok(0));
    assert_eq!(fs::metadata(path.join("one")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(queue.result(op::mkdir(path.join("one"), 0o700)), Err(libc::EEXIST));
    assert_eq!(queue.result(op::mkdir_at(&dir, "one/two", 0o755)), Ok(0));
    assert_eq!(queue.result(op::mkdir(path.join("none/two"), 0o755)), Err(libc::ENOENT));
    assert!(path.join("one/two").is_dir());
}

pub fn link(world: &World) {
    let path = world.dir("link");
    let (old, new) = (path.join("old"), path.join("new"));
    fs::write(&old, "text").unwrap();
    std::os::unix::fs::symlink("old", path.join("symbolic")).unwrap();
    let dir = File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::link(&old, &new)), Ok(0));
    assert_eq!(fs::metadata(&new).unwrap().ino(), fs::metadata(&old).unwrap().ino());
    assert_eq!(queue.result(op::link(&old, &new)), Err(libc::EEXIST));
    assert_eq!(queue.result(op::link(path.join("none"), path.join("x"))), Err(libc::ENOENT));
    assert_eq!(
        queue.result(op::link_at(&dir, "symbolic", &dir, "followed", libc::AT_SYMLINK_FOLLOW)),
        Ok(0)
    );
    assert_eq!(queue.result(op::link_at(&dir, "symbolic", &dir, "itself", 0)), Ok(0));
    assert_eq!(
        fs::symlink_metadata(path.join("followed")).unwrap().ino(),
        fs::metadata(&old).unwrap().ino()
    );
    assert!(fs::symlink_metadata(path.join("itself")).unwrap().is_symlink());
    assert_eq!(queue.result(op::link(&old, world.shm.join("x"))), Err(libc::EXDEV));
    // A nameless file gets a name.
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

pub fn symlink(world: &World) {
    let path = world.dir("symlink");
    let dir = File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::symlink("to/nowhere", path.join("one"))), Ok(0));
    assert_eq!(queue.result(op::symlink_at("one", &dir, "two")), Ok(0));
    assert_eq!(fs::read_link(path.join("one")).unwrap(), Path::new("to/nowhere"));
    assert_eq!(fs::read_link(path.join("two")).unwrap(), Path::new("one"));
    assert_eq!(queue.result(op::symlink("x", path.join("one"))), Err(libc::EEXIST));
    assert_eq!(queue.result(op::symlink("", path.join("three"))), Err(libc::ENOENT));
}

/// As an ordinary user: what root has made is root's.
pub fn no_permission(world: &World) {
    if is_root() {
        return println!(
            "left out: Nothing is refused to root; the other legs run as somebody else"
        );
    }
    let mut queue = world.queue();
    assert_eq!(failure(opened(&mut queue, "/etc/shadow", &reading())), libc::EACCES);
    assert_eq!(failure(opened(&mut queue, "/etc/passwd", &writing())), libc::EACCES);
    assert_eq!(queue.result(op::mkdir("/etc/ringway", 0o755)), Err(libc::EACCES));
    assert_eq!(queue.result(op::unlink("/etc/passwd")), Err(libc::EACCES));
    assert_eq!(queue.result(op::rename("/etc/passwd", "/etc/other")), Err(libc::EACCES));
    let path = world.dir("permission");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(queue.one(op::statx(path.join("x"))).result.unwrap_err().errno(), libc::EACCES);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}
