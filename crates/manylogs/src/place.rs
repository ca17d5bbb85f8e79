//! Where versions are, and which ones a new version displaces.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::{LogId, LogOffset, MapValue, Mapped};
use smallvec::SmallVec;

use crate::slots::SlotId;

/// Where the newest version of a block is when it is not at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a log.
    Log { log: LogId, offset: LogOffset },
    /// In memory, on its way into a record.
    Buffered { slot: SlotId, skip: u32 },
    /// Nowhere: it is zeroes, says a record in this log.
    Zeroes { log: LogId },
    /// Nowhere: its logged copy was found damaged, says a record in this log. Reads fail.
    Lost { log: LogId },
}

impl Place {
    /// The log whose record says so; none for what is only in memory.
    pub(crate) const fn log(self) -> Option<LogId> {
        match self {
            Self::Log { log, .. } | Self::Zeroes { log } | Self::Lost { log } => Some(log),
            Self::Buffered { .. } => None,
        }
    }
}

impl MapValue for Place {
    fn advance(self, by: Sectors) -> Self {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match self {
            Self::Log { log, offset } => {
                Self::Log { log, offset: LogOffset(offset.0 + narrow(by.0)) }
            }
            // A buffered extent of zeroes may exceed 32 bits; its skip is never used.
            Self::Buffered { slot, skip } => {
                Self::Buffered { slot, skip: skip.saturating_add(narrow(by.0)) }
            }
            Self::Zeroes { .. } | Self::Lost { .. } => self,
        }
    }
}

/// A version that a new one displaced: what must not be forgotten before the new one is durable.
#[derive(Debug, Default)]
pub(crate) struct Displaced {
    pub(crate) logged: SmallVec<[(LogId, u64); 2]>,
    pub(crate) buffered: SmallVec<[(SlotId, u64); 2]>,
}

impl Displaced {
    pub(crate) fn add(&mut self, part: Extent, old: Mapped<Place>) {
        match old.value {
            Place::Log { log, .. } | Place::Zeroes { log } | Place::Lost { log } => {
                match self.logged.last_mut() {
                    Some((last, sectors)) if *last == log => *sectors += part.len.0,
                    _ => self.logged.push((log, part.len.0)),
                }
            }
            Place::Buffered { slot, .. } => self.buffered.push((slot, part.len.0)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.logged.is_empty() && self.buffered.is_empty()
    }
}
