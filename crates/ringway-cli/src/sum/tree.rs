//! BLAKE3 as a tree of blocks: each block is hashed into a subtree on the core that read it, and
//! the short chaining values are combined in order.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

/// The left edge of the tree. The root is unknown until the last block.
#[derive(Default)]
pub(super) struct Tree {
    /// Complete subtrees, the largest first: one for each bit that is set in `blocks`.
    left: Vec<ChainingValue>,
    /// The number of blocks in `left`.
    blocks: u64,
    /// The block after those; the root if it is the only one.
    last: Option<Box<Hasher>>,
}

impl Tree {
    /// The subtree of a block, whose offset is a multiple of the block length.
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
        // As in a binary counter: each carry merges two subtrees of the same size.
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
