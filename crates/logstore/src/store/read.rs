//! Reading what a log holds: whole units, verified, from a log that is not reset meanwhile.

use manylogs_block::{Extent, IoError, IoResult, Payload, Sectors, narrow};

use super::{Device, Store};
use crate::{Log, LogId, LogOffset};
use manylogs_plant::{self as plant, Bug};

/// A read of a log that is under way.
#[derive(Clone, Copy, Debug)]
pub struct LogRead {
    /// The log, which is kept from a reset until [`Store::end_read`].
    pub log: LogId,
    /// The part of the log that is read: units are checked as a whole.
    pub within: Extent,
    /// Where in that the wanted part begins.
    pub skip: Sectors,
    /// The device to read from.
    pub device: Device,
    /// What to read there.
    pub extent: Extent,
}

impl Store {
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

    /// Ends a read, with what the device gave for it. What is not what was appended is an error
    /// that names `home`, the extent as clients know it.
    ///
    /// # Errors
    /// The device's, or [`IoError::Checksum`].
    pub fn end_read(&mut self, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
        let units = self.logs.get(read.log).map(Log::units);
        let whole = |found: &Payload| units.is_some_and(|units| units.verify(read.within, found));
        let result = match found {
            Ok(found) if whole(&found) || plant::is(Bug::LogReadNotVerified) => Ok(found),
            Ok(_) => Err(IoError::Checksum { extent: home }),
            Err(error) => Err(error),
        };
        if !plant::is(Bug::ResetUnderRead) {
            self.logs.adjust(read.log, Log::unpin);
        }
        self.reset_candidates.push(read.log);
        self.reset_what_can_be();
        result
    }
}
