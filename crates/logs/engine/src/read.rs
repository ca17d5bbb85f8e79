//! Reading from logs.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completion, Copies, Extent, IoError, IoResult, Payload, Request, Sectors,
};
use manylogs_logstore::store::{self, Live, LogRead, Place, span_of};
use manylogs_logstore::{LogId, Space};
use manylogs_plant::{self as plant, Bug};

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
        store::Source::Log(read) => read_begun(system, read),
    }
}

/// Reads for a client what `read` names, which has pinned its log.
pub fn read_begun<S: System>(system: &S, read: LogRead) -> Source {
    let found = system.engine().members.of(read.device).read(Reader::Client, read.extent);
    Source::Log { read, found }
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

/// As [`end_read`], for a member that may have copies: content that one of them returns damaged, or
/// not at all, is read from another one, and mended where it is damaged. The read keeps the log
/// from a reset meanwhile, so nothing else is written there.
///
/// # Errors
/// Those of [`end_read`], if no copy is whole. An error of a write that mends is not told: the
/// member deals with a copy that fails.
pub(crate) async fn end_read_of_copies<S: System>(
    system: &S,
    read: &LogRead,
    found: IoResult,
    home: Extent,
) -> IoResult {
    let engine = system.engine();
    let check = |found| engine.with_store(|store| store.check_read(read, found, home));
    let mut result = check(found);
    if result.is_err() && !plant::is(Bug::OtherCopyNotAsked) {
        let copies = engine.members.of(read.device).device().copies();
        let parts = engine.with_store(|store| store.checked_parts(read));
        if let Some((content, _)) = mend(copies, (read.extent, parts), check).await {
            result = Ok(content);
        }
    }
    engine.with_store(|store| store.unpin_read(read));
    // The log may have begun anew if this was the last read of it.
    system.offer_room();
    result
}

/// Reads `live`, versions of a log that one read covers, from each copy of the log's member, or
/// from the member if it has no copies. Where a copy is damaged it is mended from another one.
/// Returns the length of what was read, and how many copies were damaged: nothing if the versions
/// have left the log.
///
/// # Errors
/// [`IoError::Checksum`], with the extent as clients know it, if no copy is whole.
pub async fn check_copies<S: System>(
    system: &S,
    log: LogId,
    live: &[Live],
) -> Result<(Sectors, u64), IoError> {
    let engine = system.engine();
    let begun = engine.with_store(|store| {
        let still = store.still_live(live);
        let home = still.first()?.extent;
        span_of(&still).map(|span| (store.begin_read(log, span), Space::of(home).1))
    });
    let Some((read, home)) = begun else { return Ok((Sectors(0), 0)) };
    let device = engine.members.of(read.device).device();
    let mut copies = device.copies();
    if copies.is_empty() {
        copies.push(Rc::clone(device));
    }
    let check = |found| engine.with_store(|store| store.check_read(&read, found, home));
    let parts = engine.with_store(|store| store.checked_parts(&read));
    let found = mend(copies, (read.extent, parts), check).await;
    engine.with_store(|store| store.unpin_read(&read));
    system.offer_room();
    let (_, damaged) = found.ok_or(IoError::Checksum { extent: home })?;
    Ok((read.extent.len, damaged))
}

/// The content of `extent` that passes `check`, from any of `copies`, and how many others hold
/// something else there. Writes it to the others: only `parts` of it, which have checksums, and
/// what a copy could not read. Between the parts a damaged copy may be the only whole one.
async fn mend(
    copies: Copies,
    (extent, parts): (Extent, Vec<Extent>),
    check: impl Fn(IoResult) -> IoResult,
) -> Option<(Payload, u64)> {
    let (mut whole, mut damaged) = (None, Vec::new());
    for copy in copies {
        match check(copy.submit(Request::Read { extent }).await) {
            Ok(content) => whole = Some(content),
            Err(error) => damaged.push((copy, error)),
        }
    }
    let (content, count) = (whole?, damaged.len() as u64);
    for (copy, error) in damaged {
        let unread = match error {
            IoError::Medium { extent: bad } => bad.intersection(extent),
            _ => Extent::default(),
        };
        // First what cannot be read: a drive may refuse to write a part of a bad sector.
        let rest = parts.iter().copied().filter(|part| !unread.contains(*part));
        let written = std::iter::once(unread).filter(|it| it.len.0 > 0).chain(rest);
        for part in written.filter(|_| !plant::is(Bug::DamageNotMended)) {
            let content = content.slice(Sectors(part.start.0 - extent.start.0), part.len);
            // The member deals with a copy that refuses a write.
            if copy.submit(Request::write_fua(part, content)).await.is_err() {
                break;
            }
        }
    }
    Some((content, count))
}

impl Source {
    /// The content of `part`, which clients know as `home`.
    ///
    /// # Errors
    /// Those of the device, if no copy of a part can be read, or matches its checksum.
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
                let checked = end_read_of_copies(system, &read, found.await, home).await;
                checked.map(|content| content.slice(read.skip, part.len))
            }
        }
    }
}
