//! Reading what logs hold.

use manylogs_block::{Completion, Extent, IoError, IoResult, Payload};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{self, LogRead, Place};

use crate::member::Reader;
use crate::system::{Shared, System};

/// Source of the content of a part.
#[derive(Debug)]
pub enum Source {
    /// At hand.
    Here(Payload),
    /// Nowhere: the logged copy was found damaged.
    Lost,
    /// A log, which is being read.
    Log {
        /// Which part of it.
        read: LogRead,
        /// The device's answer.
        found: Completion,
    },
}

/// Starts to read `part`, which the map says is at `place`, for a client, and pins the log.
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

/// Verifies what was read from a log and unpins it. `home` is the extent as clients know it.
///
/// # Errors
/// The device's, or [`IoError::Checksum`] if it is not what was written.
pub fn end_read<S: System>(system: &S, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
    let result = system.engine().with_store(|store| store.end_read(read, found, home));
    // A log that only this read held may have begun anew.
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
