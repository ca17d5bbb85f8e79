//! Keeping a store's table in non-volatile RAM.

use std::rc::Rc;

use crate::{DataSequence, Floors, Record, RecordSequence, VolumeId};
use bytes::Bytes;
use manylogs_block::{IoError, Nvram};

use super::{FAILED, NvTable, create};
use crate::NvramError;
use crate::ondisk::nvram::{Entry, entry_len};
use crate::ondisk::root::Root;
use crate::ondisk::snapshot::encode;
use crate::store::Room;
use crate::store::Store;
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// The table in non-volatile RAM, if the store has one.
    #[must_use]
    pub const fn table_apart(&self) -> Option<&NvTable> {
        self.apart.as_ref()
    }

    /// Whether headers of records are kept apart from the logs, in non-volatile RAM.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Whether the table in non-volatile RAM is so full that a checkpoint should begin.
    #[must_use]
    pub fn is_table_crowded(&self) -> bool {
        self.apart.as_ref().is_some_and(NvTable::is_crowded)
    }

    /// Keeps headers in `table`. The store must be empty.
    pub fn keep_apart(&mut self, table: NvTable) {
        self.apart = Some(table);
    }

    /// Fills a new store with the versions and the floor found in `table`.
    pub fn fill_from(&mut self, table: NvTable, found: super::Replayed) {
        self.apart = Some(table);
        self.roots.on_disk.raise(Floors::both(found.floor));
        self.fill(found.versions);
    }

    /// Begins an incarnation of the table: of the one that recovery found, or of an empty one in
    /// the memory `given`. Returns the floor.
    pub fn begin_apart(
        &mut self,
        given: Option<Rc<dyn Nvram>>,
        volume: VolumeId,
        largest: Room,
        root: &Root,
    ) -> Result<DataSequence, NvramError> {
        let incarnation = root.incarnation.0;
        if let Some(table) = &mut self.apart {
            let snapshot = encode(0, self.logs.iter(), self.map.iter());
            table.begin(&snapshot, root.floor, incarnation)?;
            return Ok(root.floor);
        }
        let memory = given.ok_or(NvramError::Missing)?;
        // No version that was ever logged counts.
        let floor = self.sequences.next_data;
        self.apart = Some(create(memory, volume, &self.logs, largest, floor, incarnation)?);
        Ok(floor)
    }

    /// Whether headers of `bytes` bytes surely fit the table apart, once all waiting entries are
    /// durable. Rewrites the table if that may help. `spared`: see [`Store::fits_spared`].
    pub fn fits_apart(&mut self, bytes: u64, spared: bool) -> bool {
        let Some(table) = &self.apart else { return true };
        if table.fits(bytes, spared) {
            return true;
        }
        if !table.is_worth_rewriting() || !self.rewrite_apart() {
            return false;
        }
        self.apart.as_ref().is_some_and(|table| table.fits(bytes, spared))
    }

    /// Replaces snapshot and journal by one snapshot with the content of both; false if that
    /// failed.
    pub fn rewrite_apart(&mut self) -> bool {
        let Some(table) = &mut self.apart else { return false };
        if table.failed {
            return false;
        }
        let installed = table
            .replayed_snapshot(self.logs.blank())
            .ok()
            .and_then(|(snapshot, floor)| table.install(&snapshot, floor).ok());
        if installed.is_none() {
            self.fail_apart();
        }
        installed == Some(true)
    }

    /// Rewrites the table after a checkpoint: a table that is still large has no more room to gain.
    pub fn rewrite_after_checkpoint(&mut self) {
        self.rewrite_apart();
        if let Some(table) = &mut self.apart {
            table.crowded = false;
        }
    }

    /// The header of a record. Sets room aside in the journal, for when the record is durable.
    pub fn header_apart(&mut self, record: &Record) -> Bytes {
        let Some(table) = &mut self.apart else { return Bytes::new() };
        let header = record.encode();
        table.in_flight += entry_len(header.len()) as u64;
        header
    }

    /// Gives back the room of a header whose record will not be written.
    pub fn drop_header(&mut self, header: &Bytes) {
        if header.is_empty() {
            return;
        }
        if let Some(table) = &mut self.apart {
            table.in_flight -= entry_len(header.len()) as u64;
        }
    }

    /// Makes the headers of records durable in the journal once their payload is durable. If that
    /// fails, the records' waiters get an error and the volume becomes read-only.
    pub fn journal(&mut self, records: &[RecordSequence]) -> bool {
        if self.apart.is_none() || records.is_empty() {
            return true;
        }
        for sequence in records {
            let record = self.entries.records.get_mut(*sequence);
            let header = record.map(|record| std::mem::take(&mut record.header));
            let Some(header) = header.filter(|header| !header.is_empty()) else { continue };
            self.drop_header(&header);
            if !self.push_entry(&Entry::Record(header.into())) {
                return self.fail_records(records);
            }
        }
        let persisted = self.apart.as_mut().is_none_or(|table| table.persist().is_ok());
        persisted || self.fail_records(records)
    }

    fn push_entry(&mut self, entry: &Entry) -> bool {
        let push = |store: &mut Self| store.apart.as_mut().is_some_and(|table| table.push(entry));
        // Room was set aside, so this second try should never be needed.
        push(self) || (self.rewrite_apart() && push(self))
    }

    fn fail_apart(&mut self) {
        if let Some(table) = &mut self.apart {
            table.failed = true;
        }
        self.fail(FAILED);
    }

    fn fail_records(&mut self, records: &[RecordSequence]) -> bool {
        self.fail_apart();
        for sequence in records {
            let slots = self.entries.records.get(*sequence).map(|record| record.slots.clone());
            for id in slots.unwrap_or_default() {
                if let Some(waiter) = self.entries.slots.get_mut(id).waiter.take() {
                    waiter.complete(Err(IoError::ReadOnly { reason: FAILED }));
                }
            }
        }
        false
    }

    /// Makes `floor` durable in non-volatile RAM.
    pub fn keep_floor(&mut self, floor: DataSequence) -> Result<(), IoError> {
        let kept = plant::is(Bug::NvramFloorNotKept) || self.push_entry(&Entry::Floor(floor));
        let kept = kept && self.apart.as_mut().is_some_and(|table| table.persist().is_ok());
        if !kept {
            self.fail_apart();
            return Err(IoError::ReadOnly { reason: FAILED });
        }
        self.roots.on_disk.raise(Floors::both(floor));
        Ok(())
    }
}
