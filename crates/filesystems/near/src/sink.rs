//! A volume's logs as a [`CommitSink`].

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use manylogs::{Owners, Phase, PhaseProbe, ReadAround, Volume};
use manylogs_block::{
    BlockDevice, Extent, IoResult, Lba, Payload, Request, Sectors, narrow, to_usize,
};
use manylogs_ext4::{
    BLOCK_BYTES, BlockNo, Closed, CommitSink, Logged, LoggedKind, Memory, Newest, Run, SinkStats,
    Step, Together,
};
use manylogs_logstore::store::{Batch, NewEntry, Stream};
use manylogs_logstore::{Class, EntryKind, MAX_ENTRIES};
use manylogs_plant::{Bug, is};
use smallvec::SmallVec;

use crate::leads::{Leading, blocks_of};
use crate::owned::Owned;
use crate::table::Table;

/// Sectors of a block of the file system.
pub(crate) const BLOCK_SECTORS: u64 = 8;
/// Entries of a record that are reserved for blocks; the others supersede freed runs.
const BLOCKS_MOST: usize = MAX_ENTRIES / 2;
/// The stream of all transactions: they become durable in order.
pub(crate) const ORDER: Stream = Stream(0);

/// How much of a changed block goes into a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// The sectors of a metadata block from the first that changed to the last.
    #[default]
    Sectors,
    /// The whole block.
    Blocks,
}

/// How changed metadata is logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logging {
    /// How much of a changed block.
    pub(crate) granularity: Granularity,
    /// Whether it stays in the logs.
    pub(crate) keeps_metadata: bool,
}

/// The volume's logs as the journal: see the crate.
pub(crate) struct NearSink {
    volume: Volume,
    logging: Logging,
    /// Counters that the volume does not have: transactions, and the flushes for their data.
    stats: Cell<SinkStats>,
    /// Counts what the volume writes, home writes among it.
    probe: PhaseProbe,
    table: Table,
    leading: Leading,
    owned: Rc<Owned>,
}

impl NearSink {
    /// `probe` is the one that the volume was opened with.
    pub(crate) fn new(
        volume: Volume,
        probe: PhaseProbe,
        logging: Logging,
        memory: &Memory,
    ) -> Self {
        let table = Table::new(memory);
        table.count(&volume);
        let (stats, leading, owned) = (Cell::default(), Leading::default(), Rc::default());
        volume.set_owners(Rc::clone(&owned) as Rc<dyn Owners>);
        Self { volume, logging, stats, probe, table, leading, owned }
    }

    /// Learns what leads to kept content, if versions are kept. Must be called before the first
    /// transaction.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn learn(&self) -> Result<(), manylogs_ext4::Error> {
        if self.volume.keeps_versions() { self.leading.learn(&self.volume).await } else { Ok(()) }
    }

    async fn append(&self, transaction: &Closed) -> IoResult<()> {
        let mut stats = self.stats.get();
        if transaction.data_written && !is(Bug::NearDataNotFlushed) {
            // A volume whose flush failed takes no record either.
            self.volume.submit(Request::Flush).await?;
            stats.flushes += 1;
        }
        let is_durable = |block: &Logged| block.kind.needs_no_place();
        if transaction.blocks.values().any(is_durable)
            && self.leading.learn(&self.volume).await.is_ok()
        {
            // If this fails, the content is logged like other content.
            let _ = self.volume.keep_versions().await;
        }
        let batch = self.batch_of(transaction);
        stats.transactions += 1;
        self.stats.set(stats);
        if batch.entries.is_empty() {
            // Its freed blocks were never logged, and its blocks did not change.
            return Ok(());
        }
        if is(Bug::NearTransactionSplit) {
            for entry in batch.entries {
                let alone = Batch { entries: SmallVec::from_buf([entry]), after: Some(ORDER) };
                self.volume.append(alone).await?;
            }
            return Ok(());
        }
        match self.volume.append(batch).await {
            Err(_) if is(Bug::NearFailureForgotten) => Ok(()),
            appended => {
                self.table.count(&self.volume);
                appended.map(drop)
            }
        }
    }

    fn batch_of(&self, transaction: &Closed) -> Batch {
        let mut entries: SmallVec<[NewEntry; 1]> = superseded(transaction).collect();
        if is(Bug::DurableFreedNotSuperseded) {
            entries.retain(|entry| self.volume.kept(entry.extent).is_empty());
        }
        let mut last_owner = None;
        for (block, logged) in &transaction.blocks {
            let Some((extent, payload)) = self.changed_part(*block, logged) else { continue };
            let class = self.class_in(transaction, logged.kind, extent, &payload);
            let owner = self.owned.note(*block, logged.kind);
            let is_same = std::mem::replace(&mut last_owner, owner) == owner;
            match entries.last_mut() {
                Some(NewEntry { extent: last, class: of_last, payload: Some(content), .. })
                    if last.end() == extent.start && *of_last == class && is_same =>
                {
                    last.len += extent.len;
                    content.append(payload);
                }
                _ => entries.push(entry(EntryKind::Data, class, extent, Some(payload))),
            }
        }
        Batch { entries, after: Some(ORDER) }
    }

    /// The part of a block that goes into the record; `None` if the block did not change.
    fn changed_part(&self, block: BlockNo, logged: &Logged) -> Option<(Extent, Payload)> {
        let start = block.0 * BLOCK_SECTORS;
        let in_part = self.logging.granularity == Granularity::Sectors;
        let before = logged.before.as_ref().filter(|_| in_part);
        let Some(before) = before else {
            let payload = Payload::bytes(logged.bytes.clone());
            return Some((Extent::new(start, BLOCK_SECTORS), payload));
        };
        let sectors = |bytes: &'_ [u8]| bytes.as_chunks::<512>().0.to_vec();
        let (old, new) = (sectors(before), sectors(&logged.bytes));
        let differs = |at: &usize| old[*at] != new[*at];
        let first = (0..old.len()).find(differs)?;
        let last = (first..old.len()).rev().find(differs)?;
        let last = if is(Bug::NearSectorMissed) { first.max(last - last.min(1)) } else { last };
        let Range { start: first, end } = self.leading.whole(block, &logged.bytes, first..last + 1);
        let payload = Payload::bytes(logged.bytes.slice(first * 512..end * 512));
        Some((Extent::new(start + first as u64, (end - first) as u64), payload))
    }

    /// The class of a part of a transaction.
    fn class_in(
        &self,
        transaction: &Closed,
        kind: LoggedKind,
        extent: Extent,
        payload: &Payload,
    ) -> Class {
        match class_of(kind) {
            Class::Metadata => {
                match self.leading.class_of(extent, payload, &self.volume, transaction) {
                    Class::Metadata if self.logging.keeps_metadata => Class::KeptMetadata,
                    class => class,
                }
            }
            // Metadata leads to this block as to kept content: its home says "unwritten".
            Class::Data
                if !is(Bug::DurableOverwritePlain) && !self.volume.kept(extent).is_empty() =>
            {
                Class::DurabilityOnly
            }
            class => class,
        }
    }
}

fn class_of(kind: LoggedKind) -> Class {
    match kind {
        LoggedKind::Metadata => Class::Metadata,
        LoggedKind::Content if is(Bug::DurableClassForAll) => Class::DurabilityOnly,
        LoggedKind::DurableContent { .. } if !is(Bug::DurableClassLost) => Class::DurabilityOnly,
        LoggedKind::Content | LoggedKind::DurableContent { .. } => Class::Data,
    }
}

/// Blocks of the largest transaction, if records have `record` sectors of payload.
pub(crate) fn largest_transaction(record: Sectors) -> usize {
    to_usize(record.0 / BLOCK_SECTORS).min(BLOCKS_MOST)
}

/// A supersede entry for each freed run of which a log has a version. It covers the whole run, so
/// that there are no more entries than runs.
fn superseded(transaction: &Closed) -> impl Iterator<Item = NewEntry> + '_ {
    let mut revoked = transaction.revoked.clone();
    revoked.sort_unstable();
    let logged = move |run: &&Run| {
        let range = run.range();
        let at = revoked.partition_point(|block| block.0 < range.start);
        let first_only = is(Bug::NearSupersedeByFirst);
        let end = if first_only { range.start + 1 } else { range.end };
        revoked.get(at).is_some_and(|block| block.0 < end)
    };
    let freed = transaction.freed.iter().filter(logged);
    let freed = freed.filter(|_| !is(Bug::NearSupersedeForgotten));
    freed.map(|run| supersede(sectors_of(*run)))
}

/// An entry that gives up all older versions of `extent`.
pub(crate) const fn supersede(extent: Extent) -> NewEntry {
    entry(EntryKind::Supersede, Class::Metadata, extent, None)
}

const fn entry(
    kind: EntryKind,
    class: Class,
    extent: Extent,
    payload: Option<Payload>,
) -> NewEntry {
    NewEntry { extent, kind, class, version: 0, payload }
}

pub(crate) fn sectors_of(run: Run) -> Extent {
    let range = run.range();
    Extent::between(Lba(range.start * BLOCK_SECTORS), Lba(range.end * BLOCK_SECTORS))
}

impl CommitSink for NearSink {
    fn largest(&self) -> usize {
        // The setting may change: a transaction that is longer by then is still taken.
        largest_transaction(self.volume.config().record)
    }

    fn most_freed(&self) -> usize {
        MAX_ENTRIES - BLOCKS_MOST
    }

    fn takes_content(&self, blocks: u32) -> bool {
        let sectors = Sectors(u64::from(blocks) * BLOCK_SECTORS);
        blocks as usize <= self.largest() / 4 && self.volume.takes(sectors)
    }

    fn keeps(&self) -> bool {
        true
    }

    fn kept(&self, run: Run) -> Vec<Run> {
        self.volume.kept(sectors_of(run)).into_iter().map(blocks_of).collect()
    }

    fn has_room(&self, blocks: usize) -> bool {
        let freed = if is(Bug::NearRoomWithoutFreed) { 0 } else { self.most_freed() };
        let entries = blocks + freed;
        self.table.has_room(entries)
            && self.volume.has_room(entries, Sectors(blocks as u64 * BLOCK_SECTORS))
    }

    fn is_empty(&self) -> bool {
        // The volume's own entries take room too, so a checkpoint may always make some.
        false
    }

    fn make_room(&self) -> Step<'_> {
        let payload = Sectors(self.largest() as u64 * BLOCK_SECTORS);
        Box::pin(async move {
            self.table.make_room(&self.volume, 2 * MAX_ENTRIES).await;
            self.volume.make_room(MAX_ENTRIES, payload).await
        })
    }

    fn turn(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.volume.record_turn())
    }

    fn commit<'a>(&'a self, transaction: &'a Closed) -> Step<'a> {
        Box::pin(self.append(transaction))
    }

    fn changes_device(&self) -> bool {
        // The device is the volume, whose table leads to the record.
        true
    }

    fn in_one_piece(&self, block: BlockNo, run: Run) -> Run {
        let wanted = sectors_of(Run { start: block, blocks: 1 });
        let found = self.volume.in_one_piece(wanted, sectors_of(run));
        let found = found.narrowed_to(Sectors(BLOCK_SECTORS));
        let blocks = narrow(found.len.0 / BLOCK_SECTORS);
        Run { start: BlockNo(found.start.0 / BLOCK_SECTORS), blocks }
    }

    fn lies_at(&self, block: BlockNo) -> BlockNo {
        let wanted = sectors_of(Run { start: block, blocks: 1 });
        BlockNo(self.volume.lies_at(wanted).0 / BLOCK_SECTORS)
    }

    fn read_around(&self, block: BlockNo, blocks: u32) -> Option<Together> {
        let wanted = sectors_of(Run { start: block, blocks: 1 });
        let len = Sectors(u64::from(blocks) * BLOCK_SECTORS);
        let ReadAround { extents, content } = self.volume.read_around(wanted, len)?;
        let blocks = extents.into_iter().flat_map(|extent| blocks_of(extent).range());
        Some(Together { blocks: blocks.map(BlockNo).collect(), content })
    }

    fn quiet(&self) -> Step<'_> {
        // The volume orders its writes to a home with those of its owner.
        Box::pin(async { Ok(()) })
    }

    fn newest(&self, _: BlockNo) -> Option<Newest> {
        // Reads go through the volume, whose table knows.
        None
    }

    fn logged(&self, run: Run) -> Vec<BlockNo> {
        let blocks = |part: Extent| {
            let last = if is(Bug::NearPartNotSuperseded) { 0 } else { BLOCK_SECTORS - 1 };
            let end = (part.end().0 + last) / BLOCK_SECTORS;
            (part.start.0 / BLOCK_SECTORS..end).map(BlockNo)
        };
        self.volume.logged(sectors_of(run)).into_iter().flat_map(blocks).collect()
    }

    fn stats(&self) -> SinkStats {
        let volume = self.volume.stats();
        let mut home = self.probe.written().filter(|(phase, _)| *phase == Phase::Checkpoint);
        let home = home.next().map(|(_, written)| written).unwrap_or_default();
        SinkStats {
            records: volume.records,
            log_bytes: volume.record_bytes,
            home_bytes: home.bytes,
            home_writes: home.requests,
            at_risk_bytes: volume.logged_at_risk_bytes,
            ..self.stats.get()
        }
    }

    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        // The superblock notes it.
        Box::pin(async { Ok(false) })
    }

    fn drain(&self) -> Step<'_> {
        // Logged versions may stay in the logs: the next mount finds them through the volume.
        Box::pin(async { self.volume.submit(Request::Flush).await.map(drop) })
    }
}

const _: () = assert!(BLOCK_BYTES as u64 == Sectors(BLOCK_SECTORS).bytes());

impl std::fmt::Debug for NearSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NearSink")
            .field("largest", &self.largest())
            .field("stats", &self.stats.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
