//! Operations on paths, where descriptors, `Metadata` or file content show the result. Cases that
//! data can express are in `conformance/paths.case`.

use super::world::{Checked, World, bytes, descriptors, pattern, wait_for};
use ringway_core::op;
use ringway_core::{File, OpenOptions};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// A completion that is dropped closes its file, and so does a queue.
pub fn open(world: &World) {
    let path = world.dir("open").join("file");
    fs::write(&path, b"").unwrap();
    let before = descriptors();
    let mut queue = world.queue();
    let idle = descriptors();
    let opened = queue.one(op::open(&path, OpenOptions::new().read(true).direct(true)));
    let opened = opened.into_file().unwrap();
    assert!(opened.is_direct());
    drop(opened);
    drop(queue.one(op::open(&path, OpenOptions::new().read(true))));
    let idle_again = wait_for(Duration::from_secs(5), || descriptors() <= idle + 1);
    assert!(idle_again, "{idle} before, {} now", descriptors());
    drop(queue);
    let closed = wait_for(Duration::from_secs(5), || descriptors() == before);
    assert!(closed, "{before} before, {} now", descriptors());
}

pub fn close(world: &World) {
    let path = world.dir("close").join("file");
    fs::write(&path, b"x").unwrap();
    let open = || File::open(&path).unwrap();
    let mut queue = world.queue();
    assert_eq!(queue.result(op::close(open())), Ok(0));
    assert_eq!(queue.result(op::timeout(super::world::MS)), Ok(0));
    // (By threads, on some file systems.)
    assert_eq!(queue.result(op::read(&open(), vec![0; 5], 0)), Ok(1));
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
    super::hung::fifo(&fifo);
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
