//! The model of a directory with a few names. Each is free, a file, an empty directory or a
//! dangling symbolic link. One operation uses a name at a time.

use crate::script::NameOp;
use ringway_core::c as libc;
use std::path::{Path, PathBuf};

/// The number of names.
pub(crate) const COUNT: u8 = 6;
/// The target of symbolic links, which does not exist.
pub(crate) const NOWHERE: &str = "nowhere/at-all";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Nothing,
    /// A file with a number, which its links share.
    File(u64),
    Dir,
    /// A symbolic link with a number, which its links share.
    Symlink(u64),
}

pub(crate) struct Names {
    dir: PathBuf,
    nodes: [Node; COUNT as usize],
    /// Names in use by an operation in flight.
    taken: [bool; COUNT as usize],
    next: u64,
}

/// The effect of an operation on two names (or twice the same), and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub action: NameOp,
    pub first: u8,
    pub second: u8,
    pub expected: Result<(), i32>,
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

    /// Plans an operation on unused names, whose state is known.
    pub fn plan(&mut self, action: NameOp, first: u8, second: u8) -> Plan {
        use Node::{Dir, File, Nothing, Symlink};
        let (one, other) = (self.nodes[usize::from(first)], self.nodes[usize::from(second)]);
        self.next += 1;
        let made = File(self.next);
        let (expected, after) = match (action, one, other) {
            (NameOp::Mkdir, Nothing, _) => (Ok(()), [Dir, Dir]),
            (NameOp::Symlink, Nothing, _) => (Ok(()), [Symlink(self.next); 2]),
            (NameOp::Mkdir | NameOp::Symlink, ..) => (Err(libc::EEXIST), [one, other]),
            (NameOp::Rmdir | NameOp::Unlink, Nothing, _) => (Err(libc::ENOENT), [one, other]),
            (NameOp::Rmdir, Dir, _) => (Ok(()), [Nothing; 2]),
            (NameOp::Rmdir, ..) => (Err(libc::ENOTDIR), [one, other]),
            (NameOp::Unlink, Dir, _) => (Err(libc::EISDIR), [one, other]),
            (NameOp::Unlink, ..) => (Ok(()), [Nothing; 2]),
            (NameOp::Rename | NameOp::Link, Nothing, _) => (Err(libc::ENOENT), [one, other]),
            (NameOp::Rename, File(a), File(b)) | (NameOp::Rename, Symlink(a), Symlink(b))
                if a == b =>
            {
                (Ok(()), [one, other])
            }
            (NameOp::Rename, ..) if first == second => (Ok(()), [one, other]),
            (NameOp::Rename, Dir, File(_) | Symlink(_)) => (Err(libc::ENOTDIR), [one, other]),
            (NameOp::Rename, File(_) | Symlink(_), Dir) => (Err(libc::EISDIR), [one, other]),
            (NameOp::Rename, ..) => (Ok(()), [Nothing, one]),
            (NameOp::Link, Dir, Nothing) => (Err(libc::EPERM), [one, other]),
            (NameOp::Link, _, Nothing) => (Ok(()), [one, one]),
            (NameOp::Link, ..) => (Err(libc::EEXIST), [one, other]),
            (NameOp::Statx, Nothing | Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (NameOp::Statx, ..) => (Ok(()), [one, other]),
            (NameOp::Open, Nothing | Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (NameOp::Open | NameOp::Create, Dir, _) => (Err(libc::EISDIR), [one, other]),
            (NameOp::Create, Symlink(_), _) => (Err(libc::ENOENT), [one, other]),
            (NameOp::Create | NameOp::CreateNew, Nothing, _) => (Ok(()), [made; 2]),
            (NameOp::Open | NameOp::Create, ..) => (Ok(()), [one, other]),
            (NameOp::CreateNew, ..) => (Err(libc::EEXIST), [one, other]),
        };
        self.taken[usize::from(first)] = true;
        self.taken[usize::from(second)] = true;
        Plan { action, first, second, expected, after }
    }

    /// The operation had the planned result.
    pub fn done(&mut self, plan: &Plan) {
        self.nodes[usize::from(plan.first)] = plan.after[0];
        self.nodes[usize::from(plan.second)] = plan.after[1];
        self.free(plan);
    }

    /// The operation never began.
    pub fn never(&mut self, plan: &Plan) {
        self.free(plan);
    }

    /// The operation is over with unknown effect: takes the state from the directory.
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
        if as_before {
            Ok(())
        } else {
            Err(format!("neither the state before nor that after {plan:?}"))
        }
    }

    fn free(&mut self, plan: &Plan) {
        self.taken[usize::from(plan.first)] = false;
        self.taken[usize::from(plan.second)] = false;
    }

    fn is(&self, name: u8, node: Node) -> bool {
        node_type(&self.path(name))
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

    /// Checks that all names are as in the model.
    pub fn check(&self) -> Result<(), String> {
        match (0..COUNT).find(|name| !self.is(*name, self.node(*name))) {
            Some(name) => Err(format!("{}: not {:?}", self.path(name).display(), self.node(name))),
            None => Ok(()),
        }
    }
}

fn node_type(path: &Path) -> Option<&'static str> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => Some("dir"),
        Ok(data) if data.is_symlink() => Some("symlink"),
        Ok(_) => Some("file"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("nothing"),
        Err(_) => None,
    }
}
