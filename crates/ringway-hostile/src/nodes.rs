//! Which path below the backing directory an inode number stands for. A number stays with its file
//! when that is renamed; it is not used again.

use fuser::INodeNo;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The number of the file that takes rules.
pub const CONTROL: INodeNo = INodeNo(2);

#[derive(Debug)]
pub struct Nodes {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    last: u64,
}

impl Nodes {
    pub fn new() -> Self {
        let root = PathBuf::new();
        Self {
            paths: HashMap::from([(INodeNo::ROOT.0, root.clone())]),
            numbers: HashMap::from([(root, INodeNo::ROOT.0)]),
            last: CONTROL.0,
        }
    }

    /// The path of a number, relative to the backing directory.
    pub fn path(&self, number: INodeNo) -> Option<&Path> {
        self.paths.get(&number.0).map(PathBuf::as_path)
    }

    /// The number of a path.
    pub fn number(&mut self, path: &Path) -> INodeNo {
        if let Some(number) = self.numbers.get(path) {
            return INodeNo(*number);
        }
        self.last += 1;
        self.paths.insert(self.last, path.to_owned());
        self.numbers.insert(path.to_owned(), self.last);
        INodeNo(self.last)
    }

    /// The path no longer names its file. (Open files have handles.)
    pub fn remove(&mut self, path: &Path) {
        self.numbers.remove(path);
    }

    /// A file, or a directory with all below it, has another path.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        self.remove(to);
        let moved = self.take(from);
        self.put(to, moved);
    }

    /// Two files, or directories with all below them, have each other's path.
    pub fn exchange(&mut self, one: &Path, other: &Path) {
        let (first, second) = (self.take(one), self.take(other));
        self.put(other, first);
        self.put(one, second);
    }

    /// Takes the numbers of a file, or of a directory with all below it, with the paths below it.
    fn take(&mut self, from: &Path) -> Vec<(PathBuf, u64)> {
        let all = self.numbers.extract_if(|path, _| path.starts_with(from));
        all.map(|(path, number)| {
            (path.strip_prefix(from).unwrap_or(Path::new("")).to_owned(), number)
        })
        .collect()
    }

    fn put(&mut self, to: &Path, moved: Vec<(PathBuf, u64)>) {
        for (below, number) in moved {
            // (Joining nothing would add a slash.)
            let new = if below == Path::new("") { to.to_owned() } else { to.join(below) };
            self.paths.insert(number, new.clone());
            self.numbers.insert(new, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_its_file() {
        let mut nodes = Nodes::new();
        let file = nodes.number(Path::new("a/b"));
        assert_eq!(nodes.number(Path::new("a/b")), file);
        nodes.rename(Path::new("a"), Path::new("c"));
        assert_eq!(nodes.path(file), Some(Path::new("c/b")));
        nodes.remove(Path::new("c/b"));
        assert_ne!(nodes.number(Path::new("c/b")), file);
        assert_eq!(nodes.path(INodeNo::ROOT), Some(Path::new("")));
        let (one, other) = (nodes.number(Path::new("d/e")), nodes.number(Path::new("f")));
        nodes.exchange(Path::new("d"), Path::new("f"));
        assert_eq!(
            (nodes.path(one), nodes.path(other)),
            (Some(Path::new("f/e")), Some(Path::new("d")))
        );
    }
}
