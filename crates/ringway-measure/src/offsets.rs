//! The offsets of a job's requests, as pure data: tests can prove that a pass over a file visits
//! every block exactly once.

use crate::random::{Random, mix};
use serde::{Deserialize, Serialize};

/// The order of the blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From the first block to the last.
    Sequential,
    /// Random; every block is visited once before any is repeated.
    Shuffled,
    /// Random; blocks may be repeated before all have been visited (fio's `norandommap`).
    Random,
}

/// A part of a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Its first byte.
    pub start: u64,
    /// Its length. Bytes after the last whole block are not used.
    pub len: u64,
}

/// The bytes of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of the file.
    pub file: usize,
    /// The first byte, from the beginning of the file.
    pub offset: u64,
    /// The length, a whole number of blocks.
    pub len: u64,
}

/// The blocks of several files in turn. A pass ends when every file has been visited; then the next
/// pass begins. Sequential reads and writes have separate positions and passes, as in fio.
#[derive(Clone, Debug)]
pub struct Offsets {
    block_size: u64,
    files: Vec<File>,
    at: usize,
}

impl Offsets {
    /// Offsets in these regions, one for each file. Sequential passes begin at the fraction `start`
    /// (0 to 1) of each region.
    ///
    /// # Panics
    ///
    /// No region has a whole block.
    pub fn new(order: Order, block_size: u64, regions: &[Region], seed: u64, start: f64) -> Self {
        assert!(
            regions.iter().any(|region| region.len >= block_size),
            "a region has a whole block"
        );
        let files = regions.iter().zip(0..).map(|(region, file)| {
            let blocks = region.len / block_size;
            let seed = seed ^ mix(file);
            let shuffle = Shuffle::new(blocks, seed);
            let first = (blocks as f64 * start) as u64;
            File {
                start: region.start,
                order,
                blocks,
                first,
                visited: [0; 2],
                random: Random::new(seed),
                shuffle,
            }
        });
        Self { block_size, files: files.collect(), at: 0 }
    }

    /// The next request. `draw` receives the bytes up to the end of the file and chooses the
    /// length: a multiple of the block size, and no more than that.
    #[inline]
    pub fn advance(&mut self, writes: bool, mut draw: impl FnMut(u64) -> u64) -> Place {
        let pass = match self.files[0].order {
            Order::Sequential => usize::from(writes),
            _ => 0,
        };
        loop {
            for _ in 0..self.files.len() {
                let number = self.at;
                self.at = if number + 1 == self.files.len() { 0 } else { number + 1 };
                let file = &mut self.files[number];
                if let Some((block, room)) = file.next(pass) {
                    let len = draw(room * self.block_size);
                    file.visit(pass, len / self.block_size);
                    return Place {
                        file: number,
                        offset: file.start + block * self.block_size,
                        len,
                    };
                }
            }
            for file in &mut self.files {
                file.restart(pass);
            }
        }
    }
}

/// One file's part of a pass.
#[derive(Clone, Debug)]
struct File {
    start: u64,
    order: Order,
    blocks: u64,
    first: u64,
    /// Visited blocks of this pass: by reads and by writes, or by both in the first element.
    visited: [u64; 2],
    random: Random,
    shuffle: Shuffle,
}

impl File {
    /// The next block, and the number of blocks from there to the end; `None` at the end of the
    /// pass.
    #[inline]
    fn next(&mut self, pass: usize) -> Option<(u64, u64)> {
        let visited = self.visited[pass];
        if visited == self.blocks {
            return None;
        }
        let after_first = self.blocks - self.first;
        Some(match self.order {
            Order::Sequential if visited < after_first => {
                (self.first + visited, after_first - visited)
            }
            Order::Sequential => (visited - after_first, self.blocks - visited),
            Order::Shuffled | Order::Random => {
                let random = self.order == Order::Random;
                let block =
                    if random { self.random.below(self.blocks) } else { self.shuffle.advance() };
                (block, self.blocks - block)
            }
        })
    }

    /// Counts a request of this many blocks. A random pass has as many requests as blocks, however
    /// long they are.
    #[inline]
    fn visit(&mut self, pass: usize, blocks: u64) {
        self.visited[pass] += if self.order == Order::Sequential { blocks } else { 1 };
    }

    fn restart(&mut self, pass: usize) {
        self.visited[pass] = 0;
        if self.order == Order::Shuffled {
            // Each pass has another order.
            self.shuffle = Shuffle::new(self.blocks, self.random.draw());
        }
    }
}

/// The numbers below `blocks` in random order, each once, without storing any: a permutation of the
/// numbers below the next power of two (multiplications by odd numbers and shifts, all invertible),
/// from which too large numbers are skipped.
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
            let number = self.permute(self.next);
            self.next += 1;
            if number < self.blocks {
                return number;
            }
        }
    }

    #[inline]
    fn permute(&self, index: u64) -> u64 {
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

    fn regions(blocks: &[u64]) -> Vec<Region> {
        blocks.iter().map(|blocks| Region { start: 0, len: blocks * BLOCK }).collect()
    }

    /// Offsets of requests of one block, in blocks.
    fn visits(offsets: &mut Offsets, count: u64) -> Vec<u64> {
        (0..count).map(|_| offsets.advance(false, |_| BLOCK).offset / BLOCK).collect()
    }

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![Just(Order::Sequential), Just(Order::Shuffled)]
    }

    proptest! {
        #[test]
        fn a_pass_visits_every_block_of_every_file_once(
            order in orders(),
            blocks in proptest::collection::vec(0u64..200, 1..4),
            from in 0u64..5000,
            rest in 0..BLOCK,
            seed: u64,
            start in 0.0..1.0,
        ) {
            prop_assume!(blocks.iter().any(|blocks| *blocks > 0));
            let region = |n| Region { start: from, len: n * BLOCK + rest };
            let regions: Vec<_> = blocks.iter().map(region).collect();
            let mut offsets = Offsets::new(order, BLOCK, &regions, seed, start);
            for _pass in 0..3 {
                let mut visited: Vec<Vec<u32>> =
                    blocks.iter().map(|blocks| vec![0; *blocks as usize]).collect();
                for _ in 0..blocks.iter().sum::<u64>() {
                    let place = offsets.advance(false, |_| BLOCK);
                    prop_assert_eq!((place.offset - from) % BLOCK, 0);
                    visited[place.file][((place.offset - from) / BLOCK) as usize] += 1;
                }
                prop_assert!(visited.iter().flatten().all(|visits| *visits == 1));
            }
        }

        #[test]
        fn requests_of_any_length_stay_in_the_file_and_sequential_ones_cover_it(
            order in orders(),
            blocks in 1u64..300,
            lens in proptest::collection::vec(1u64..40, 1..20),
            start in 0.0..1.0,
        ) {
            let mut offsets = Offsets::new(order, BLOCK, &regions(&[blocks]), 1, start);
            let mut lens = lens.into_iter().cycle();
            let mut visits = vec![0; blocks as usize];
            let mut bytes = 0;
            while bytes < blocks * BLOCK {
                let place = offsets.advance(false, |room| (lens.next().unwrap() * BLOCK).min(room));
                let first = place.offset / BLOCK;
                prop_assert!(place.len > 0 && first + place.len / BLOCK <= blocks);
                (first..first + place.len / BLOCK).for_each(|block| visits[block as usize] += 1);
                bytes += place.len;
            }
            prop_assert!(order != Order::Sequential || visits.iter().all(|visits| *visits == 1));
        }

        #[test]
        fn random_offsets_stay_in_the_file(blocks in 1..=i64::MAX as u64, seed: u64) {
            let regions = [Region { start: 0, len: blocks }];
            let mut offsets = Offsets::new(Order::Random, 1, &regions, seed, 0.0);
            prop_assert!((0..100).all(|_| offsets.advance(false, |_| 1).offset < blocks));
        }
    }

    #[test]
    fn offsets_depend_on_the_seed_alone() {
        let offsets = |seed| {
            visits(&mut Offsets::new(Order::Shuffled, BLOCK, &regions(&[1000]), seed, 0.0), 1000)
        };
        assert_eq!(offsets(1), offsets(1));
        assert_ne!(offsets(1), offsets(2));
    }

    #[test]
    fn shuffled_neighbours_are_far_apart() {
        let blocks = 1 << 18;
        let visited =
            visits(&mut Offsets::new(Order::Shuffled, BLOCK, &regions(&[blocks]), 7, 0.0), blocks);
        let distance = |pair: &[u64]| pair[0].abs_diff(pair[1]) as f64;
        let mean = visited.windows(2).map(distance).sum::<f64>() / (blocks - 1) as f64;
        // Two independent offsets are a third of the file apart on average.
        assert!((mean / blocks as f64 - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_sequential_pass_begins_at_the_given_fraction() {
        let mut offsets = Offsets::new(Order::Sequential, BLOCK, &regions(&[4]), 0, 0.5);
        assert_eq!(visits(&mut offsets, 5), [2, 3, 0, 1, 2]);
    }

    #[test]
    fn sequential_reads_and_writes_have_separate_positions() {
        let mut offsets = Offsets::new(Order::Sequential, BLOCK, &regions(&[3]), 0, 0.0);
        // The order of fio 3.33, from its log of a job with `rw=rw`. That job ends when it has
        // moved as many bytes as the file has.
        let writes = [false, false, false, true, true, false, true, true];
        let places = writes.map(|writes| offsets.advance(writes, |_| BLOCK).offset / BLOCK);
        assert_eq!(places, [0, 1, 2, 0, 1, 0, 2, 0]);
    }
}
