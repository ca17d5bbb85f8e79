//! Blocks of the journal (jbd2). Numbers are big-endian.

use crate::checksum::crc;
use crate::ondisk::bytes::{
    be16, be32, be64, high32, join32, low16, low32, put_be16, put_be32, put_be64,
};
use crate::units::{BLOCK_BYTES, BlockNo, Timestamp};

mod saved;
mod superblock;

pub(crate) use saved::{RECORDS, Record, SavedMap, block as saved_block, records as saved_records};
pub(crate) use superblock::JournalSuperblock;

const MAGIC: u32 = 0xC03B_3998;
const HEADER: usize = 12;
/// Bytes of the checksum at the end of descriptors and revoke blocks.
const TAIL: usize = 4;
const UUID: usize = 16;

const FLAG_ESCAPED: u32 = 1;
const FLAG_SAME_UUID: u32 = 2;
const FLAG_LAST: u32 = 8;

/// Marks the commit block of a transaction without content of files: "META".
const METADATA_ALONE: u32 = 0x4D45_5441;

/// Incompatible features of a journal.
pub(crate) mod incompat {
    pub(crate) const REVOKE: u32 = 0x1;
    pub(crate) const BITS64: u32 = 0x2;
    pub(crate) const ASYNC_COMMIT: u32 = 0x4;
    pub(crate) const CSUM_V2: u32 = 0x8;
    pub(crate) const CSUM_V3: u32 = 0x10;
    pub(crate) const FAST_COMMIT: u32 = 0x20;
    pub(crate) const KNOWN: u32 = 0x3F;
}

/// The number of a transaction. Numbers wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether it is `other` or a later one.
    pub(crate) const fn is_at_least(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }
}

/// The kind of a block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Descriptor,
    Commit,
    Revoke,
}

impl BlockKind {
    const fn code(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::Revoke => 5,
        }
    }
}

/// The format of a journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Whether block numbers have upper halves.
    pub(crate) wide: bool,
    pub(crate) checksums: Checksums,
}

/// The checksums of a journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksums {
    None,
    /// Tags have only the lower half of each checksum.
    V2 {
        seed: u32,
    },
    V3 {
        seed: u32,
    },
}

/// One block that a descriptor announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The block's home.
    pub(crate) home: BlockNo,
    /// Whether its first word was the journal's magic number, and is zero in the log.
    pub(crate) escaped: bool,
    /// Checksum of the block as it is in the log; in version 2 only the lower half.
    pub(crate) checksum: u32,
}

/// The header of `block`, if it has one.
pub(crate) fn header(block: &[u8]) -> Option<(BlockKind, Tid)> {
    let kinds = [BlockKind::Descriptor, BlockKind::Commit, BlockKind::Revoke];
    let kind = kinds.into_iter().find(|kind| kind.code() == be32(block, 4))?;
    (be32(block, 0) == MAGIC).then_some((kind, Tid(be32(block, 8))))
}

fn put_header(block: &mut [u8], kind: BlockKind, tid: Tid) {
    put_be32(block, 0, MAGIC);
    put_be32(block, 4, kind.code());
    put_be32(block, 8, tid.0);
}

/// Whether `block` must be escaped in the log, because it begins like the journal's own blocks.
pub(crate) fn must_escape(block: &[u8]) -> bool {
    be32(block, 0) == MAGIC
}

/// Sets the first word to zero, or back to the magic number.
pub(crate) fn escape(block: &mut [u8], escaped: bool) {
    put_be32(block, 0, if escaped { 0 } else { MAGIC });
}

impl Format {
    const fn seed(self) -> Option<u32> {
        match self.checksums {
            Checksums::None => None,
            Checksums::V2 { seed } | Checksums::V3 { seed } => Some(seed),
        }
    }

    const fn tag_bytes(self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3 { .. }, _) => 16,
            (Checksums::V2 { .. }, true) => 14,
            (Checksums::V2 { .. }, false) => 10,
            (Checksums::None, true) => 12,
            (Checksums::None, false) => 8,
        }
    }

    const fn tail(self) -> usize {
        if self.seed().is_some() { TAIL } else { 0 }
    }

    /// Most tags in a descriptor; the first is followed by a UUID.
    pub(crate) const fn tags(self) -> usize {
        (BLOCK_BYTES - HEADER - UUID - self.tail()) / self.tag_bytes()
    }

    /// Most blocks that a revoke block names.
    pub(crate) const fn revokes(self) -> usize {
        (BLOCK_BYTES - HEADER - 4 - self.tail()) / self.revoke_bytes()
    }

    const fn revoke_bytes(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The checksum of a block of the log, `None` if there is none.
    pub(crate) fn checksum(self, tid: Tid, block: &[u8]) -> Option<u32> {
        let sum = |seed| crc(crc(seed, &tid.0.to_be_bytes()), block);
        match self.checksums {
            Checksums::None => None,
            Checksums::V2 { seed } => Some(sum(seed) & 0xFFFF),
            Checksums::V3 { seed } => Some(sum(seed)),
        }
    }

    fn seal(self, block: &mut [u8]) {
        if let Some(seed) = self.seed() {
            let sum = crc(crc(seed, &block[..BLOCK_BYTES - TAIL]), &[0; TAIL]);
            put_be32(block, BLOCK_BYTES - TAIL, sum);
        }
    }

    /// Whether a descriptor or revoke block is whole.
    pub(crate) fn is_whole(self, block: &[u8]) -> bool {
        let sum = |seed| crc(crc(seed, &block[..BLOCK_BYTES - TAIL]), &[0; TAIL]);
        self.seed().is_none_or(|seed| be32(block, BLOCK_BYTES - TAIL) == sum(seed))
    }

    /// A descriptor of at most [`Format::tags`] blocks.
    pub(crate) fn descriptor(self, tid: Tid, tags: &[Tag]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        put_header(&mut block, BlockKind::Descriptor, tid);
        let mut at = HEADER;
        for (number, tag) in tags.iter().enumerate() {
            let mut flags = if number == 0 { 0 } else { FLAG_SAME_UUID };
            flags |= if tag.escaped { FLAG_ESCAPED } else { 0 };
            flags |= if number + 1 == tags.len() { FLAG_LAST } else { 0 };
            self.put_tag(&mut block[at..], tag, flags);
            at += self.tag_bytes() + if number == 0 { UUID } else { 0 };
        }
        self.seal(&mut block);
        block
    }

    fn put_tag(self, at: &mut [u8], tag: &Tag, flags: u32) {
        put_be32(at, 0, low32(tag.home.0));
        if let Checksums::V3 { .. } = self.checksums {
            put_be32(at, 4, flags);
            put_be32(at, 8, high32(tag.home.0));
            put_be32(at, 12, tag.checksum);
            return;
        }
        put_be16(at, 4, low16(tag.checksum));
        put_be16(at, 6, low16(flags));
        if self.wide {
            put_be32(at, 8, high32(tag.home.0));
        }
    }

    fn get_tag(self, at: &[u8]) -> (Tag, u32) {
        let (high, flags, checksum) = match self.checksums {
            Checksums::V3 { .. } => (be32(at, 8), be32(at, 4), be32(at, 12)),
            _ => {
                let high = if self.wide { be32(at, 8) } else { 0 };
                (high, u32::from(be16(at, 6)), u32::from(be16(at, 4)))
            }
        };
        let home = BlockNo(join32(be32(at, 0), if self.wide { high } else { 0 }));
        (Tag { home, escaped: flags & FLAG_ESCAPED != 0, checksum }, flags)
    }

    /// The tags of a descriptor.
    pub(crate) fn tags_of(self, block: &[u8]) -> Vec<Tag> {
        let mut tags = Vec::new();
        let mut at = HEADER;
        while at + self.tag_bytes() <= BLOCK_BYTES - self.tail() {
            let (tag, flags) = self.get_tag(&block[at..]);
            tags.push(tag);
            at += self.tag_bytes() + if flags & FLAG_SAME_UUID == 0 { UUID } else { 0 };
            if flags & FLAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    /// A block that revokes at most [`Format::revokes`] blocks.
    pub(crate) fn revoke_block(self, tid: Tid, blocks: &[BlockNo]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        put_header(&mut block, BlockKind::Revoke, tid);
        let used = HEADER + 4 + blocks.len() * self.revoke_bytes();
        put_be32(&mut block, HEADER, manylogs_block::narrow(used));
        let places = block[HEADER + 4..used].chunks_exact_mut(self.revoke_bytes());
        for (revoked, at) in blocks.iter().zip(places) {
            if self.wide {
                put_be64(at, 0, revoked.0);
            } else {
                put_be32(at, 0, low32(revoked.0));
            }
        }
        self.seal(&mut block);
        block
    }

    /// The blocks that a revoke block names; `None` if it says something impossible.
    pub(crate) fn revoked(self, block: &[u8]) -> Option<Vec<BlockNo>> {
        let used = be32(block, HEADER) as usize;
        if !(HEADER + 4..=BLOCK_BYTES - self.tail()).contains(&used) {
            return None;
        }
        let entries = block[HEADER + 4..used].chunks_exact(self.revoke_bytes());
        let number = |at: &[u8]| if self.wide { be64(at, 0) } else { be32(at, 0).into() };
        Some(entries.map(|at| BlockNo(number(at))).collect())
    }

    /// The block that ends a transaction. It says whether the transaction has only `metadata`, in a
    /// field that other programs leave zero and do not read.
    pub(crate) fn commit_block(self, tid: Tid, now: Timestamp, metadata: bool) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        put_header(&mut block, BlockKind::Commit, tid);
        put_be64(&mut block, 0x30, now.seconds.cast_unsigned());
        put_be32(&mut block, 0x38, now.nanos);
        put_be32(&mut block, 0x3C, if metadata { METADATA_ALONE } else { 0 });
        if let Some(seed) = self.seed() {
            let sum = crc(seed, &block);
            put_be32(&mut block, 0x10, sum);
        }
        block
    }

    /// Whether a commit block says that its transaction holds no content of files.
    pub(crate) fn is_metadata_alone(block: &[u8]) -> bool {
        be32(block, 0x3C) == METADATA_ALONE
    }

    /// When the transaction of a commit block was closed.
    pub(crate) fn closed_at(block: &[u8]) -> Timestamp {
        Timestamp { seconds: be64(block, 0x30).cast_signed(), nanos: be32(block, 0x38) }
    }

    /// Whether blocks of the log have checksums.
    pub(crate) const fn has_checksums(self) -> bool {
        self.seed().is_some()
    }

    /// Whether a commit block is whole.
    pub(crate) fn is_whole_commit(self, block: &[u8]) -> bool {
        let sum = |seed| crc(crc(crc(seed, &block[..0x10]), &[0; 4]), &block[0x14..]);
        self.seed().is_none_or(|seed| be32(block, 0x10) == sum(seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Format; 5] = [
        Format { wide: false, checksums: Checksums::None },
        Format { wide: true, checksums: Checksums::None },
        Format { wide: false, checksums: Checksums::V2 { seed: 1 } },
        Format { wide: true, checksums: Checksums::V2 { seed: 2 } },
        Format { wide: true, checksums: Checksums::V3 { seed: 3 } },
    ];

    #[test]
    fn full_descriptors_and_revokes_survive_encoding_in_every_format() {
        for format in FORMATS {
            let high = if format.wide { 5 << 32 } else { 0 };
            let checksum = match format.checksums {
                Checksums::V3 { .. } => 0xfeed_beef,
                _ => 0xbeef,
            };
            let tag =
                |n: u64| Tag { home: BlockNo(n | high), escaped: n.is_multiple_of(3), checksum };
            let tags: Vec<Tag> = (1..=format.tags() as u64).map(tag).collect();
            let block = format.descriptor(Tid(9), &tags);
            assert_eq!(header(&block), Some((BlockKind::Descriptor, Tid(9))));
            assert_eq!(format.tags_of(&block), tags, "{format:?}");
            assert_eq!(format.tags_of(&format.descriptor(Tid(9), &tags[..3])), tags[..3]);
            let revokes: Vec<_> =
                (1..=format.revokes() as u64).map(|n| BlockNo(n | high)).collect();
            let block = format.revoke_block(Tid(9), &revokes);
            assert_eq!(format.revoked(&block), Some(revokes));
            assert!(format.is_whole(&block));
            for metadata in [false, true] {
                let now = Timestamp { seconds: -1, nanos: 7 };
                let commit = format.commit_block(Tid(u32::MAX), now, metadata);
                assert!(format.is_whole_commit(&commit));
                assert_eq!(Format::closed_at(&commit), now);
                assert_eq!(Format::is_metadata_alone(&commit), metadata);
            }
        }
    }

    #[test]
    fn numbers_of_transactions_wrap_around() {
        assert!(Tid(3).is_at_least(Tid(u32::MAX)) && !Tid(u32::MAX).is_at_least(Tid(3)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }
}
