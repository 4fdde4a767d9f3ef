//! Which block comes next. Pure, so that tests can show that a pass over a file visits every block exactly once.

use super::random::{Random, mix};

/// The order of the blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Sequential,
    /// At random, every block once before any comes again.
    Shuffled,
    /// At random; blocks may come again before all have been visited (`norandommap`).
    Random,
}

/// The blocks of several files in turn. A pass is over when as many blocks have been visited as the files hold;
/// then the next one begins by itself.
#[derive(Clone, Debug)]
pub struct Offsets {
    block_size: u64,
    files: Vec<Pass>,
    at: usize,
}

impl Offsets {
    /// `blocks` of each file, at least one of them more than 0. Sequential passes begin `start` (0 to 1) into each file.
    pub fn new(order: Order, block_size: u64, blocks: &[u64], seed: u64, start: f64) -> Self {
        assert!(blocks.iter().any(|blocks| *blocks > 0), "there is a block to visit");
        let files = (blocks.iter().zip(0..)).map(|(blocks, file)| Pass {
            order,
            blocks: *blocks,
            visited: 0,
            start: (*blocks as f64 * start) as u64,
            random: Random::new(seed ^ mix(file)),
            shuffle: Shuffle::new(*blocks, seed ^ mix(file)),
        });
        Self { block_size, files: files.collect(), at: 0 }
    }

    /// The next file and the offset in it.
    #[inline]
    pub fn advance(&mut self) -> (usize, u64) {
        for _ in 0..self.files.len() {
            let file = self.at;
            self.at = if file + 1 == self.files.len() { 0 } else { file + 1 };
            if let Some(block) = self.files[file].advance() {
                return (file, block * self.block_size);
            }
        }
        self.files.iter_mut().for_each(Pass::restart);
        self.advance()
    }
}

/// One file's part of a pass.
#[derive(Clone, Debug)]
struct Pass {
    order: Order,
    blocks: u64,
    visited: u64,
    start: u64,
    random: Random,
    shuffle: Shuffle,
}

impl Pass {
    #[inline]
    fn advance(&mut self) -> Option<u64> {
        if self.visited == self.blocks {
            return None;
        }
        let visited = self.visited;
        self.visited += 1;
        Some(match self.order {
            Order::Sequential if visited < self.blocks - self.start => self.start + visited,
            Order::Sequential => visited - (self.blocks - self.start),
            Order::Shuffled => self.shuffle.advance(),
            Order::Random => self.random.below(self.blocks),
        })
    }

    fn restart(&mut self) {
        self.visited = 0;
        if self.order == Order::Shuffled {
            // Another order than in the pass before.
            self.shuffle = Shuffle::new(self.blocks, self.random.draw());
        }
    }
}

/// The numbers below `blocks` in random order, each once, without remembering any: a permutation of the next power
/// of two (multiplications by odd numbers and shifts, all of which can be undone), of which what is too large is passed over.
#[derive(Clone, Debug)]
struct Shuffle {
    blocks: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 3],
    next: u64,
}

impl Shuffle {
    fn new(blocks: u64, seed: u64) -> Self {
        let mask = blocks.max(1).next_power_of_two().wrapping_sub(1);
        let mut random = Random::new(seed);
        let keys = [random.draw(), random.draw() | 1, random.draw() | 1];
        Self { blocks, mask, shift: (mask.count_ones() / 2).max(1), keys, next: 0 }
    }

    #[inline]
    fn advance(&mut self) -> u64 {
        loop {
            let place = self.place(self.next);
            self.next += 1;
            if place < self.blocks {
                return place;
            }
        }
    }

    #[inline]
    fn place(&self, index: u64) -> u64 {
        let x = (index ^ self.keys[0]) & self.mask;
        let x = x.wrapping_mul(self.keys[1]) & self.mask;
        let x = x ^ (x >> self.shift);
        let x = x.wrapping_mul(self.keys[2]) & self.mask;
        let x = x ^ (x >> self.shift);
        x.wrapping_mul(self.keys[1]) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 512;

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![Just(Order::Sequential), Just(Order::Shuffled)]
    }

    proptest! {
        #[test]
        fn a_pass_visits_every_block_of_every_file_once(
            order in orders(),
            blocks in proptest::collection::vec(0u64..200, 1..4),
            seed: u64,
            start in 0.0..1.0,
        ) {
            prop_assume!(blocks.iter().any(|blocks| *blocks > 0));
            let mut offsets = Offsets::new(order, BLOCK, &blocks, seed, start);
            for _pass in 0..3 {
                let mut visited: Vec<Vec<u32>> = blocks.iter().map(|blocks| vec![0; *blocks as usize]).collect();
                for _ in 0..blocks.iter().sum::<u64>() {
                    let (file, offset) = offsets.advance();
                    prop_assert_eq!(offset % BLOCK, 0);
                    visited[file][(offset / BLOCK) as usize] += 1;
                }
                prop_assert!(visited.iter().flatten().all(|visits| *visits == 1));
            }
        }

        #[test]
        fn random_offsets_stay_in_the_file(blocks in 1..=i64::MAX as u64, seed: u64) {
            let mut offsets = Offsets::new(Order::Random, 1, &[blocks], seed, 0.0);
            prop_assert!((0..100).all(|_| offsets.advance().1 < blocks));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_offsets_and_another_one_others() {
        let offsets = |seed| {
            let mut offsets = Offsets::new(Order::Shuffled, BLOCK, &[1000], seed, 0.0);
            (0..1000).map(|_| offsets.advance().1).collect::<Vec<_>>()
        };
        assert_eq!(offsets(1), offsets(1));
        assert_ne!(offsets(1), offsets(2));
    }

    #[test]
    fn shuffled_neighbours_are_far_apart() {
        let blocks = 1 << 18;
        let mut offsets = Offsets::new(Order::Shuffled, 1, &[blocks], 7, 0.0);
        let visited: Vec<u64> = (0..blocks).map(|_| offsets.advance().1).collect();
        let distance = |pair: &[u64]| pair[0].abs_diff(pair[1]) as f64;
        let mean = visited.windows(2).map(distance).sum::<f64>() / (blocks - 1) as f64;
        // Two independent places are a third of the file apart.
        assert!((mean / blocks as f64 - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_sequential_pass_begins_where_it_is_told() {
        let mut offsets = Offsets::new(Order::Sequential, BLOCK, &[4], 0, 0.5);
        let visited: Vec<u64> = (0..5).map(|_| offsets.advance().1 / BLOCK).collect();
        assert_eq!(visited, [2, 3, 0, 1, 2]);
    }
}
