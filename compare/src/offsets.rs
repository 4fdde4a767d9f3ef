//! Where a reader reads next: cheap enough that it is no part of what is measured.

use crate::shape::Order;

/// The offsets of one reader.
#[derive(Debug)]
pub struct Offsets {
    order: Order,
    block: u64,
    blocks: u64,
    next: u64,
    random: u64,
}

impl Offsets {
    /// Those of reader `index` of `readers`, in a file of `blocks` blocks of `block` bytes.
    pub fn new(order: Order, block: u64, blocks: u64, index: usize, readers: usize) -> Self {
        let next = (u128::from(blocks) * index as u128 / readers as u128) as u64;
        // Xorshift wants a state that is not 0, and neighbours that have little in common.
        let random = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { order, block, blocks, next, random }
    }

    /// The next offset, in bytes.
    pub fn next(&mut self) -> u64 {
        let block = match self.order {
            Order::Random => ((u128::from(self.draw()) * u128::from(self.blocks)) >> 64) as u64,
            Order::Sequential => {
                let block = self.next;
                self.next = (block + 1) % self.blocks;
                block
            }
        };
        block * self.block
    }

    /// A random number (xorshift64*).
    pub fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_readers_go_through_parts_of_their_own_and_begin_again_at_the_end() {
        let mut second = Offsets::new(Order::Sequential, 10, 4, 1, 2);
        assert_eq!([second.next(), second.next(), second.next()], [20, 30, 0]);
    }

    #[test]
    fn random_offsets_reach_every_block_and_none_beyond() {
        let mut offsets = Offsets::new(Order::Random, 10, 4, 0, 1);
        let mut seen = [false; 4];
        (0..100).for_each(|_| seen[(offsets.next() / 10) as usize] = true);
        assert_eq!(seen, [true; 4]);
    }
}
