//! Places of versions, and the versions that a new one displaces.

use crate::{Class, Headers, LogId, LogOffset, MapValue, Mapped, RecordShape};
use manylogs_block::{Extent, Sectors};
use smallvec::SmallVec;

use super::slots::SlotId;

/// Place of the newest version of a block that is not at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a log.
    Log {
        /// The log.
        log: LogId,
        /// Offset within the log.
        offset: LogOffset,
        /// Class of the version.
        class: Class,
    },
    /// In memory, on its way into a record.
    Buffered {
        /// The entry on its way.
        slot: SlotId,
        /// Sectors between the start of the entry's extent and this part.
        skip: u32,
    },
    /// The block is zeroes, as a record in this log says.
    Zeroes {
        /// The log of the record that says so.
        log: LogId,
    },
    /// The block is lost, as a record in this log says: its logged copy was found damaged. Reads
    /// fail.
    Lost {
        /// The log of the record that says so.
        log: LogId,
    },
}

impl Place {
    /// The log whose record holds or describes the version; none if it is only in memory.
    pub const fn log(self) -> Option<LogId> {
        match self {
            Self::Log { log, .. } | Self::Zeroes { log } | Self::Lost { log } => Some(log),
            Self::Buffered { .. } => None,
        }
    }

    /// Whether the version is kept in its log.
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::Log { class, .. } if class.is_kept())
    }

    /// Whether the version is metadata that leads to kept content.
    pub const fn is_leading(self) -> bool {
        matches!(self, Self::Log { class: Class::Leading, .. })
    }

    /// Whether the version is metadata that stays in its log, whatever it leads to.
    pub const fn is_kept_metadata(self) -> bool {
        matches!(self, Self::Log { class: Class::KeptMetadata, .. })
    }

    /// Whether the version is metadata of a file system, in a log.
    pub const fn is_metadata(self) -> bool {
        let Self::Log { class, .. } = self else { return false };
        matches!(class, Class::Metadata | Class::Leading | Class::KeptMetadata)
    }

    /// Whether the version is content that stays in its log.
    pub const fn is_kept_content(self) -> bool {
        matches!(self, Self::Log { class: Class::DurabilityOnly, .. })
    }

    /// The log that must not begin a new epoch while this version counts. If the headers of records
    /// are kept apart, a version without payload does not need its log.
    pub const fn kept_by(self, shape: RecordShape) -> Option<LogId> {
        match (self, shape.headers) {
            (Self::Zeroes { .. } | Self::Lost { .. }, Headers::Apart) => None,
            _ => self.log(),
        }
    }
}

const KIND_BITS: u32 = 3;
/// The lowest bit of a word that tells of the log.
const LOG_AT: u32 = KIND_BITS + LogOffset::BITS;
const LOG: u64 = 0;
const BUFFERED: u64 = 1;
/// Zeroes, or lost: the lowest bit of the rest says which.
const NO_PAYLOAD: u64 = 2;
const LOG_KEPT_METADATA: u64 = 3;
const LOG_METADATA: u64 = 5;
const LOG_DURABILITY_ONLY: u64 = 6;
const LOG_LEADING: u64 = 7;
/// A buffered extent of data is shorter than this. The skip of buffered zeroes is not used.
const SKIP_MAX: u32 = (1 << (u32::BITS - KIND_BITS)) - 1;

impl MapValue for Place {
    fn advance(self, by: Sectors) -> Self {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match self {
            Self::Log { log, offset, class } => {
                Self::Log { log, offset: LogOffset(offset.0 + narrow(by.0)), class }
            }
            // A buffered extent of zeroes may exceed 32 bits; its skip is never used.
            Self::Buffered { slot, skip } => {
                Self::Buffered { slot, skip: skip.saturating_add(narrow(by.0)) }
            }
            Self::Zeroes { .. } | Self::Lost { .. } => self,
        }
    }

    /// The log apart from the rest, since most logs are shorter than an offset may be: what no
    /// place has between them takes no room.
    fn pack(self) -> [u64; 2] {
        let word = self.to_word();
        [word & ((1 << LOG_AT) - 1), word >> LOG_AT]
    }

    fn unpack([rest, log]: [u64; 2]) -> Self {
        // The map unpacks only words that this type packed.
        Self::from_word(log << LOG_AT | rest).unwrap_or(Self::Zeroes { log: LogId(0) })
    }
}

impl Place {
    /// One word with the kind in the low bits and the most variable part next to it. Most words are
    /// short then, and the map drops leading zeroes.
    pub fn to_word(self) -> u64 {
        let (kind, rest) = match self {
            Self::Log { log, offset, class } => {
                debug_assert!(offset.0 >> LogOffset::BITS == 0, "a log is not that long");
                let kind = match class {
                    Class::Data => LOG,
                    Class::Metadata => LOG_METADATA,
                    Class::DurabilityOnly => LOG_DURABILITY_ONLY,
                    Class::Leading => LOG_LEADING,
                    Class::KeptMetadata => LOG_KEPT_METADATA,
                };
                (kind, u64::from(log.0) << LogOffset::BITS | u64::from(offset.0))
            }
            Self::Buffered { slot, skip } => {
                (BUFFERED, u64::from(skip.min(SKIP_MAX)) << u32::BITS | u64::from(slot.0))
            }
            Self::Zeroes { log } => (NO_PAYLOAD, u64::from(log.0) << 1),
            Self::Lost { log } => (NO_PAYLOAD, u64::from(log.0) << 1 | 1),
        };
        rest << KIND_BITS | kind
    }

    /// The place that a word stands for; `None` for [`Place::NOWHERE`].
    pub fn from_word(word: u64) -> Option<Self> {
        let rest = word >> KIND_BITS;
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let low = |bits: u32| narrow(rest & ((1 << bits) - 1));
        let in_log = |class| Self::Log {
            log: LogId(narrow(rest >> LogOffset::BITS)),
            offset: LogOffset(low(LogOffset::BITS)),
            class,
        };
        match word & ((1 << KIND_BITS) - 1) {
            LOG => Some(in_log(Class::Data)),
            LOG_METADATA => Some(in_log(Class::Metadata)),
            LOG_DURABILITY_ONLY => Some(in_log(Class::DurabilityOnly)),
            LOG_LEADING => Some(in_log(Class::Leading)),
            LOG_KEPT_METADATA => Some(in_log(Class::KeptMetadata)),
            BUFFERED => Some(Self::Buffered {
                slot: SlotId(low(u32::BITS)),
                skip: narrow(rest >> u32::BITS),
            }),
            NO_PAYLOAD if rest & 1 == 0 => Some(Self::Zeroes { log: LogId(narrow(rest >> 1)) }),
            NO_PAYLOAD => Some(Self::Lost { log: LogId(narrow(rest >> 1)) }),
            _ => None,
        }
    }

    /// A word that no place has.
    pub const NOWHERE: u64 = 4;
}

/// The versions that a new one displaced. They must be kept until the new one is durable.
#[derive(Debug)]
pub struct Displaced {
    shape: RecordShape,
    any: bool,
    /// Sectors of displaced kept versions in logs.
    pub kept: u64,
    /// Those of them that were content, and not metadata.
    pub content: u64,
    /// Those of them that were metadata that stays, and not metadata that leads to kept content.
    pub metadata: u64,
    /// Logs with displaced versions, and their sectors there.
    pub logged: SmallVec<[(LogId, u64); 2]>,
    /// Entries not durable yet that held displaced versions, and the sectors.
    pub buffered: SmallVec<[(SlotId, u64); 2]>,
}

impl Displaced {
    /// Nothing displaced yet; the store has records of this shape.
    pub fn of(shape: RecordShape) -> Self {
        Self {
            shape,
            any: false,
            kept: 0,
            content: 0,
            metadata: 0,
            logged: SmallVec::new(),
            buffered: SmallVec::new(),
        }
    }

    /// Notes that `part` of the version `old` was displaced.
    pub fn add(&mut self, part: Extent, old: Mapped<Place>) {
        self.any = true;
        let kept = if old.value.is_kept() { part.len.0 } else { 0 };
        self.kept += kept;
        self.content += if old.value.is_kept_content() { kept } else { 0 };
        self.metadata += if old.value.is_kept_metadata() { kept } else { 0 };
        if let Place::Buffered { slot, .. } = old.value {
            return self.buffered.push((slot, part.len.0));
        }
        let Some(log) = old.value.kept_by(self.shape) else { return };
        match self.logged.last_mut() {
            Some((last, sectors)) if *last == log => *sectors += part.len.0,
            _ => self.logged.push((log, part.len.0)),
        }
    }

    /// Whether nothing was displaced.
    pub const fn is_empty(&self) -> bool {
        !self.any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_from_their_words() {
        let offset_max = (1 << LogOffset::BITS) - 1;
        let places = [
            Place::Log { log: LogId(0), offset: LogOffset(1), class: Class::Metadata },
            Place::Log { log: LogId(7), offset: LogOffset(1), class: Class::DurabilityOnly },
            Place::Log { log: LogId(8), offset: LogOffset(9), class: Class::Leading },
            Place::Log { log: LogId(9), offset: LogOffset(8), class: Class::KeptMetadata },
            Place::Log { log: LogId(u32::MAX), offset: LogOffset(offset_max), class: Class::Data },
            Place::Buffered { slot: SlotId(7), skip: 0 },
            Place::Buffered { slot: SlotId(u32::MAX), skip: SKIP_MAX },
            Place::Zeroes { log: LogId(u32::MAX) },
            Place::Lost { log: LogId(u32::MAX) },
            Place::Lost { log: LogId(4) },
        ];
        for place in places {
            assert_eq!(Place::unpack(place.pack()), place);
        }
        assert_eq!(Place::from_word(Place::NOWHERE), None);
    }
}
