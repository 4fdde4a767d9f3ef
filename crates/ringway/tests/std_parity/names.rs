//! The names of `std::fs` in Rust 1.95. A name that either library lacks does not compile.

use std::path::Path;

/// Names that both libraries have.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod names {
            #[allow(unused_imports, reason = "only their existence is checked")]
            mod of_std {
                $(use std::fs::$name as _;)*
            }
            #[allow(unused_imports, reason = "only their existence is checked")]
            mod of_ours {
                $(use ringway::fs::$name as _;)*
            }
        }
    };
}

both! {
    // Functions, without the deprecated `soft_link`.
    canonicalize, copy, create_dir, create_dir_all, exists, hard_link, metadata, read, read_dir,
    read_link, read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions,
    symlink_metadata, write,
    // Types.
    DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir,
    TryLockError,
}

/// Methods of each type that both libraries have.
macro_rules! methods {
    ($($type:ident: $($method:ident),*;)*) => {
        $($(let _ = (std::fs::$type::$method, ringway::fs::$type::$method);)*)*
    };
}

#[test]
fn methods() {
    methods! {
        // Without `lock` and `lock_shared`, which wait for another program.
        File: options, sync_all, sync_data, set_len, metadata, try_clone, set_permissions,
            set_times, set_modified, try_lock, try_lock_shared, unlock;
        OpenOptions: new, read, write, append, truncate, create, create_new;
        Metadata: file_type, is_dir, is_file, is_symlink, len, permissions, modified, accessed,
            created;
        FileType: is_dir, is_file, is_symlink;
        FileTimes: new, set_accessed, set_modified;
        DirBuilder: new, recursive;
        DirEntry: path, metadata, file_type, file_name;
    }
    // Generic functions, which cannot be named without a type.
    let _ = |path: &Path| {
        use ringway::fs::{DirBuilder, File, OpenOptions};
        drop(File::open(path));
        drop(File::create(path));
        drop(File::create_new(path));
        drop(OpenOptions::new().open(path));
        drop(DirBuilder::new().create(path));
    };
    // Names from std's Unix extension traits.
    let _ = |path: &Path| {
        (drop(ringway::fs::symlink(path, path)), drop(std::os::unix::fs::symlink(path, path)))
    };
    let _ = (
        ringway::fs::OpenOptions::mode,
        ringway::fs::OpenOptions::custom_flags,
        ringway::fs::DirBuilder::mode,
    );
    let _ = ringway::fs::DirEntry::ino;
    let kinds = [
        ringway::fs::FileType::is_fifo,
        ringway::fs::FileType::is_socket,
        ringway::fs::FileType::is_block_device,
        ringway::fs::FileType::is_char_device,
    ];
    assert_eq!(
        kinds.map(|is| is(&ringway::fs::FileType::from_mode(libc::S_IFSOCK))),
        [false, true, false, false]
    );
    fn has_numbers<T: std::os::unix::fs::MetadataExt>() {}
    has_numbers::<ringway::fs::Metadata>();
}
