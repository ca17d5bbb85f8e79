//! Table snapshots make recovery fast: it need not read every log. Correctness never depends on
//! them.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, IoError, Payload, Request, SECTOR_BYTES, Sectors, to_usize,
};
use manylogs_logstore::ondisk::log_bitmap::{LogBitmap, OPENED_TOGETHER};
use manylogs_logstore::ondisk::root::{Left, SnapshotRef};
use manylogs_logstore::ondisk::snapshot::{Snapshot, decode, encode};

use crate::ondisk::layout::Layout;
use crate::records::placement::nearest;
use crate::state::Inner;
use manylogs_engine::{Member, Phase, update_root};
use manylogs_plant::{self as plant, Bug};

/// Longest write or read of a snapshot.
const CHUNK: Sectors = Sectors(2048);

/// Approximate bytes of a snapshot for each extent of the table.
const BYTES_PER_EXTENT: usize = 12;

impl Inner {
    /// Writes the table to the free snapshot slot and names it in the root. False if the table does
    /// not fit, which only makes recovery slower.
    pub(crate) async fn snapshot(self: &Rc<Self>) -> Result<bool, IoError> {
        self.snapshot_and_leave(Left::Open).await
    }

    /// Takes a snapshot. If `left` says that it is the last, no record follows, so the set of
    /// opened logs is empty.
    pub(crate) async fn snapshot_and_leave(self: &Rc<Self>, left: Left) -> Result<bool, IoError> {
        let _turn = self.cleaning.take().await;
        if left == Left::Open && self.engine.state.borrow().closing {
            // The last snapshot may have been written while this one waited for its turn. Another
            // one would say that the volume is open, and meet a drain that wipes its place.
            return Ok(false);
        }
        if self.engine.state.borrow().store.is_apart() {
            let written = self.engine.state.borrow_mut().store.rewrite_apart();
            if left != Left::Open {
                update_root(&**self, Phase::Snapshot, |root| root.left = left).await?;
            }
            return Ok(written);
        }
        let bytes = self.capture();
        let result = self.publish(&bytes, left).await;
        let mut state = self.engine.state.borrow_mut();
        state.store.end_capture();
        drop(state);
        self.engine.notify_progress();
        result
    }

    /// Encodes the durable part of the table. Logs that are appended to from here on are noted,
    /// because versions that are only in memory now will go there.
    fn capture(&self) -> Vec<u8> {
        let mut state = self.engine.state.borrow_mut();
        state.store.begin_capture();
        state.store.note_table_size();
        // Estimated from the map in memory, because a length on the disk may be damaged.
        let expected_bytes = state.store.map().len() * BYTES_PER_EXTENT;
        encode(expected_bytes, state.store.logs().iter(), state.store.map().iter())
    }

    async fn publish(self: &Rc<Self>, bytes: &[u8], left: Left) -> Result<bool, IoError> {
        let used = self.engine.state.borrow().store.root().snapshot.map(|snapshot| snapshot.slot);
        let slot = used.map_or(0, |slot| 1 - slot);
        let place = self.layout.snapshots()[to_usize(slot.into())];
        if bytes.len() as u64 > place.len.bytes() {
            if left != Left::Open {
                // The logs hold the same entries, but take longer to read.
                update_root(&**self, Phase::Snapshot, |root| root.left = left).await?;
            }
            return Ok(false);
        }
        // Versions that others displaced before they became durable are not in the snapshot. So the
        // others must be in the logs, and home writes must be home.
        if !plant::is(Bug::SnapshotWithoutBarrier) {
            self.make_durable(Phase::Snapshot).await?;
        }
        let unit = self.layout.record_unit(self.below.physical_sector);
        write_chunks(&self.device, (place, unit), bytes).await?;
        self.device.submit(Phase::Snapshot, Request::Flush).await?;
        let snapshot =
            SnapshotRef { slot, bytes: bytes.len() as u64, checksum: crc32c::crc32c(bytes) };
        let opened = self.close_capture(left);
        let named = update_root(&**self, Phase::Snapshot, |root| {
            root.snapshot = Some(snapshot);
            root.used.add_all(&opened);
            root.opened = opened;
            root.left = left;
        });
        named.await?;
        self.engine.state.borrow_mut().counters.snapshots += 1;
        Ok(true)
    }

    /// From here on only logs that are in the new set and in the old one take records.
    fn close_capture(&self, left: Left) -> LogBitmap {
        let head = self.device.asked();
        self.engine.state.borrow_mut().store.close_capture(|store, opened| {
            if left == Left::Open
                && let Some(near) = nearest(store.logs(), head, |_| true)
            {
                opened.add_around(near, store.logs().count(), OPENED_TOGETHER);
            }
        })
    }
}

/// Writes the bytes of a snapshot in whole multiples of `unit`.
async fn write_chunks(
    device: &Member,
    (place, unit): (Extent, Sectors),
    bytes: &[u8],
) -> Result<(), IoError> {
    let mut at = place.start;
    let chunk = Sectors(CHUNK.0 / unit.0 * unit.0).max(unit);
    for chunk in bytes.chunks(to_usize(chunk.bytes())) {
        let len = Sectors::from_bytes_ceil(chunk.len() as u64);
        let len = Sectors(len.0.next_multiple_of(unit.0));
        let mut padded = Vec::with_capacity(to_usize(len.bytes()));
        padded.extend_from_slice(chunk);
        padded.resize(to_usize(len.bytes()), 0);
        let write = Request::Write {
            extent: Extent { start: at, len },
            payload: Payload::bytes(padded),
            fua: false,
            hint: manylogs_block::Hint::None,
        };
        device.submit(Phase::Snapshot, write).await?;
        at = at + len;
    }
    Ok(())
}

/// Reads the snapshot that the root names; `None` if it is not whole, or cannot be read.
///
/// # Errors
/// If the device fails as a whole.
pub(crate) async fn load(
    device: &Rc<dyn BlockDevice>,
    layout: &Layout,
    named: SnapshotRef,
) -> Result<Option<Snapshot>, IoError> {
    let place = layout.snapshots()[to_usize(named.slot.min(1).into())];
    if named.slot > 1 || named.bytes > place.len.bytes() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(to_usize(named.bytes));
    let (mut at, mut left) = (place.start, named.bytes.div_ceil(SECTOR_BYTES));
    while left > 0 {
        let len = Sectors(left.min(CHUNK.0));
        let payload = match device.submit(Request::Read { extent: Extent { start: at, len } }).await
        {
            Ok(payload) => payload,
            // The logs hold the same entries.
            Err(error) if error.is_local() && !plant::is(Bug::SnapshotNeeded) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(chunk) = payload.to_bytes() else { return Ok(None) };
        bytes.extend_from_slice(&chunk);
        (at, left) = (at + len, left - len.0);
    }
    bytes.truncate(to_usize(named.bytes));
    if crc32c::crc32c(&bytes) != named.checksum {
        return Ok(None);
    }
    Ok(decode(&bytes))
}
