//! What is known of file systems, read from `file_systems.txt`, and what follows from it for the
//! transfers of a file. Which file system a file is on is found in `mount.rs`.

use crate::lookup::Lookup;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// As in `/proc/self/mountinfo`.
    pub(super) name: &'static str,
    magic: u32,
    /// Its open and `statx(2)` need no other program and no other machine.
    pub(super) is_local: bool,
    ring: FileClass,
    kaio: FileClass,
    dsync: bool,
    alignment: Alignment,
}

/// The files of a file system whose direct transfers a queue of the kernel makes like the system
/// calls, without blocking the submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileClass {
    None,
    /// Those for which the kernel reports an alignment.
    Reported,
    /// Those without copy-on-write.
    Nocow,
    Direct,
    /// All, and buffered transfers too.
    All,
}

/// What is known of the alignment of direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Unknown,
    Known,
    /// Known, but it may grow while a file is open.
    Grows,
}

/// What decides about a file besides its file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTraits {
    pub(super) direct: bool,
    /// The kernel reports an alignment for direct I/O.
    pub(super) reported: bool,
    /// It has no copy-on-write.
    pub(super) nocow: bool,
}

/// Who makes the transfers of a file, and what is known of them. The default: threads, with the
/// system calls that the standard library makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement(u8);

impl Placement {
    /// io_uring may make the transfers.
    pub const RING: Self = Self(1);
    /// Linux AIO may make the transfers, if they are direct.
    pub const LINUX_AIO: Self = Self(1 << 1);
    /// `RWF_DSYNC` makes direct writes durable.
    pub const DSYNC: Self = Self(1 << 2);
    /// The alignment of direct I/O is known, so that a direct read that ends within a block has met
    /// the end of the file.
    pub const ALIGNED: Self = Self(1 << 3);
    /// The alignment may grow while the file is open.
    pub const GROWS: Self = Self(1 << 4);

    /// Closing the file needs no other program, no other machine and no device.
    pub const LOCAL: Self = Self(1 << 5);

    /// A regular file of tmpfs, not open for direct I/O: its pages are in memory or in swap space.
    pub const IN_MEMORY: Self = Self(1 << 6);
    /// A regular file of an overlay, not open for direct I/O, whose bytes are all in one layer, on
    /// a file system that reports an alignment of direct I/O. The process may call `mincore(2)`.
    pub const IN_LAYER: Self = Self(1 << 7);

    /// For what is not a regular file: the type of the file decides.
    pub const ANY: Self = Self(Self::RING.0 | Self::LINUX_AIO.0);

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn with(self, other: Self, yes: bool) -> Self {
        if yes { Self(self.0 | other.0) } else { self }
    }
}

impl FileSystem {
    /// The placement of one of its regular files.
    pub(super) fn place(&self, file: FileTraits) -> Placement {
        let takes = |extent| match extent {
            FileClass::None => false,
            FileClass::Reported => file.direct && file.reported,
            FileClass::Nocow => file.direct && file.nocow,
            FileClass::Direct => file.direct,
            FileClass::All => true,
        };
        let ring = takes(self.ring);
        Placement::default()
            .with(Placement::RING, ring)
            .with(Placement::LINUX_AIO, takes(self.kaio))
            .with(Placement::DSYNC, self.dsync && ring && file.direct)
            .with(Placement::ALIGNED, self.alignment != Alignment::Unknown && ring && file.direct)
            .with(Placement::GROWS, self.alignment == Alignment::Grows)
            .with(Placement::LOCAL, self.is_local)
    }

    /// Whether [`place`](Self::place) asks if the file has copy-on-write.
    pub(super) fn asks_for_nocow(&self) -> bool {
        [self.ring, self.kaio].contains(&FileClass::Nocow)
    }

    fn parse(line: &'static str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next();
        let (name, magic) = (next()?, next()?.strip_prefix("0x")?);
        let magic = u32::from_str_radix(magic, 16).ok()?;
        let yes = |field: &str| match field {
            "yes" => Some(true),
            "-" => Some(false),
            _ => None,
        };
        let is_local = yes(next()?)?;
        let ring = match next()? {
            "all" => FileClass::All,
            "reported" => FileClass::Reported,
            "-" => FileClass::None,
            _ => return None,
        };
        let kaio = match next()? {
            "direct" => FileClass::Direct,
            "nocow" => FileClass::Nocow,
            "reported" => FileClass::Reported,
            "-" => FileClass::None,
            _ => return None,
        };
        let dsync = yes(next()?)?;
        let alignment = match next()? {
            "known" => Alignment::Known,
            "grows" => Alignment::Grows,
            "-" => Alignment::Unknown,
            _ => return None,
        };
        let parsed = Self { name, magic, is_local, ring, kaio, dsync, alignment };
        next().is_none().then_some(parsed)
    }
}

const FILE_SYSTEMS: &str = include_str!("file_systems.txt");

/// The lines of [`FILE_SYSTEMS`] that are not comments.
fn lines() -> impl Iterator<Item = &'static str> {
    FILE_SYSTEMS.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn all() -> &'static [FileSystem] {
    static ALL: Lookup<Vec<FileSystem>> = Lookup::new();
    ALL.get_or_look_up(|| lines().filter_map(FileSystem::parse).collect())
}

/// The file system of this type; `None` if nothing is known of it.
pub(super) fn by_name(name: &str) -> Option<&'static FileSystem> {
    all().iter().find(|known| known.name == name)
}

/// The first file system with this magic number.
pub(super) fn by_magic(magic: u32) -> Option<&'static FileSystem> {
    all().iter().find(|known| known.magic == magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        assert_eq!(all().len(), lines().count());
        for (at, known) in all().iter().enumerate() {
            assert!(all()[..at].iter().all(|other| other.name != known.name), "{}", known.name);
        }
    }

    /// What a queue of the kernel takes, and what is known about it then.
    #[test]
    fn what_follows_from_the_table() {
        let file = |direct, reported, nocow| FileTraits { direct, reported, nocow };
        let place = |name, file| by_name(name).unwrap().place(file);
        let has = |placement: Placement, bits: &[Placement]| {
            let found = placement.0 & !Placement::LOCAL.0;
            assert_eq!(found, bits.iter().fold(0, |all, bit| all | bit.0), "{placement:?}");
        };
        use Placement as P;
        for (name, is_local) in [("ext4", true), ("tmpfs", true), ("nfs", false), ("bdev", false)] {
            assert_eq!(place(name, file(false, true, false)).has(P::LOCAL), is_local, "{name}");
        }
        has(place("ext4", file(true, true, false)), &[P::RING, P::LINUX_AIO, P::DSYNC, P::ALIGNED]);
        has(place("ext4", file(false, true, false)), &[P::RING]);
        let xfs = place("xfs", file(true, true, false));
        has(xfs, &[P::RING, P::LINUX_AIO, P::DSYNC, P::ALIGNED, P::GROWS]);
        has(place("btrfs", file(true, false, false)), &[P::RING, P::ALIGNED]);
        has(place("btrfs", file(true, false, true)), &[P::RING, P::LINUX_AIO, P::ALIGNED]);
        let overlay = place("overlay", file(true, true, false));
        has(overlay, &[P::RING, P::DSYNC, P::ALIGNED, P::GROWS]);
        for unknown in [file(true, false, false), file(false, true, false)] {
            has(place("overlay", unknown), &[P::GROWS]);
        }
        for name in ["fuse", "fuseblk", "nfs", "proc", "zfs"] {
            has(place(name, file(true, true, true)), &[]);
        }
    }

    #[test]
    fn a_line_with_an_error_is_nothing() {
        assert!(FileSystem::parse("a 0x1 yes all direct yes known").is_some());
        for line in [
            "a 0x1 yes all direct yes",
            "a 0x1 yes all direct yes known more",
            "a 1 yes all direct yes known",
            "a 0x1 no all direct yes known",
            "a 0x1 yes some direct yes known",
        ] {
            assert_eq!(FileSystem::parse(line), None, "{line}");
        }
    }
}
