//! Table snapshots: recovery without reading every log. Never needed for correctness.

use std::rc::Rc;

use bytes::{Buf, BufMut};
use manylogs_block::{Extent, IoError, Lba, Payload, Request, SECTOR_BYTES, Sectors, to_usize};
use manylogs_logstore::{
    DataSequence, Epoch, ExtentList, Log, LogContent, LogId, LogOffset, Mapped, Supersede, Unit,
    UnitTable,
};

use crate::layout::Layout;
use crate::phase::{Below, Phase};
use crate::place::Place;
use crate::plant::{self, Bug};
use crate::root::{SnapshotRef, Touched};
use crate::state::{Inner, State};

const MAGIC: u64 = u64::from_le_bytes(*b"MLOGSNAP");
/// Longest write or read of a snapshot.
const CHUNK: Sectors = Sectors(2048);
const PLACE_LOG: u8 = 1;
const PLACE_ZEROES: u8 = 2;

/// A log as a snapshot describes it.
#[derive(Clone, Debug)]
pub(crate) struct LogState {
    pub(crate) id: LogId,
    pub(crate) epoch: Epoch,
    pub(crate) tail: Sectors,
    pub(crate) last_checksum: u32,
    pub(crate) content: LogContent,
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) logs: Vec<LogState>,
    pub(crate) map: Vec<(Extent, Mapped<Place>)>,
}

impl Inner {
    /// Writes the table to the snapshot slot that is not in use and names it in the root; false if
    /// it does not fit, which only makes recovery slower.
    pub(crate) async fn snapshot(self: &Rc<Self>) -> Result<bool, IoError> {
        let _turn = self.turn.take().await;
        let bytes = self.capture();
        let result = self.publish(&bytes).await;
        let mut state = self.state.borrow_mut();
        state.capturing = None;
        state.next_touched = None;
        drop(state);
        self.notify_progress();
        result
    }

    /// The durable part of the table. Logs that are appended to from here on are remembered: what
    /// is still in memory now will be found there.
    fn capture(&self) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        let mut touched = Touched::none(state.logs.count());
        for record in state.records.values() {
            touched.add(record.log);
        }
        state.capturing = Some(touched);
        state.note_table_size();
        encode(&state)
    }

    async fn publish(self: &Rc<Self>, bytes: &[u8]) -> Result<bool, IoError> {
        let used = self.state.borrow().root.snapshot.map(|snapshot| snapshot.slot);
        let slot = used.map_or(0, |slot| 1 - slot);
        let place = self.layout.snapshot(slot);
        if bytes.len() as u64 > place.len.bytes() {
            return Ok(false);
        }
        // Versions that others displaced before they were durable are not in the snapshot: the
        // others must be found in the logs, and home writes must be home.
        if !plant::is(Bug::SnapshotWithoutBarrier) {
            self.make_durable(Phase::Snapshot).await?;
        }
        write_chunks(&self.device, place, bytes).await?;
        self.device.submit(Phase::Snapshot, Request::Flush).await?;
        let snapshot =
            SnapshotRef { slot, bytes: bytes.len() as u64, checksum: crc32c::crc32c(bytes) };
        let touched = self.close_capture();
        let named = self.update_root(Phase::Snapshot, |root| {
            root.snapshot = Some(snapshot);
            root.touched = touched;
        });
        named.await?;
        self.state.borrow_mut().counters.snapshots += 1;
        Ok(true)
    }

    /// From here on only logs of the new set, and of the old one, take records.
    fn close_capture(&self) -> Touched {
        let mut state = self.state.borrow_mut();
        let mut touched =
            state.capturing.take().unwrap_or_else(|| Touched::none(state.logs.count()));
        if let Some(near) = state.logs.nearest(state.head, |_| true) {
            touched.add_around(near, state.logs.count());
        }
        state.next_touched = Some(touched.clone());
        touched
    }
}

async fn write_chunks(device: &Below, place: Extent, bytes: &[u8]) -> Result<(), IoError> {
    let mut at = place.start;
    for chunk in bytes.chunks(to_usize(CHUNK.bytes())) {
        let len = Sectors::from_bytes_ceil(chunk.len() as u64);
        let len = Sectors(len.0.next_multiple_of(device.capabilities().physical_sector.0));
        let mut padded = chunk.to_vec();
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

/// Reads the snapshot that the root names; `None` if it is not whole.
pub(crate) async fn load(
    device: &Below,
    layout: &Layout,
    named: SnapshotRef,
) -> Result<Option<Snapshot>, IoError> {
    let place = layout.snapshot(named.slot.min(1));
    if named.slot > 1 || named.bytes > place.len.bytes() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(to_usize(named.bytes));
    let (mut at, mut left) = (place.start, named.bytes.div_ceil(SECTOR_BYTES));
    while left > 0 {
        let len = Sectors(left.min(CHUNK.0));
        let payload = device.read(Extent { start: at, len }).await?;
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

fn encode(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64_le(MAGIC);
    let used: Vec<&Log> = state.logs.iter().filter(|log| log.used().0 > 0).collect();
    out.put_u64_le(used.len() as u64);
    for log in used {
        encode_log(&mut out, log);
    }
    let count_at = out.len();
    out.put_u64_le(0);
    let mut count = 0u64;
    for (extent, mapped) in state.map.iter() {
        let (kind, log, offset) = match mapped.value {
            Place::Log { log, offset } => (PLACE_LOG, log, offset),
            Place::Zeroes { log } => (PLACE_ZEROES, log, LogOffset(0)),
            Place::Buffered { .. } => continue,
        };
        count += 1;
        put_extent(&mut out, extent);
        out.put_u64_le(mapped.sequence.0);
        out.put_u32_le(log.0);
        out.put_u32_le(offset.0);
        out.put_u8(kind);
    }
    out[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
    out
}

fn put_extent(out: &mut Vec<u8>, extent: Extent) {
    out.put_u64_le(extent.start.0);
    out.put_u64_le(extent.len.0);
}

fn encode_log(out: &mut Vec<u8>, log: &Log) {
    out.put_u32_le(log.id().0);
    out.put_u64_le(log.epoch().0);
    out.put_u64_le(log.used().0);
    out.put_u32_le(log.last_checksum());
    // Of a log that holds nothing live only the end matters.
    let units = if log.live() > 0 { log.units().iter().len() } else { 0 };
    out.put_u64_le(units as u64);
    for unit in log.units().iter().take(units) {
        out.put_u32_le(unit.offset.0);
        out.put_u8(u8::try_from(unit.len.0).unwrap_or(0));
        out.put_u32_le(unit.checksum);
    }
    out.put_u64_le(log.supersedes().len() as u64);
    for supersede in log.supersedes() {
        put_extent(out, supersede.extent);
        out.put_u64_le(supersede.data_sequence.0);
    }
    let extents = if log.live() > 0 { log.extents().len() } else { 0 };
    out.put_u64_le(extents as u64);
    for extent in log.extents().iter().take(extents) {
        put_extent(out, extent);
    }
}

/// `None` where the bytes end too early or make no sense; the checksum was right, so that would be
/// a mistake of the program that wrote them.
fn decode(mut bytes: &[u8]) -> Option<Snapshot> {
    let input = &mut bytes;
    if input.try_get_u64_le().ok()? != MAGIC {
        return None;
    }
    let mut snapshot = Snapshot::default();
    for _ in 0..input.try_get_u64_le().ok()? {
        snapshot.logs.push(decode_log(input)?);
    }
    for _ in 0..input.try_get_u64_le().ok()? {
        let extent = get_extent(input)?;
        let sequence = DataSequence(input.try_get_u64_le().ok()?);
        let log = LogId(input.try_get_u32_le().ok()?);
        let offset = LogOffset(input.try_get_u32_le().ok()?);
        let value = match input.try_get_u8().ok()? {
            PLACE_LOG => Place::Log { log, offset },
            PLACE_ZEROES => Place::Zeroes { log },
            _ => return None,
        };
        snapshot.map.push((extent, Mapped { sequence, value }));
    }
    Some(snapshot)
}

fn get_extent(input: &mut &[u8]) -> Option<Extent> {
    let start = Lba(input.try_get_u64_le().ok()?);
    Some(Extent { start, len: Sectors(input.try_get_u64_le().ok()?) })
}

fn decode_log(input: &mut &[u8]) -> Option<LogState> {
    let id = LogId(input.try_get_u32_le().ok()?);
    let epoch = Epoch(input.try_get_u64_le().ok()?);
    let tail = Sectors(input.try_get_u64_le().ok()?);
    let last_checksum = input.try_get_u32_le().ok()?;
    let mut units = UnitTable::default();
    for _ in 0..input.try_get_u64_le().ok()? {
        units.push(Unit {
            offset: LogOffset(input.try_get_u32_le().ok()?),
            len: Sectors(input.try_get_u8().ok()?.into()),
            checksum: input.try_get_u32_le().ok()?,
        });
    }
    let mut supersedes = Vec::new();
    for _ in 0..input.try_get_u64_le().ok()? {
        let extent = get_extent(input)?;
        let data_sequence = DataSequence(input.try_get_u64_le().ok()?);
        supersedes.push(Supersede { extent, data_sequence });
    }
    let mut extents = ExtentList::default();
    for _ in 0..input.try_get_u64_le().ok()? {
        extents.push(get_extent(input)?);
    }
    let content = LogContent { units, supersedes, extents };
    Some(LogState { id, epoch, tail, last_checksum, content })
}
