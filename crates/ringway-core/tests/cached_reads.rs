//! Reads of what is in memory, where `preadv2(2)` refuses `RWF_NOWAIT`.

// Other systems have no such call.
#![cfg(ringway_linux)]

use ringway_core::File;
use std::fs;

/// Pages of tmpfs are in memory, unless there is swap space: they are read in place, whoever has
/// opened the file.
#[test]
fn files_in_memory_are_read_in_place() {
    const LEN: usize = 100_000;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        assert!(std::env::var_os("CI").is_none(), "/dev/shm is no tmpfs, with CI set");
        return println!("skipped: /dev/shm is no tmpfs");
    }
    // (`/proc/swaps` may be made up in a container.)
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the call writes a whole `sysinfo`, of which every bit pattern is valid.
    let has_swap = unsafe {
        assert_eq!(libc::sysinfo(info.as_mut_ptr()), 0);
        info.assume_init().totalswap != 0
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("file");
    let content: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    for file in [File::open(&path).unwrap(), File::from(fs::File::open(&path).unwrap())] {
        let reads = [(LEN, 0), (2 * LEN, 0), (5, 7), (10, LEN - 3), (1, LEN), (1, 2 * LEN)];
        for (len, offset) in reads {
            let mut bytes = vec![0; len];
            let read = file.read_now(&mut bytes, offset as u64);
            let wanted = &content[offset.min(LEN)..(offset + len).min(LEN)];
            assert_eq!(read, (!has_swap).then_some(wanted.len()), "{len} at {offset}");
            assert!(has_swap || bytes[..wanted.len()] == *wanted);
        }
    }
    // A hole, and a file without read permission.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(3 * LEN as u64).unwrap();
    let mut hole = vec![7; LEN];
    let read = File::open(&path).unwrap().read_now(&mut hole, 2 * LEN as u64);
    assert_eq!(read, (!has_swap).then_some(LEN));
    assert!(has_swap || hole.iter().all(|byte| *byte == 0));
    assert_eq!(File::from(file).read_now(&mut hole, 0), None);
}
