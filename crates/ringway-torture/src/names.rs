//! The model of a directory with a few names, each of them nothing, a file, an empty directory or a
//! symbolic link to nowhere. Operations take turns on a name.

use crate::script::Name;
use std::path::{Path, PathBuf};

/// How many names there are.
pub(crate) const COUNT: u8 = 6;
/// What symbolic links say: there is no such thing.
pub(crate) const NOWHERE: &str = "nowhere/at-all";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Nothing,
    /// With a number of its own, which its links share.
    File(u64),
    Dir,
    /// With a number of its own, which its links share.
    Symlink(u64),
}

pub(crate) struct Names {
    dir: PathBuf,
    nodes: [Node; COUNT as usize],
    /// In use by an operation in flight.
    taken: [bool; COUNT as usize],
    next: u64,
}

/// What an operation will do to two names (or twice the same), and what it will answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub what: Name,
    pub first: u8,
    pub second: u8,
    pub answer: Result<(), i32>,
    after: [Node; 2],
}

impl Names {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            nodes: [Node::Nothing; COUNT as usize],
            taken: [false; COUNT as usize],
            next: 0,
        }
    }

    pub fn path(&self, name: u8) -> PathBuf {
        self.dir.join(format!("name{name}"))
    }

    pub fn are_free(&self, first: u8, second: u8) -> bool {
        !self.taken[usize::from(first)] && !self.taken[usize::from(second)]
    }

    /// An operation is pushed on names that are free, in a state that is known.
    pub fn plan(&mut self, what: Name, first: u8, second: u8) -> Plan {
        use Node::{Dir, File, Nothing, Symlink};
        let (one, other) = (self.nodes[usize::from(first)], self.nodes[usize::from(second)]);
        self.next += 1;
        let made = File(self.next);
        let (answer, after) = match (what, one, other) {
            (Name::Mkdir, Nothing, _) => (Ok(()), [Dir, Dir]),
            (Name::Symlink, Nothing, _) => (Ok(()), [Symlink(self.next); 2]),
            (Name::Mkdir | Name::Symlink, ..) => (Err(libc::EEXIST), [one, other]),
            (Name::Rmdir | Name::Unlink, Nothing, _) => (Err(libc::ENOENT), [one, other]),
            (Name::Rmdir, Dir, _) => (Ok(()), [Nothing; 2]),
            (Name::Rmdir, ..) => (Err(libc::ENOTDIR), [one, other]),
            (Name::Unlink, Dir, _) => (Err(libc::EISDIR), [one, other]),
            (Name::Unlink, ..) => (Ok(()), [Nothing; 2]),
            (Name::Rename | Name::Link, Nothing, _) => (Err(libc::ENOENT), [one, other]),
            (Name::Rename, File(a), File(b)) | (Name::Rename, Symlink(a), Symlink(b)) if a == b => {
                (Ok(()), [one, other])
            }
            (Name::Rename, ..) if first == second => (Ok(()), [one, other]),
            (Name::Rename, Dir, File(_) | Symlink(_)) => (Err(libc::ENOTDIR), [one, other]),
            (Name::Rename, File(_) | Symlink(_), Dir) => (Err(libc::EISDIR), [one, other]),
            (Name::Rename, ..) => (Ok(()), [Nothing, one]),
            (Name::Link, Dir, Nothing) => (Err(libc::EPERM), [one, other]),
            (Name::Link, _, Nothing) => (Ok(()), [one, one]),
            (Name::Link, ..) => (Err(libc::EEXIST), [one, other]),
            (Name::Statx, Nothing | Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (Name::Statx, ..) => (Ok(()), [one, other]),
            (Name::Open, Nothing | Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (Name::Open | Name::Create, Dir, _) => (Err(libc::EISDIR), [one, other]),
            (Name::Create, Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (Name::Create | Name::CreateNew, Nothing, _) => (Ok(()), [made; 2]),
            (Name::Open | Name::Create, ..) => (Ok(()), [one, other]),
            (Name::CreateNew, ..) => (Err(libc::EEXIST), [one, other]),
        };
        self.taken[usize::from(first)] = true;
        self.taken[usize::from(second)] = true;
        Plan { what, first, second, answer, after }
    }

    /// It was carried out as planned, or failed as planned.
    pub fn done(&mut self, plan: &Plan) {
        self.nodes[usize::from(plan.first)] = plan.after[0];
        self.nodes[usize::from(plan.second)] = plan.after[1];
        self.free(plan);
    }

    /// It never began.
    pub fn never(&mut self, plan: &Plan) {
        self.free(plan);
    }

    /// Nobody knows whether it was carried out, but it is over: the directory tells.
    pub fn either(&mut self, plan: &Plan) -> Result<(), String> {
        let matches = |after: bool| {
            [plan.first, plan.second].into_iter().enumerate().all(|(index, name)| {
                let node = if after { plan.after[index] } else { self.nodes[usize::from(name)] };
                self.is(name, node)
            })
        };
        if matches(true) {
            self.done(plan);
            return Ok(());
        }
        let as_before = matches(false);
        self.free(plan);
        if as_before { Ok(()) } else { Err(format!("neither as before nor as after {plan:?}")) }
    }

    fn free(&mut self, plan: &Plan) {
        self.taken[usize::from(plan.first)] = false;
        self.taken[usize::from(plan.second)] = false;
    }

    fn is(&self, name: u8, node: Node) -> bool {
        kind(&self.path(name))
            == [Some("nothing"), Some("file"), Some("dir"), Some("symlink")][match node {
                Node::Nothing => 0,
                Node::File(_) => 1,
                Node::Dir => 2,
                Node::Symlink(_) => 3,
            }]
    }

    pub fn node(&self, name: u8) -> Node {
        self.nodes[usize::from(name)]
    }

    /// Whether all names are as the model says.
    pub fn check(&self) -> Result<(), String> {
        match (0..COUNT).find(|name| !self.is(*name, self.node(*name))) {
            Some(name) => Err(format!("{}: not {:?}", self.path(name).display(), self.node(name))),
            None => Ok(()),
        }
    }
}

fn kind(path: &Path) -> Option<&'static str> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => Some("dir"),
        Ok(data) if data.is_symlink() => Some("symlink"),
        Ok(_) => Some("file"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("nothing"),
        Err(_) => None,
    }
}
