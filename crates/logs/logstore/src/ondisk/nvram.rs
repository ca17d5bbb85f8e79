//! The bytes of a table in non-volatile RAM: two selectors, two halves. See `docs/format.md`.

use std::ops::Range;

use crate::{DataSequence, VolumeId};
use manylogs_block::{Nvram, narrow, to_usize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::NvramError;

const MAGIC: [u8; 8] = *b"MLOGNVRM";
const VERSION: u32 = 2;
/// Where the two copies of the selector are.
const SELECTORS: [usize; 2] = [0, 2048];
/// Where the halves begin; each is a multiple of the alignment.
const HALVES: usize = 4096;
const HALF_ALIGN: usize = 64;
/// Places within a half are numbers of 32 bits.
const HALF_MAX: usize = u32::MAX as usize / HALF_ALIGN * HALF_ALIGN;
/// Entries begin at multiples of a word, which a power cut takes or leaves as a whole.
const WORD: usize = 8;
/// Bytes of an entry in front of its content.
pub(crate) const ENTRY_HEAD: usize = 24;
const ENTRY_CHECKED_FROM: usize = 8;
const KIND_RECORD: u32 = 1;
const KIND_FLOOR: u32 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSelector {
    magic: [u8; 8],
    checksum: U32,
    version: U32,
    volume: VolumeId,
    generation: U64,
    first_generation: U64,
    size: U64,
    snapshot_bytes: U64,
    floor: U64,
    snapshot_checksum: U32,
    half: U32,
    incarnation: U32,
    reserved: [u8; 44],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    len: U32,
    checksum: U32,
    generation: U64,
    durable: U32,
    kind: U32,
}

const _: () = assert!(size_of::<RawSelector>() == 128);
const _: () = assert!(size_of::<RawEntry>() == ENTRY_HEAD);

/// Says which half counts, and describes its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) volume: VolumeId,
    /// Grows with every change. Entries of other generations do not count.
    pub(crate) generation: u64,
    /// The first generation of this incarnation.
    pub(crate) first_generation: u64,
    /// Bytes in use: the size of the memory at format.
    pub(crate) size: usize,
    pub(crate) half: usize,
    pub(crate) snapshot_bytes: usize,
    pub(crate) snapshot_checksum: u32,
    pub(crate) floor: DataSequence,
    pub(crate) incarnation: u32,
}

/// Meaning of an entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The header of a record whose payload is durable.
    Record(Vec<u8>),
    /// Entries with smaller data sequences are dead.
    Floor(DataSequence),
}

/// Bytes of each half of a memory of `size` bytes.
pub(crate) const fn half_len(size: usize) -> usize {
    let len = size.saturating_sub(HALVES) / 2 / HALF_ALIGN * HALF_ALIGN;
    if len > HALF_MAX { HALF_MAX } else { len }
}

/// Size of a memory whose halves have `half` bytes.
pub(crate) const fn size_for(half: usize) -> usize {
    HALVES + 2 * half.next_multiple_of(HALF_ALIGN)
}

/// Bytes that an entry with `len` bytes of content takes.
pub(crate) const fn entry_len(len: usize) -> usize {
    (ENTRY_HEAD + len).next_multiple_of(WORD)
}

/// Address of a selector.
pub(crate) const fn selector_at(slot: usize) -> Range<usize> {
    SELECTORS[slot]..SELECTORS[slot] + size_of::<RawSelector>()
}

impl Selector {
    /// Start of the half that counts.
    pub(crate) const fn start(&self) -> usize {
        self.start_of(self.half)
    }

    /// Start of a half.
    pub(crate) const fn start_of(&self, half: usize) -> usize {
        HALVES + half * self.half_len()
    }

    pub(crate) const fn half_len(&self) -> usize {
        half_len(self.size)
    }

    /// Where the journal begins in the half.
    pub(crate) const fn journal(&self) -> usize {
        self.snapshot_bytes.next_multiple_of(WORD)
    }

    pub(crate) fn encode(&self) -> [u8; 128] {
        let field = |n: usize| U32::new(narrow(n));
        let mut raw = RawSelector {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(VERSION),
            volume: self.volume,
            generation: U64::new(self.generation),
            first_generation: U64::new(self.first_generation),
            size: U64::new(self.size as u64),
            snapshot_bytes: U64::new(self.snapshot_bytes as u64),
            floor: U64::new(self.floor.0),
            snapshot_checksum: U32::new(self.snapshot_checksum),
            half: field(self.half),
            incarnation: U32::new(self.incarnation),
            reserved: [0; 44],
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = [0; 128];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8], size: usize) -> Result<Self, NvramError> {
        let (mut raw, _) = RawSelector::read_from_prefix(bytes).map_err(|_| NvramError::Blank)?;
        if raw.magic != MAGIC {
            return Err(NvramError::Blank);
        }
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        if crc32c::crc32c(raw.as_bytes()) != checksum {
            return Err(NvramError::Damaged("both selectors are torn"));
        }
        if raw.version.get() != VERSION {
            return Err(NvramError::Version { found: raw.version.get(), known: VERSION });
        }
        let selector = Self {
            volume: raw.volume,
            generation: raw.generation.get(),
            first_generation: raw.first_generation.get(),
            size: to_usize(raw.size.get()),
            half: raw.half.get() as usize,
            snapshot_bytes: to_usize(raw.snapshot_bytes.get()),
            snapshot_checksum: raw.snapshot_checksum.get(),
            floor: DataSequence(raw.floor.get()),
            incarnation: raw.incarnation.get(),
        };
        if selector.size > size {
            return Err(NvramError::TooSmall { have: size, need: selector.size });
        }
        if selector.half > 1 || selector.journal() > selector.half_len() {
            return Err(NvramError::Damaged("a selector is impossible"));
        }
        Ok(selector)
    }
}

/// The selector that counts, and its slot.
pub(crate) fn read_selector(
    nvram: &dyn Nvram,
    volume: VolumeId,
) -> Result<(Selector, usize), NvramError> {
    let size = nvram.size();
    if size < HALVES {
        return Err(NvramError::Blank);
    }
    let mut newest: Result<(Selector, usize), NvramError> = Err(NvramError::Blank);
    for (slot, at) in SELECTORS.into_iter().enumerate() {
        let mut bytes = [0; 128];
        nvram.read(at, &mut bytes);
        let found = Selector::decode(&bytes, size).and_then(|selector| {
            let same = selector.volume == volume;
            if same { Ok(selector) } else { Err(NvramError::Foreign) }
        });
        newest = match (found, newest) {
            (Ok(found), Ok((best, at))) if best.generation >= found.generation => Ok((best, at)),
            (Ok(found), _) => Ok((found, slot)),
            (Err(_), Ok(best)) => Ok(best),
            (Err(NvramError::Blank), Err(error)) => Err(error),
            (Err(error), Err(_)) => Err(error),
        };
    }
    newest
}

/// The bytes of an entry, ready to be stored. Everything up to the place `durable` in the half was
/// persisted before.
pub(crate) fn encode_entry(selector: &Selector, durable: usize, entry: &Entry) -> Vec<u8> {
    let floor_bytes;
    let (kind, content): (u32, &[u8]) = match entry {
        Entry::Record(bytes) => (KIND_RECORD, bytes),
        Entry::Floor(floor) => {
            floor_bytes = floor.0.to_le_bytes();
            (KIND_FLOOR, &floor_bytes)
        }
    };
    let mut raw = RawEntry {
        len: U32::new(narrow(content.len())),
        checksum: U32::ZERO,
        generation: U64::new(selector.generation),
        durable: U32::new(narrow(durable)),
        kind: U32::new(kind),
    };
    raw.checksum = U32::new(entry_checksum(&selector.volume, raw.as_bytes(), content));
    let mut bytes = raw.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(entry_len(content.len()), 0);
    bytes
}

/// Checksum of the volume, of the head without the checksum, and of the content.
fn entry_checksum(volume: &VolumeId, head: &[u8], content: &[u8]) -> u32 {
    let len = crc32c::crc32c_append(crc32c::crc32c(volume), &head[..4]);
    let head = crc32c::crc32c_append(len, &head[ENTRY_CHECKED_FROM..]);
    crc32c::crc32c_append(head, content)
}

/// The entry at the start of `rest`, the place up to which it says all was persisted, and its
/// length. `None` if there is no whole entry of this generation.
fn decode_entry(selector: &Selector, rest: &[u8]) -> Option<(Entry, usize, usize)> {
    let (raw, behind) = RawEntry::read_from_prefix(rest).ok()?;
    if raw.generation.get() != selector.generation {
        return None;
    }
    let content = behind.get(..raw.len.get() as usize)?;
    if entry_checksum(&selector.volume, raw.as_bytes(), content) != raw.checksum.get() {
        return None;
    }
    let entry = match raw.kind.get() {
        KIND_RECORD => Entry::Record(content.to_vec()),
        KIND_FLOOR => Entry::Floor(DataSequence(u64::from_le_bytes(content.try_into().ok()?))),
        _ => return None,
    };
    Some((entry, raw.durable.get() as usize, entry_len(content.len())))
}

/// The journal of a half. It begins where the snapshot ends.
pub(crate) struct Journal<'a> {
    selector: &'a Selector,
    half: &'a [u8],
    /// Where the next entry is, or would be.
    pub(crate) at: usize,
}

impl<'a> Journal<'a> {
    pub(crate) const fn new(selector: &'a Selector, half: &'a [u8]) -> Self {
        Self { selector, half, at: selector.journal() }
    }

    /// The next entry; `None` at the end. A torn entry is the end.
    ///
    /// # Errors
    /// If a later entry says that this one was persisted: then it is damaged, not torn.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, NvramError> {
        if let Some((entry, _, len)) = decode_entry(self.selector, &self.half[self.at..]) {
            self.at += len;
            return Ok(Some(entry));
        }
        let behind = (self.at + WORD..self.half.len()).step_by(WORD);
        let later = behind.filter_map(|at| decode_entry(self.selector, &self.half[at..]));
        match later.map(|(_, durable, _)| durable).find(|durable| *durable > self.at) {
            Some(_) => Err(NvramError::Damaged("an entry of the journal is damaged")),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_block::MemoryNvram;

    fn selector() -> Selector {
        Selector {
            volume: [7; 16],
            generation: 5,
            first_generation: 4,
            size: 12_288,
            half: 1,
            snapshot_bytes: 13,
            snapshot_checksum: 99,
            floor: DataSequence(77),
            incarnation: 3,
        }
    }

    #[test]
    fn the_newer_whole_selector_of_the_volume_counts() {
        let nvram = MemoryNvram::new(12_288);
        assert_eq!(read_selector(&nvram, [7; 16]), Err(NvramError::Blank));
        let old = Selector { generation: 4, ..selector() };
        nvram.store(selector_at(0).start, &selector().encode());
        nvram.store(selector_at(1).start, &old.encode());
        assert_eq!(read_selector(&nvram, [7; 16]), Ok((selector(), 0)));
        assert_eq!(read_selector(&nvram, [8; 16]), Err(NvramError::Foreign));
        nvram.store(selector_at(0).start + 40, &[1]);
        assert_eq!(read_selector(&nvram, [7; 16]), Ok((old, 1)));
        nvram.store(selector_at(1).start + 40, &[1]);
        assert!(matches!(read_selector(&nvram, [7; 16]), Err(NvramError::Damaged(_))));
    }

    #[test]
    fn no_bit_flip_in_a_selector_passes() {
        let bytes = selector().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Selector::decode(&bad, 12_288).is_err(), "bit {bit}");
        }
    }

    /// Three entries; the first was persisted before the third was stored.
    fn journal() -> (Vec<u8>, [usize; 4]) {
        let selector = selector();
        let mut half = vec![0; selector.half_len()];
        let entries = [Entry::Record(vec![1; 21]), Entry::Floor(DataSequence(9))];
        let mut starts = [selector.journal(); 4];
        for (i, entry) in entries.iter().chain([&entries[0]]).enumerate() {
            let durable = if i == 2 { starts[1] } else { starts[0] };
            let bytes = encode_entry(&selector, durable, entry);
            half[starts[i]..starts[i] + bytes.len()].copy_from_slice(&bytes);
            starts[i + 1] = starts[i] + bytes.len();
        }
        (half, starts)
    }

    fn count(half: &[u8]) -> Result<usize, NvramError> {
        let selector = selector();
        let mut journal = Journal::new(&selector, half);
        let mut count = 0;
        while journal.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn a_torn_entry_ends_the_journal_and_a_damaged_one_is_told() {
        let (half, starts) = journal();
        assert_eq!(count(&half), Ok(3));
        for (entry, expected) in [(0, None), (1, Some(1)), (2, Some(2))] {
            for at in starts[entry]..starts[entry + 1] {
                let mut bad = half.clone();
                bad[at] ^= 0x10;
                // The padding behind the content has no checksum.
                let found = count(&bad);
                let padding = found == Ok(3) && at >= starts[entry] + ENTRY_HEAD + 8;
                assert!(padding || found.ok() == expected, "entry {entry}, byte {at}");
            }
        }
    }
}
