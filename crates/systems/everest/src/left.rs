//! The table that an orderly close leaves, so that the next opening need not read the logs.
//! Correctness never depends on it: the logs hold the same.
//!
//! It is believed only while the root says that the store was closed. An opening takes that back,
//! durably, before anything is written, so that a table never counts after a change.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Hint, IoError, Lba, Payload, Request, SECTOR_BYTES, Sectors, to_usize,
};
use manylogs_engine::{Phase, update_root, wait_durable};
use manylogs_logstore::ondisk::root::{Left, Root, SnapshotRef};
use manylogs_logstore::ondisk::snapshot::{self, Snapshot, decode, get, put, unzigzag, zigzag};
use manylogs_logstore::store::{Store, Versions as Recovered};
use manylogs_logstore::{DataSequence, SequenceLimit, Space};
use manylogs_plant::{self as plant, Bug};

use crate::ages::Ages;
use crate::store::{Inner, State};
use crate::versions::{Range, Version, Versions};

/// Longest write or read of a table.
const CHUNK: Sectors = Sectors(2048);
/// About the bytes of an extent.
const BYTES_PER_EXTENT: usize = 20;

/// A table that was read.
#[derive(Debug)]
pub(crate) struct LeftTable {
    snapshot: Snapshot,
    /// The owners' versions, by address.
    versions: Vec<Range>,
}

/// The table as bytes: the length of the engine's snapshot (8), that, and the owners' versions, as
/// a count and for each the distance from the last one's end, the length, and the difference from
/// the last version.
fn encode(state: &State) -> Vec<u8> {
    let (store, versions) = (&state.store, state.versions.ranges());
    let expected = store.map().len() * BYTES_PER_EXTENT;
    let snapshot = snapshot::encode(expected, store.logs().iter(), store.map().iter());
    let mut bytes = (snapshot.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&snapshot);
    put(&mut bytes, versions.len() as u64);
    let mut last = (0, 0);
    for Range { extent, version } in versions {
        put(&mut bytes, extent.start.0 - last.0);
        put(&mut bytes, extent.len.0);
        put(&mut bytes, zigzag(version.0, last.1));
        last = (extent.end().0, version.0);
    }
    bytes
}

impl LeftTable {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (snapshot, mut rest) = rest.split_at_checked(len)?;
        let (input, mut versions) = (&mut rest, Vec::new());
        let mut last = (0_u64, 0_u64);
        for _ in 0..get(input)? {
            let start = last.0.checked_add(get(input)?)?;
            let len = get(input)?;
            let end = start.checked_add(len)?;
            let version = last.1.wrapping_add_signed(unzigzag(get(input)?));
            versions.push(Range { extent: Extent::new(start, len), version: Version(version) });
            last = (end, version);
        }
        Some(Self { snapshot: decode(snapshot)?, versions })
    }

    /// Whether it can be the table of a store with these logs, with sequences below `limit`.
    pub(crate) fn fits(&self, logs: &[Extent], physical: Sectors, limit: SequenceLimit) -> bool {
        self.snapshot.fits(logs, Space::END, physical, limit)
    }

    /// Fills `store`. Returns the owners' versions and their ages.
    pub(crate) fn fill(self, store: &mut Store) -> (Versions, Ages) {
        let mut recovered = Recovered::new(store.take_logs());
        recovered.take_snapshot(self.snapshot, |_| true);
        store.fill(recovered);
        let (mut versions, mut ages) = (Versions::new(), Ages::default());
        for Range { extent, version } in self.versions {
            versions.insert(extent, version);
        }
        // Of a version that is overwritten in part several parts may be left.
        let mut whole: BTreeMap<DataSequence, Extent> = BTreeMap::new();
        for (part, mapped) in store.map().iter() {
            let extent = whole.entry(mapped.sequence).or_insert(part);
            let start = Lba(extent.start.0.min(part.start.0));
            let end = Lba(extent.end().0.max(part.end().0));
            *extent = Extent::between(start, end);
        }
        whole.into_iter().for_each(|(sequence, extent)| ages.add(sequence, extent));
        (versions, ages)
    }
}

/// Reads the table that the root names; `None` if it must not be believed, is not whole, or cannot
/// be read.
///
/// # Errors
/// If the device fails as a whole.
pub(crate) async fn load(
    device: &Rc<dyn BlockDevice>,
    place: Extent,
    root: &Root,
) -> Result<Option<LeftTable>, IoError> {
    let is_last = root.left == Left::Closed || plant::is(Bug::OldTableBelieved);
    let named = root.snapshot.filter(|named| is_last && named.bytes <= place.len.bytes());
    let Some(named) = named else { return Ok(None) };
    let mut bytes = Vec::with_capacity(to_usize(named.bytes));
    let (mut at, mut left) = (place.start, named.bytes.div_ceil(SECTOR_BYTES).next_multiple_of(8));
    while left > 0 {
        let extent = Extent { start: at, len: Sectors(left.min(CHUNK.0)) };
        let read = match device.submit(Request::Read { extent }).await {
            Ok(read) => read,
            Err(error) if error.is_local() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(chunk) = read.to_bytes() else { return Ok(None) };
        bytes.extend_from_slice(&chunk);
        (at, left) = (extent.end(), left - extent.len.0);
    }
    bytes.truncate(to_usize(named.bytes));
    let is_whole = crc32c::crc32c(&bytes) == named.checksum || plant::is(Bug::TornTableBelieved);
    Ok(LeftTable::decode(&bytes).filter(|_| is_whole))
}

impl Inner {
    /// Takes no more changes, waits until all is durable and nothing is under way, and leaves the
    /// table at `place`.
    pub(crate) async fn leave(self: &Rc<Self>, place: Extent) -> Result<(), IoError> {
        self.closing.set(true);
        self.engine.wanted.notify();
        // Whoever waits for room gives up.
        self.engine.notify_progress();
        let written = self.come_to_rest().await;
        self.engine.close();
        written?;
        while self.engine.is_opening() {
            self.engine.progress.wait().await;
        }
        let bytes = {
            let state = self.engine.state.borrow();
            let has_failed = state.store.read_only().is_some();
            if has_failed || state.store.logs().iter().any(|log| log.is_busy()) {
                return Ok(());
            }
            encode(&state)
        };
        // Without room for the table the next opening reads the logs; if it cannot be written, too.
        if bytes.len() as u64 > place.len.bytes() || self.write_table(place, &bytes).await.is_err()
        {
            return Ok(());
        }
        let (bytes, checksum) = (bytes.len() as u64, crc32c::crc32c(&bytes));
        update_root(&**self, Phase::Snapshot, |root| {
            root.snapshot = Some(SnapshotRef { slot: 0, bytes, checksum });
            root.left = Left::Closed;
            // The next opening goes on in logs that were used without naming them again.
            root.opened.add_all(&root.used);
        })
        .await
    }

    /// Waits until cleaning has ended, and all that was taken is durable.
    async fn come_to_rest(self: &Rc<Self>) -> Result<(), IoError> {
        drop(self.cleaning.turns.take().await);
        let last = self.engine.state.borrow().store.entries().tickets.last();
        match last {
            Some(last) => wait_durable(&**self, last).await,
            None => Ok(()),
        }
    }

    async fn write_table(&self, place: Extent, bytes: &[u8]) -> Result<(), IoError> {
        let member = self.engine.members.of(manylogs_logstore::store::Device::default());
        let mut at = place.start;
        for chunk in bytes.chunks(to_usize(CHUNK.bytes())) {
            let mut padded = chunk.to_vec();
            padded.resize(chunk.len().next_multiple_of(8 * to_usize(SECTOR_BYTES)), 0);
            let payload = Payload::bytes(padded);
            let extent = Extent { start: at, len: payload.len() };
            let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
            member.submit(Phase::Snapshot, write).await?;
            at = extent.end();
        }
        member.submit(Phase::Snapshot, Request::Flush).await.map(drop)
    }
}
