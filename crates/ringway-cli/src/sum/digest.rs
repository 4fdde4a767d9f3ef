//! The digests behind one interface: a part for each block, computed on any core and in any order,
//! and the hash of the parts in order.

use super::tree::Tree;
use sha2::Sha256;
use std::hash::Hasher;
use std::ops::Deref;
use twox_hash::XxHash3_64;

/// A supported digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Algorithm {
    /// BLAKE3, 256 bits
    #[default]
    Blake3,
    /// SHA-256
    Sha256,
    /// CRC-32C (Castagnoli), as in iSCSI, ext4 and btrfs
    Crc32c,
    /// XXH3, 64 bits
    Xxh3,
}

impl Algorithm {
    /// Bytes of a hash.
    pub(super) fn hash_len(self) -> usize {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => 32,
            Algorithm::Crc32c => 4,
            Algorithm::Xxh3 => 8,
        }
    }
}

/// The bytes of a block.
pub(super) trait Bytes: Deref<Target = [u8]> + Send + 'static {}

impl<B: Deref<Target = [u8]> + Send + 'static> Bytes for B {}

/// A digest being computed. All blocks have the same length, a power of two; the last may be
/// shorter.
pub(super) trait Digest: Default + Send + 'static {
    /// What can be computed of a block without the blocks before it.
    type Part<B: Bytes>: Send + 'static;

    /// Computes the part of the block at `offset`.
    fn part<B: Bytes>(offset: u64, block: B) -> Self::Part<B>;

    /// Adds the next part.
    fn add<B: Bytes>(&mut self, part: Self::Part<B>);

    /// The hash of all parts.
    fn finish(self) -> Vec<u8>;
}

impl Digest for Sha256 {
    type Part<B: Bytes> = B;

    fn part<B: Bytes>(_: u64, block: B) -> B {
        block
    }

    fn add<B: Bytes>(&mut self, block: B) {
        sha2::Digest::update(self, &*block);
    }

    fn finish(self) -> Vec<u8> {
        sha2::Digest::finalize(self).to_vec()
    }
}

impl Digest for XxHash3_64 {
    type Part<B: Bytes> = B;

    fn part<B: Bytes>(_: u64, block: B) -> B {
        block
    }

    fn add<B: Bytes>(&mut self, block: B) {
        self.write(&block);
    }

    fn finish(self) -> Vec<u8> {
        Hasher::finish(&self).to_be_bytes().to_vec()
    }
}

/// CRC-32C: the CRC of the whole is computed from those of the blocks.
#[derive(Default)]
pub(super) struct Crc32c(u32);

impl Digest for Crc32c {
    type Part<B: Bytes> = (u32, usize);

    fn part<B: Bytes>(_: u64, block: B) -> (u32, usize) {
        (crc32c::crc32c(&block), block.len())
    }

    fn add<B: Bytes>(&mut self, (crc, len): (u32, usize)) {
        self.0 = crc32c::crc32c_combine(self.0, crc, len);
    }

    fn finish(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

impl Digest for Tree {
    type Part<B: Bytes> = Box<blake3::Hasher>;

    fn part<B: Bytes>(offset: u64, block: B) -> Box<blake3::Hasher> {
        Tree::subtree(offset, &block)
    }

    fn add<B: Bytes>(&mut self, subtree: Box<blake3::Hasher>) {
        self.push(subtree);
    }

    fn finish(self) -> Vec<u8> {
        self.root().as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash<D: Digest>(bytes: &[u8], block: usize) -> Vec<u8> {
        let mut digest = D::default();
        for (number, part) in bytes.chunks(block).enumerate() {
            digest.add::<Vec<u8>>(D::part((number * block) as u64, part.to_vec()));
        }
        digest.finish()
    }

    #[test]
    fn parts_combine_to_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..300_001u32).map(|n| (n % 251) as u8).collect();
        for len in [0, 1, 1023, 1024, 1025, 2048, 4096, 65_536, 65_537, 131_072, 262_144, 300_001] {
            let bytes = &bytes[..len];
            for block in [1024, 4096, 65_536] {
                assert_eq!(
                    hash::<Tree>(bytes, block),
                    blake3::hash(bytes).as_bytes(),
                    "{len} in {block}"
                );
                assert_eq!(
                    hash::<Crc32c>(bytes, block),
                    crc32c::crc32c(bytes).to_be_bytes(),
                    "{len} in {block}"
                );
                assert_eq!(
                    hash::<XxHash3_64>(bytes, block),
                    XxHash3_64::oneshot(bytes).to_be_bytes()
                );
                assert_eq!(
                    hash::<Sha256>(bytes, block),
                    <Sha256 as sha2::Digest>::digest(bytes).to_vec()
                );
            }
        }
    }

    #[test]
    fn an_empty_part_changes_nothing() {
        let mut tree = Tree::default();
        for (offset, block) in [(0, vec![7; 1024]), (1024, vec![])] {
            tree.add::<Vec<u8>>(Tree::part(offset, block));
        }
        assert_eq!(tree.finish(), blake3::hash(&[7; 1024]).as_bytes());
    }
}
