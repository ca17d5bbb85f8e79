//! Logs whose copies may differ after a crash, where several drives hold the same content.
//!
//! A record that was in flight may be whole on one drive and missing on another. The array reads
//! one of them, and brings the others in step some time later. If the drive that was read fails
//! before that, a record that the opening has found is gone, with all that was appended behind it;
//! or a record appears that the opening has not found, and covers newer content at home. So an
//! opening after a crash first writes what it has found once more, in place, and makes an end
//! behind it.

use std::collections::BTreeSet;

use manylogs_block::{Completion, Extent, IoError, Lba, Payload, Request, Sectors};
use manylogs_logstore::Scanned;
use manylogs_logstore::store::Device;
use manylogs_plant::{self as plant, Bug};

use crate::member::{Member, Reader};
use crate::members::Members;
use crate::phase::Phase;

/// Longest piece that is read and written at a time.
const PIECE: Sectors = Sectors(2048);
/// Number of places that are read and written at a time. They lie in different logs, so the columns
/// of an array work side by side, and each drive takes the nearest first.
const PLACES: usize = 32;

/// The places of logs that may differ between copies: see the module.
#[derive(Clone, Debug, Default)]
pub struct InDoubt {
    /// Records that no later record calls durable, and structures.
    records: Vec<(Device, Extent)>,
    /// Physical sectors where a record might begin, and none was found: behind the last record of a
    /// log, and in front of an old epoch whose first record is torn.
    ends: Vec<(Device, Extent)>,
}

impl InDoubt {
    /// Adds what the scan of the log at `region` leaves in doubt. Records begin at multiples of
    /// `physical`.
    ///
    /// The first record is in doubt, too: on another drive the first record of the next epoch may
    /// have taken its place. Of a damaged log only records are in doubt, because another copy may
    /// be whole where this one is damaged.
    pub(crate) fn add(
        &mut self,
        (device, region): (Device, Extent),
        physical: Sectors,
        scanned: &Scanned,
    ) {
        let place = |from: u64, to: u64| {
            let end = Lba(region.start.0 + to.min(region.len.0));
            Extent::between(Lba(region.start.0 + from), end)
        };
        let whole = scanned.records.iter().filter(|record| scanned.is_whole(record));
        let span = |record: &manylogs_logstore::Record| {
            let from = u64::from(record.header.offset.0);
            (from, from + record.record_sectors.0)
        };
        let durable = scanned.records.last().map_or(0, |last| last.header.durable_tail.0.into());
        for (from, to) in whole.map(span).filter(|(from, to)| *from == 0 || *to > durable) {
            match self.records.last_mut() {
                Some((of, last)) if (*of, last.end()) == (device, place(from, to).start) => {
                    *last = Extent::between(last.start, place(from, to).end());
                }
                _ => self.records.push((device, place(from, to))),
            }
        }
        if !scanned.damage.is_empty() || !scanned.unreadable.is_empty() || scanned.begins_absent {
            return;
        }
        let mut at = 0;
        for (from, to) in scanned.records.iter().map(span).chain([(region.len.0, 0)]) {
            if at < from {
                self.ends.push((device, place(at, at + physical.0)));
            }
            at = to;
        }
    }

    /// Adds the place of a structure that is written in place, and has been read. On another copy
    /// its last write may be torn: were its second place written next, none might be whole there.
    pub fn add_structure(&mut self, device: Device, place: Extent) {
        if !plant::is(Bug::StructuresNotInDoubt) {
            self.records.push((device, place));
        }
    }

    /// Adds a log that begins with zeroes.
    pub(crate) fn add_blank(&mut self, (device, region): (Device, Extent), physical: Sectors) {
        self.ends.push((device, Extent { len: physical.min(region.len), ..region }));
    }

    /// Makes the copies the same in all these places, durably, on the members for which
    /// `has_copies` is true: with the content that the opening has found. Must end before the first
    /// record of the opening is appended, and before the first request is answered. A crash while
    /// it runs changes nothing of what an opening finds, because the same bytes are written.
    ///
    /// Up to 32 places are read and written at a time.
    ///
    /// A place that the medium cannot read or write stays as it is. Returns the length of what was
    /// written. After any other error nothing may be appended: the opening fails, and another one
    /// begins anew. No write is under way then that could meet its records.
    ///
    /// # Errors
    /// Those of the device, except for bad places of the medium.
    pub async fn settle(
        &self,
        members: &Members,
        has_copies: impl Fn(Device) -> bool,
    ) -> Result<Sectors, IoError> {
        let settles =
            |device: Device| has_copies(device) && !members.of(device).device().is_reset_first();
        let of = |places: &[(Device, Extent)], left_out: bool| -> Vec<(Device, Extent)> {
            let wanted = places.iter().copied().filter(|(device, _)| settles(*device));
            if left_out { Vec::new() } else { wanted.collect() }
        };
        let records = of(&self.records, plant::is(Bug::InDoubtNotRewritten));
        let ends = of(&self.ends, plant::is(Bug::EndNotMade));
        write_again(members, &pieces(&records)).await?;
        // A copy may still have an old epoch where the first record of the next one belongs. An end
        // that became durable before that record would be a hole in the old epoch.
        flush(members, &records).await?;
        make_ends(members, &ends).await?;
        flush(members, &ends).await?;
        let written = records.iter().chain(&ends).map(|(_, extent)| extent.len.0);
        Ok(Sectors(written.sum()))
    }
}

/// Makes what was written to these places durable.
async fn flush(members: &Members, places: &[(Device, Extent)]) -> Result<(), IoError> {
    let written: BTreeSet<Device> = places.iter().map(|(device, _)| *device).collect();
    for device in written {
        if !plant::is(Bug::InDoubtNotFlushed) {
            members.of(device).submit(Phase::Recovery, Request::Flush).await?;
        }
    }
    Ok(())
}

fn at_a_time() -> usize {
    if plant::is(Bug::SettledOneByOne) { 1 } else { PLACES }
}

/// Splits places into pieces of at most [`PIECE`].
fn pieces(places: &[(Device, Extent)]) -> Vec<(Device, Extent)> {
    let mut pieces = Vec::with_capacity(places.len());
    for (device, extent) in places {
        let mut rest = *extent;
        while !rest.is_empty() {
            let piece = Extent { len: rest.len.min(PIECE), ..rest };
            rest = Extent::between(piece.end(), rest.end());
            pieces.push((*device, piece));
        }
    }
    pieces
}

async fn write_again(members: &Members, pieces: &[(Device, Extent)]) -> Result<(), IoError> {
    for some in pieces.chunks(at_a_time()) {
        let read =
            |(device, piece): &(Device, Extent)| members.of(*device).read(Reader::Client, *piece);
        let reads: Vec<Completion> = some.iter().map(read).collect();
        let (mut failed, mut writes) = (None, Vec::with_capacity(some.len()));
        for (read, (device, piece)) in reads.into_iter().zip(some) {
            match read.await {
                Ok(content) => writes.push(write(members.of(*device), *piece, content)),
                Err(error) => note(&mut failed, error),
            }
        }
        all_written(writes, failed).await?;
    }
    Ok(())
}

async fn make_ends(members: &Members, places: &[(Device, Extent)]) -> Result<(), IoError> {
    for some in places.chunks(at_a_time()) {
        let zeroes = |(device, place): &(Device, Extent)| {
            write(members.of(*device), *place, Payload::zeroes(place.len))
        };
        all_written(some.iter().map(zeroes).collect(), None).await?;
    }
    Ok(())
}

fn write(member: &Member, extent: Extent, payload: Payload) -> Completion {
    let hint = manylogs_block::Hint::None;
    member.submit(Phase::Recovery, Request::Write { extent, payload, fua: false, hint })
}

/// Waits for all writes, also if one has failed: a later opening may append where they go.
///
/// # Errors
/// `failed`, or else the first error of a write that is not a bad place of the medium.
pub async fn all_written(
    writes: Vec<Completion>,
    mut failed: Option<IoError>,
) -> Result<(), IoError> {
    for written in writes {
        if let Err(error) = written.await {
            note(&mut failed, error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Keeps the first error that is not a bad place of the medium.
fn note(failed: &mut Option<IoError>, error: IoError) {
    if !matches!(error, IoError::Medium { .. }) {
        failed.get_or_insert(error);
    }
}
