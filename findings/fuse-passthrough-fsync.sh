#!/usr/bin/env bash
# Expected: with FUSE passthrough (Linux 6.9 and newer) the kernel does reads and writes on the
# backing file without the server, so fsync(2) syncs the backing file too; or, if fsync is left to a
# server that does not implement it, it fails.
#
# Found (Linux 6.18.44, a server of the crate fuser 0.18.0 that implements no fsync, backing file on
# ext4): fsync returns 0 after a write of 1 MiB; the device is given nothing, no write, no flush.
# pwritev2 with RWF_DSYNC on the same descriptor writes and flushes. sync_file_range writes nothing,
# cachestat counts 0 pages, posix_fadvise(DONTNEED) leaves the backing file's pages in the cache.
#
# Why: passthrough covers read, write, splice and mmap. FUSE_FSYNC still goes to the server, and for
# it ENOSYS, the answer of a server that implements none, means "nothing to do": the kernel takes it
# for success and never asks again. (Sources: fs/fuse/passthrough.c, fuse_fsync() in
# fs/fuse/file.c.)
#
# Needs root, /dev/fuse, Rust and Python 3. Building the server takes a minute or two.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/fuse" 2>/dev/null || true
    umount -l "$dir/ext4" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir fuse ext4 src
cat >Cargo.toml <<'CARGO'
[package]
name = "server"
version = "0.0.0"
edition = "2021"
[dependencies]
fuser = "=0.18.0"
[profile.dev]
debug = false
CARGO
cat >src/main.rs <<'SERVER'
use fuser::*;
use std::{ffi::OsStr, fs::File, io, sync::OnceLock, time::Duration, time::UNIX_EPOCH};

struct Passthrough {
    backing: String,
    id: OnceLock<BackingId>,
}

impl Passthrough {
    fn attributes(&self, ino: u64) -> FileAttr {
        let is_file = ino == 2;
        let size = if is_file { std::fs::metadata(&self.backing).unwrap().len() } else { 0 };
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).expect("passthrough");
        config.set_max_stack_depth(2).expect("stack depth");
        Ok(())
    }
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
            reply.entry(&Duration::ZERO, &self.attributes(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attributes(ino.0));
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let id = self.id.get_or_init(|| {
            let file = File::options().read(true).write(true).open(&self.backing).unwrap();
            reply.open_backing(file).expect("backing file")
        });
        reply.opened_passthrough(FileHandle(1), FopenFlags::empty(), id);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let files = Passthrough { backing: args[1].clone(), id: OnceLock::new() };
    fuser::mount(files, &args[2], &Config::default()).unwrap();
}
SERVER
CARGO_TARGET_DIR=target cargo build --quiet
truncate -s 256M image
mkfs.ext4 -q image
mount -o loop image ext4
head -c 8388608 /dev/zero >ext4/backing
sync -f ext4/backing
target/debug/server ext4/backing fuse &
for _ in $(seq 50); do mountpoint -q fuse && break || sleep 0.1; done
cat >look.py <<'LOOK'
import ctypes, os, sys
MIB, CACHESTAT, ALL_THREE = 1 << 20, 451, 7
libc = ctypes.CDLL(None, use_errno=True)
def cached(file):
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, file, whole, found, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return found[0]
def device():
    with open(f"/sys/block/{sys.argv[1]}/stat") as statistics:
        fields = statistics.read().split()
    return int(fields[6]) * 512, int(fields[15])
def given(call):
    before = device()
    call()
    after = device()
    return after[0] - before[0], after[1] - before[1]
zero = ctypes.c_int64(0)
front, backing = os.open("fuse/file", os.O_RDWR), os.open("ext4/backing", os.O_RDWR)
os.pwrite(front, b"x" * MIB, 0)
found = [given(lambda: libc.sync_file_range(front, zero, zero, ALL_THREE)),
         given(lambda: os.fsync(front)),
         given(lambda: os.pwritev(front, [b"y" * 4096], 4 * MIB, os.RWF_DSYNC)),
         given(lambda: os.fsync(backing))]
for name, (bytes_, flushes) in zip(("sync_file_range", "fsync", "RWF_DSYNC write of 4096",
                                    "fsync of the backing file"), found):
    print(f"  {name}: {bytes_} bytes, {flushes} flushes")
pages = cached(front), cached(backing)
os.posix_fadvise(front, 0, 0, os.POSIX_FADV_DONTNEED)
left = cached(backing)
print(f"  cachestat: {pages[0]} pages, of the backing file {pages[1]}, after DONTNEED {left}")
assert os.pread(backing, 1, 0) == b"x"
sys.exit(not (found[0] == found[1] == (0, 0) and found[2][0] >= 4096 and found[2][1] >= 1
              and found[3][0] >= MIB and pages[0] == 0 and left >= pages[1] > 0))
LOOK
echo "Linux $(uname -r), FUSE passthrough, what the device is given:"
python3 look.py "$(basename "$(findmnt -no SOURCE ext4)")" || { echo "not as found" >&2; exit 1; }
