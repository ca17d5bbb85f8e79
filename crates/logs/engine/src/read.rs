//! Reading from logs.

use manylogs_block::{Completion, Extent, IoError, IoResult, Payload};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{self, LogRead, Place};

use crate::member::Reader;
use crate::system::{Shared, System};

/// Where the content of a part comes from.
#[derive(Debug)]
pub enum Source {
    /// Memory: the content is known.
    Here(Payload),
    /// Nowhere: the copy in the log is known to be damaged.
    Lost,
    /// A log, with the read under way.
    Log {
        /// The extent of the log that is read.
        read: LogRead,
        /// The device's answer.
        found: Completion,
    },
}

/// Starts to read `part` for a client and pins its log. The map has `place` for it.
pub fn begin_read<S: System>(
    system: &S,
    state: &mut S::State,
    part: Extent,
    place: Place,
) -> Source {
    match state.store_mut().begin(part, place) {
        store::Source::Here(content) => Source::Here(content),
        store::Source::Lost => Source::Lost,
        store::Source::Log(read) => {
            let member = system.engine().members.of(read.device);
            Source::Log { read, found: member.read(Reader::Client, read.extent) }
        }
    }
}

/// Reads the units that cover `wanted`, an extent within the log, and pins the log.
pub fn read_log<S: System>(
    system: &S,
    state: &mut S::State,
    log: LogId,
    wanted: Extent,
    reader: Reader,
) -> (LogRead, Completion) {
    let read = state.store_mut().begin_read(log, wanted);
    (read, system.engine().members.of(read.device).read(reader, read.extent))
}

/// Verifies content that was read from a log, and unpins the log. `home` is the extent as clients
/// know it, for errors.
///
/// # Errors
/// The device's error, or [`IoError::Checksum`] if the content is damaged.
pub fn end_read<S: System>(system: &S, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
    let result = system.engine().with_store(|store| store.end_read(read, found, home));
    // The log may have begun anew if this was the last read of it.
    system.offer_room();
    result
}

impl Source {
    /// The content of `part`, which clients know as `home`.
    ///
    /// # Errors
    /// Those of [`end_read`].
    pub async fn content<S: System>(
        self,
        system: &S,
        part: Extent,
        home: Extent,
    ) -> Result<Payload, IoError> {
        match self {
            Self::Here(content) => Ok(content),
            Self::Lost => Err(IoError::Checksum { extent: home }),
            Self::Log { read, found } => {
                let checked = end_read(system, &read, found.await, home);
                checked.map(|content| content.slice(read.skip, part.len))
            }
        }
    }
}
