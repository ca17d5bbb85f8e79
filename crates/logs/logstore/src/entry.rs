//! Entries of a record: each concerns one extent.

use manylogs_block::{Extent, Sectors};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::space::is_in_one_space;
use crate::{DataSequence, RecordError};

/// Bytes of one entry in a record header.
pub const ENTRY_BYTES: usize = 32;

/// Bit of the byte that holds the class: see [`Entry::over_kept`].
const OVER_KEPT: u8 = 0x80;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    /// The block address in the low bits, the space above.
    address: U64,
    data_sequence: U64,
    version: U64,
    sectors: [u8; 6],
    kind: u8,
    class: u8,
}

const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);

/// Meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The record's payload holds this version.
    Data,
    /// This version is zeroes; there is no payload.
    Zeroes,
    /// Versions older than this are dead: a newer one went home.
    Supersede,
    /// This version is lost: its logged copy was found damaged. Reads fail until it is overwritten.
    Lost,
}

/// What a version means to its owner. Cleaners may treat the classes differently; the store does
/// not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Content.
    #[default]
    Data,
    /// Metadata of a file system.
    Metadata,
    /// Content that stays in the logs, because it must be durable but needs no place. Checkpoints
    /// neither read nor write it. It has a floor of its own, see [`crate::Floors`].
    DurabilityOnly,
    /// Metadata of a file system that leads to content of the class [`Class::DurabilityOnly`]. It
    /// stays in the logs, too; its home has another form meanwhile, which leads to none of it.
    Leading,
    /// Metadata of a file system that stays in the logs, because it is read from there. It has the
    /// floor of the class [`Class::DurabilityOnly`], and its home is as old as the last checkpoint
    /// that took it home.
    KeptMetadata,
}

impl Class {
    /// All classes, by their number on the disk.
    pub const ALL: [Self; 5] =
        [Self::Data, Self::Metadata, Self::DurabilityOnly, Self::Leading, Self::KeptMetadata];

    /// Whether versions of the class stay in the logs until they are overwritten.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::DurabilityOnly | Self::Leading | Self::KeptMetadata)
    }
}

/// One extent of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address in the store's map, which includes the space: see [`crate::Space`].
    pub extent: Extent,
    /// Sequence of this version: the store numbers versions in order of arrival.
    pub data_sequence: DataSequence,
    /// The owner's own number of this version. The store writes it to the record, but does not
    /// compare it, and keeps it neither in its map nor in snapshots.
    pub version: u64,
    /// Meaning of the entry.
    pub kind: EntryKind,
    /// What the version means to its owner.
    pub class: Class,
    /// Whether the newest version before this one was a kept version. Then kept versions of the
    /// extent that are older than this entry are dead as long as recovery can find them, even if
    /// this entry is below the floor. No kept version has the mark.
    pub over_kept: bool,
}

impl Entry {
    /// An entry of the class [`Class::Data`], whose owner has no number for its version.
    #[must_use]
    pub const fn new(extent: Extent, data_sequence: DataSequence, kind: EntryKind) -> Self {
        Self { extent, data_sequence, version: 0, kind, class: Class::Data, over_kept: false }
    }

    /// Whether the version stays in the logs until it is overwritten.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        matches!(self.kind, EntryKind::Data) && self.class.is_kept()
    }

    /// Whether the version is content that stays in the logs, and not metadata that leads to it.
    #[must_use]
    pub const fn is_kept_content(&self) -> bool {
        matches!((self.kind, self.class), (EntryKind::Data, Class::DurabilityOnly))
    }

    /// Whether the version is metadata that stays in the logs, whatever it leads to.
    #[must_use]
    pub const fn is_kept_metadata(&self) -> bool {
        matches!((self.kind, self.class), (EntryKind::Data, Class::KeptMetadata))
    }

    /// Sectors of payload behind the header.
    #[must_use]
    pub fn payload_sectors(&self) -> Sectors {
        match self.kind {
            EntryKind::Data => self.extent.len,
            EntryKind::Zeroes | EntryKind::Supersede | EntryKind::Lost => Sectors(0),
        }
    }
}

/// The bytes of an entry, as in a header.
pub(crate) fn encode_entry(entry: &Entry) -> [u8; ENTRY_BYTES] {
    let [a, b, c, d, e, f, 0, 0] = entry.extent.len.0.to_le_bytes() else {
        unreachable!("an extent ends within its space")
    };
    let [kind, class] = encode_kind(entry);
    let raw = RawEntry {
        address: U64::new(entry.extent.start.0),
        data_sequence: U64::new(entry.data_sequence.0),
        version: U64::new(entry.version),
        sectors: [a, b, c, d, e, f],
        kind,
        class,
    };
    zerocopy::transmute!(raw)
}

/// The bytes of an entry that say its kind, and its class.
pub(crate) const fn encode_kind(entry: &Entry) -> [u8; 2] {
    let kind = match entry.kind {
        EntryKind::Data => 1,
        EntryKind::Zeroes => 2,
        EntryKind::Supersede => 3,
        EntryKind::Lost => 4,
    };
    let class = match entry.class {
        Class::Data => 0,
        Class::Metadata => 1,
        Class::DurabilityOnly => 2,
        Class::Leading => 3,
        Class::KeptMetadata => 4,
    };
    [kind, class | if entry.over_kept { OVER_KEPT } else { 0 }]
}

/// What the bytes of [`encode_kind`] say: the kind, the class, and [`Entry::over_kept`].
pub(crate) fn decode_kind([kind, class]: [u8; 2]) -> Result<(EntryKind, Class, bool), RecordError> {
    let kind = match kind {
        1 => EntryKind::Data,
        2 => EntryKind::Zeroes,
        3 => EntryKind::Supersede,
        4 => EntryKind::Lost,
        _ => return Err(RecordError::Impossible("entry kind")),
    };
    let found = Class::ALL.get(usize::from(class & !OVER_KEPT));
    let found = *found.ok_or(RecordError::Impossible("entry class"))?;
    let over_kept = class & OVER_KEPT != 0;
    if over_kept && kind == EntryKind::Data && found.is_kept() {
        return Err(RecordError::Impossible("entry class"));
    }
    Ok((kind, found, over_kept))
}

/// The entry in `bytes`.
pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, RecordError> {
    let raw = RawEntry::read_from_bytes(bytes).map_err(|_| RecordError::Impossible("entry"))?;
    let (kind, class, over_kept) = decode_kind([raw.kind, raw.class])?;
    let [a, b, c, d, e, f] = raw.sectors;
    let sectors = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let extent = Extent::new(raw.address.get(), sectors);
    if extent.is_empty() || !is_in_one_space(extent) {
        return Err(RecordError::Impossible("extent"));
    }
    let data_sequence = DataSequence(raw.data_sequence.get());
    Ok(Entry { extent, data_sequence, version: raw.version.get(), kind, class, over_kept })
}
