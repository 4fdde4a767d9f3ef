//! BLAKE3 as a tree of blocks: each becomes a subtree on whatever core has read it, and only their
//! short chaining values are put together in order.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

/// The left edge of the tree. As long as another block may follow, nobody can say where its root
/// is.
#[derive(Default)]
pub(super) struct Tree {
    /// Whole subtrees, the largest first: one for each bit that is set in `blocks`.
    left: Vec<ChainingValue>,
    /// How many blocks are in `left`.
    blocks: u64,
    /// The block after those: the root itself if it stays alone.
    last: Option<Box<Hasher>>,
}

impl Tree {
    /// The subtree of a block at an offset that is a multiple of its greatest length.
    pub(super) fn subtree(offset: u64, block: &[u8]) -> Box<Hasher> {
        let mut subtree = Box::new(Hasher::new());
        subtree.set_input_offset(offset).update(block);
        subtree
    }

    /// Adds the next block.
    pub(super) fn push(&mut self, subtree: Box<Hasher>) {
        if subtree.count() == 0 {
            return;
        }
        let Some(before) = self.last.replace(subtree) else { return };
        let mut whole = before.finalize_non_root();
        // As in a binary counter: where a bit is carried, two subtrees of the same size become one.
        for _ in 0..self.blocks.trailing_ones() {
            if let Some(left) = self.left.pop() {
                whole = merge_subtrees_non_root(&left, &whole, Mode::Hash);
            }
        }
        self.left.push(whole);
        self.blocks += 1;
    }

    /// The hash of all blocks.
    pub(super) fn root(self) -> Hash {
        let last = self.last.unwrap_or_default();
        let Some((first, between)) = self.left.split_first() else { return last.finalize() };
        let merge = |right, left: &ChainingValue| merge_subtrees_non_root(left, &right, Mode::Hash);
        let right = between.iter().rev().fold(last.finalize_non_root(), merge);
        merge_subtrees_root(first, &right, Mode::Hash)
    }
}
