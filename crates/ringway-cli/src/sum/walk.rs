//! Finds the files of the command line, in a stable order.

use super::source::{Input, Inputs};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// A path that was found.
#[derive(Debug)]
pub(super) enum Found {
    /// An input.
    Input(Input),
    /// A path that cannot be examined.
    Failed(PathBuf, io::Error),
    /// A path in a tree that is not read, and its kind.
    LeftOut(PathBuf, &'static str),
}

/// All files below the directories of the arguments, and the other arguments, which are examined
/// when they are read.
pub(super) fn all(arguments: &[PathBuf], recursive: bool) -> impl Iterator<Item = Found> {
    Inputs::default().all(arguments).into_iter().flat_map(move |input| {
        let (one, tree) = match input {
            Input::Path(path) if recursive && path.is_dir() => (None, Some(tree(&path))),
            input => (Some(Found::Input(input)), None),
        };
        one.into_iter().chain(tree.into_iter().flatten())
    })
}

/// The files of a tree. Links in it are not followed, so there are no loops.
fn tree(root: &Path) -> impl Iterator<Item = Found> + use<> {
    let root_path = root.to_owned();
    WalkDir::new(root).sort_by_file_name().into_iter().filter_map(move |entry| match entry {
        Ok(entry) if entry.file_type().is_dir() => None,
        Ok(entry) if entry.file_type().is_file() => {
            Some(Found::Input(Input::Path(entry.into_path())))
        }
        // The root may be a link itself.
        Ok(entry) if entry.depth() == 0 => None,
        Ok(entry) if entry.file_type().is_symlink() => {
            Some(Found::LeftOut(entry.into_path(), "a symbolic link"))
        }
        Ok(entry) => Some(Found::LeftOut(entry.into_path(), "not a regular file")),
        Err(error) => {
            let path = error.path().unwrap_or(&root_path).to_owned();
            // The kernel's error without the text of walkdir. There always is one, since only a
            // loop of links has none, and links are not followed.
            let error = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
            Some(Found::Failed(path, error))
        }
    })
}

/// The number of bytes to read, as far as metadata show it.
pub(super) fn total(arguments: &[PathBuf], recursive: bool) -> u64 {
    let size = |found| match found {
        Found::Input(Input::Path(path)) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
        _ => 0,
    };
    all(arguments, recursive).map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(arguments: &[PathBuf], root: &Path) -> Vec<String> {
        let name = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = |found| match found {
            Found::Input(input) => name(input.name()),
            Found::Failed(path, error) => format!("{}: {:?}", name(&path), error.kind()),
            Found::LeftOut(path, what) => format!("{}: {what}", name(&path)),
        };
        all(arguments, true).map(text).collect()
    }

    #[test]
    fn trees_are_sorted_and_arguments_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in ["t/b/2", "t/b/1", "t/a", "t/c", "z", "y"] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "12345").unwrap();
        }
        std::os::unix::fs::symlink("..", root.join("t/b/loop")).unwrap();
        std::os::unix::fs::symlink("t", root.join("link")).unwrap();
        let arguments = ["z", "t", "y"].map(|name| root.join(name));
        assert_eq!(
            named(&arguments, root),
            ["z", "t/a", "t/b/1", "t/b/2", "t/b/loop: a symbolic link", "t/c", "y"]
        );
        assert_eq!(total(&arguments, true), 6 * 5);
        assert_eq!(
            named(&[root.join("link/b")], root),
            ["link/b/1", "link/b/2", "link/b/loop: a symbolic link"]
        );
        assert_eq!(named(&[root.join("link")], root)[0], "link/a");
    }

    #[test]
    fn standard_input_is_read_once() {
        let inputs: Vec<Found> = all(&["-".into(), "-".into()], false).collect();
        assert!(
            matches!(inputs[..], [Found::Input(Input::Stdin), Found::Input(Input::Spent)]),
            "{inputs:?}"
        );
        assert!(matches!(all(&[], false).next(), Some(Found::Input(Input::Stdin))));
    }
}
