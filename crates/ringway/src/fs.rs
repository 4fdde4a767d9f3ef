//! Files: open, read, write, and what else is done with them, without blocking.
//!
//! [`File`] has everything that is done with an open file; the functions here take paths, as those of [`std::fs`] do.

mod cache;
mod file;
mod lent;
mod open;
mod outcome;
mod path;
mod transfer;

pub use file::File;
pub use open::OpenOptions;
pub use path::{
    copy, create_dir, create_dir_all, hard_link, metadata, read, read_to_string, remove_dir, remove_file, rename,
    symlink, symlink_metadata, try_exists, write, write_atomic,
};
