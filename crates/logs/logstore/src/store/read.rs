//! Reading from a log: whole units, verified; the log is not reset meanwhile.

use manylogs_block::{Extent, IoError, IoResult, Payload, Sectors, narrow};

use super::{Device, Place, Store};
use crate::{EntryKind, Log, LogId, LogOffset, MapValue};
use manylogs_plant::{self as plant, Bug};

/// A read of a log that is under way.
#[derive(Clone, Copy, Debug)]
pub struct LogRead {
    /// The log; it is not reset before [`Store::end_read`].
    pub log: LogId,
    /// The part of the log that is read: whole units, because each unit has one checksum.
    pub within: Extent,
    /// Offset of the wanted part within it.
    pub skip: Sectors,
    /// The device to read from.
    pub device: Device,
    /// Extent to read.
    pub extent: Extent,
}

/// Source of the content of a mapped extent.
#[derive(Debug)]
pub enum Source {
    /// The content is in memory or consists of zeroes.
    Here(Payload),
    /// Nowhere: the logged copy was found damaged, and reads fail.
    Lost,
    /// A log: the caller reads the device, and gives the result to [`Store::end_read`].
    Log(LogRead),
}

impl Store {
    /// The parts of `extent`, each in one place: what follows each other in one log is one part.
    /// `None` stands for what the map does not have.
    #[must_use]
    pub fn parts(&self, extent: Extent) -> Vec<(Extent, Option<Place>)> {
        let mut parts: Vec<(Extent, Option<Place>)> = Vec::new();
        for (part, mapped) in self.map.lookup(extent) {
            let place = mapped.map(|mapped| mapped.value);
            let follows = |(before, first): &(Extent, Option<Place>)| {
                matches!(first, Some(Place::Log { .. }))
                    && first.map(|first| first.advance(before.len)) == place
            };
            match parts.last_mut() {
                Some(last) if follows(last) => last.0.len += part.len,
                _ => parts.push((part, place)),
            }
        }
        parts
    }

    /// Begins to read `part`, which the map has at `place`.
    pub fn begin(&mut self, part: Extent, place: Place) -> Source {
        match place {
            Place::Zeroes { .. } => Source::Here(Payload::zeroes(part.len)),
            Place::Lost { .. } => Source::Lost,
            Place::Buffered { slot, skip } => {
                let slot = self.entries.slots.get(slot);
                match &slot.payload {
                    Some(content) => {
                        let skip = if plant::is(Bug::BufferedReadFromStart) { 0 } else { skip };
                        Source::Here(content.slice(Sectors(skip.into()), part.len))
                    }
                    None if slot.entry.kind == EntryKind::Lost => Source::Lost,
                    None => Source::Here(Payload::zeroes(part.len)),
                }
            }
            Place::Log { log, offset, .. } => {
                let wanted = Extent::new(offset.0.into(), part.len.0);
                Source::Log(self.begin_read(log, wanted))
            }
        }
    }

    /// Begins to read `wanted`, an extent within the log.
    pub fn begin_read(&mut self, log: LogId, wanted: Extent) -> LogRead {
        if !plant::is(Bug::ResetUnderRead) {
            self.logs.adjust(log, Log::pin);
        }
        let offset = LogOffset(narrow(wanted.start.0));
        let units = self.logs.get(log).map(Log::units);
        let within = units.map_or(wanted, |units| units.widen(offset, wanted.len));
        let start = self.logs.region(log).start + Sectors(within.start.0);
        LogRead {
            log,
            within,
            skip: Sectors(wanted.start.0 - within.start.0),
            device: self.logs.device(log),
            extent: Extent { start, len: within.len },
        }
    }

    /// Ends a read for which the device answered `found`. If the content differs from what was
    /// appended, the error names `home`, the extent as clients know it.
    ///
    /// # Errors
    /// The device's error, or [`IoError::Checksum`].
    pub fn end_read(&mut self, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
        let result = self.check_read(read, found, home);
        self.unpin_read(read);
        result
    }

    /// Checks what the device answered for a read that goes on: the log is not reset yet. Arguments
    /// and errors are those of [`Store::end_read`].
    ///
    /// # Errors
    /// The device's error, or [`IoError::Checksum`].
    pub fn check_read(&self, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
        let units = self.logs.get(read.log).map(Log::units);
        let whole = |found: &Payload| units.is_some_and(|units| units.verify(read.within, found));
        match found {
            Ok(found) if whole(&found) || plant::is(Bug::LogReadNotVerified) => Ok(found),
            Ok(_) => Err(IoError::Checksum { extent: home }),
            Err(error) => Err(error),
        }
    }

    /// The parts of what is read, on the device, that are held against checksums. What lies between
    /// them, such as headers, is not.
    #[must_use]
    pub fn checked_parts(&self, read: &LogRead) -> Vec<Extent> {
        if plant::is(Bug::UncheckedPartsMended) {
            return vec![read.extent];
        }
        let parts = self.logs.get(read.log).map(|log| log.units().parts_of(read.within));
        let on_device = |part: Extent| {
            let skip = Sectors(part.start.0 - read.within.start.0);
            Extent { start: read.extent.start + skip, len: part.len }
        };
        parts.unwrap_or_default().into_iter().map(on_device).collect()
    }

    /// Ends a read that was checked: the log may be reset.
    pub fn unpin_read(&mut self, read: &LogRead) {
        if !plant::is(Bug::ResetUnderRead) {
            self.logs.adjust(read.log, Log::unpin);
        }
        self.reset_candidates.push(read.log);
        self.reset_what_can_be();
    }
}
