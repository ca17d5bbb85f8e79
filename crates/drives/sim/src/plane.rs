//! The content of a disk, cheap to copy at every event: clones share unchanged chunks.

use std::rc::Rc;

use manylogs_block::{Extent, Payload, Sector, Sectors, to_usize};

const CHUNK: u64 = 32;

/// A sector with the hash of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    sector: Sector,
    /// Zero for a sector of zeroes.
    hash: u64,
}

type Chunk = [Stored; to_usize(CHUNK)];

/// Sectors by address, zeroes where no sector was written, and a hash of all of them.
#[derive(Clone, Debug, Default)]
pub struct Plane {
    chunks: Vec<Option<Rc<Chunk>>>,
    /// Sum of the hashes of all sectors with their addresses, updated with each write.
    hash: u64,
}

impl Stored {
    /// The sector.
    #[must_use]
    pub const fn sector(&self) -> &Sector {
        &self.sector
    }

    pub(crate) const fn hash_at(&self, lba: u64) -> u64 {
        if self.hash == 0 { 0 } else { mix(self.hash ^ mix(lba)) }
    }
}

impl From<Sector> for Stored {
    fn from(sector: Sector) -> Self {
        let hash = match &sector {
            Sector::Zero => 0,
            Sector::Tag(tag) => mix(*tag) | 1,
            Sector::Bytes(bytes) => hash_of_bytes(bytes) | 1,
        };
        Self { sector, hash }
    }
}

/// The last step of `SplitMix64`: every bit of the input changes half of the output's.
pub(crate) const fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) fn hash_of_bytes(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let step = |hash: u64, word: &[u8; 8]| {
        (hash.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    mix(words.iter().fold(0x5eed, step))
}

impl Plane {
    /// The content of one sector.
    #[must_use]
    pub fn get(&self, lba: u64) -> Sector {
        self.stored(lba).map_or(Sector::Zero, |stored| stored.sector.clone())
    }

    pub(crate) fn stored(&self, lba: u64) -> Option<&Stored> {
        let chunk = self.chunks.get(to_usize(lba / CHUNK))?.as_ref()?;
        Some(&chunk[to_usize(lba % CHUNK)])
    }

    /// Stores one sector.
    pub fn set(&mut self, lba: u64, new: Stored) {
        let index = to_usize(lba / CHUNK);
        if self.chunks.len() <= index {
            self.chunks.resize(index + 1, None);
        }
        let chunk = self.chunks[index].get_or_insert_default();
        let old = &mut Rc::make_mut(chunk)[to_usize(lba % CHUNK)];
        self.hash = self.hash.wrapping_sub(old.hash_at(lba)).wrapping_add(new.hash_at(lba));
        *old = new;
    }

    /// The extent's content.
    #[must_use]
    pub fn read(&self, extent: Extent) -> Payload {
        read_with(extent, |lba| self.stored(lba))
    }

    /// A hash: equal contents have equal hashes, and other contents different ones, except by rare
    /// chance.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for Plane {
    fn eq(&self, other: &Self) -> bool {
        let len = self.chunks.len().max(other.chunks.len()) as u64 * CHUNK;
        self.hash == other.hash && (0..len).all(|lba| self.get(lba) == other.get(lba))
    }
}

impl Eq for Plane {}

/// The extent's content. `at` gives each sector; a sector without content is zeroes.
pub(crate) fn read_with<'a>(extent: Extent, at: impl Fn(u64) -> Option<&'a Stored>) -> Payload {
    let mut out = Payload::default();
    let mut bytes = Vec::new();
    for lba in extent.range() {
        let sector = at(lba).map_or(&Sector::Zero, Stored::sector);
        if let Sector::Bytes(content) = sector {
            // Neighbours are joined into one piece, because a header of many sectors is read as
            // one.
            bytes.extend_from_slice(content);
            continue;
        }
        flush(&mut out, &mut bytes);
        out.append(match sector {
            Sector::Tag(tag) => Payload::tags(*tag, Sectors(1)),
            Sector::Zero | Sector::Bytes(_) => Payload::zeroes(Sectors(1)),
        });
    }
    flush(&mut out, &mut bytes);
    out
}

fn flush(out: &mut Payload, bytes: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.append(Payload::bytes(std::mem::take(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_the_content_alone() {
        let (mut one, mut other) = (Plane::default(), Plane::default());
        one.set(5, Sector::Tag(1).into());
        one.set(900, Sector::Tag(2).into());
        other.set(900, Sector::Tag(3).into());
        assert_ne!(one.hash(), other.hash());
        other.set(5, Sector::Tag(1).into());
        other.set(900, Sector::Tag(2).into());
        assert_eq!(one.hash(), other.hash());
        assert_eq!(one, other);
        other.set(5, Sector::Tag(2).into());
        other.set(900, Sector::Tag(1).into());
        assert_ne!(one.hash(), other.hash(), "the same contents in other places");
        one.set(5, Sector::Zero.into());
        one.set(900, Sector::Zero.into());
        assert_eq!(one, Plane::default());
    }

    #[test]
    fn clones_do_not_see_later_writes() {
        let mut plane = Plane::default();
        plane.set(3, Sector::Tag(1).into());
        let before = plane.clone();
        plane.set(4, Sector::Tag(2).into());
        assert_eq!(before.get(4), Sector::Zero);
        let read = plane.read(Extent::new(2, 4));
        let content: Vec<Sector> = read.sectors().flatten().collect();
        assert_eq!(content, [Sector::Zero, Sector::Tag(1), Sector::Tag(2), Sector::Zero]);
    }
}
