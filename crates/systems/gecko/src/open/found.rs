//! The drives of a chain that is opened, and what their records say.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, Sectors};
use manylogs_engine::{PatientReads, Scanner, find_root, read_copy};
use manylogs_logstore::ondisk::equal_logs::least_device;
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Store, Versions};
use manylogs_logstore::{Floors, Incarnation};
use manylogs_plant::{self as plant, Bug};

use crate::error::ChainError;
use crate::limit::SEGMENTS_LEAST;
use crate::ondisk::{Superblock, root_slots};

/// Drives and their superblocks, in the order of the chain.
pub(super) struct Found {
    pub(super) drives: Vec<Rc<dyn BlockDevice>>,
    /// The same drives, as an opening reads them: reads that fail for a while are tried again.
    pub(super) reads: Vec<Rc<dyn BlockDevice>>,
    pub(super) superblocks: Vec<Superblock>,
}

impl Found {
    /// Finds the chain whose members are `drives`, given in any order.
    pub(super) async fn on(
        runtime: &Handle,
        drives: Vec<Rc<dyn BlockDevice>>,
    ) -> Result<Self, ChainError> {
        let patient = |drive: &Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
            PatientReads::new(Rc::clone(drive), runtime.clone())
        };
        let reads: Vec<_> = drives.iter().map(patient).collect();
        let mut superblocks = Vec::with_capacity(reads.len());
        for (index, drive) in reads.iter().enumerate() {
            superblocks.push(superblock_of(drive, index).await?);
        }
        let mut order: Vec<Option<usize>> = match superblocks.first() {
            Some(first) => vec![None; first.drives.into()],
            None => return Err(ChainError::Drives(0)),
        };
        for (drive, superblock) in superblocks.iter().enumerate() {
            if !superblock.is_of_one_chain(&superblocks[0]) {
                return Err(ChainError::Foreign { drive });
            }
            let member = usize::from(superblock.drive);
            if order[member].replace(drive).is_some() {
                return Err(ChainError::Twice { drive, member });
            }
        }
        let places = order.iter().enumerate();
        let missing = places.filter(|(_, at)| at.is_none()).map(|(member, _)| member);
        let (wanted, missing) = (order.len(), missing.collect::<Vec<_>>());
        if !missing.is_empty() {
            return Err(ChainError::Missing { wanted, missing });
        }
        let order: Vec<usize> = order.into_iter().flatten().collect();
        Ok(Self {
            drives: order.iter().map(|at| Rc::clone(&drives[*at])).collect(),
            reads: order.iter().map(|at| Rc::clone(&reads[*at])).collect(),
            superblocks: order.iter().map(|at| superblocks[*at]).collect(),
        })
    }

    /// The newest root, and its slot. An error if a drive's opening is older than the root, or
    /// newer by more than one.
    pub(super) async fn root(&self) -> Result<(Root, usize), ChainError> {
        let (chain, segments) = (self.superblocks[0].chain, self.logs().count());
        let found = find_root(&self.reads, &root_slots(), chain, segments).await?;
        let (root, slot) = found.newest.ok_or(ChainError::NoRoot)?;
        let openings = self.superblocks.iter().map(|superblock| superblock.opening);
        let newest = openings.max().unwrap_or(0).max(root.incarnation.0);
        for (drive, superblock) in self.superblocks.iter().enumerate() {
            let found = superblock.opening;
            if found < root.incarnation.0 && !plant::is(Bug::StaleDriveBelieved) {
                return Err(ChainError::Stale { drive, found, newest });
            }
        }
        if newest > root.incarnation.0.saturating_add(1) {
            return Err(ChainError::StaleRoot);
        }
        Ok((root, slot))
    }

    /// Notes on every drive that it takes part in the opening after `last`, durably before the root
    /// counts that opening.
    pub(super) async fn begin_opening(&mut self, last: Incarnation) -> Result<(), ChainError> {
        for (drive, superblock) in self.drives.iter().zip(&mut self.superblocks) {
            superblock.opening = last.0.saturating_add(1);
            for write in superblock.writes() {
                drive.submit(write).await?;
            }
        }
        Ok(())
    }

    /// Fills `store` from the records in the segments.
    pub(super) async fn recover(&self, store: &mut Store) -> Result<(), ChainError> {
        let (floor, first) = (store.floor(), &self.superblocks[0]);
        let mut versions = Versions::new(store.take_logs());
        let of = (store.volume(), first.physical, first.export);
        let segments = store.logs().ids().collect();
        let mut scanner = Scanner::new(&self.reads, store.logs(), segments, of, floor);
        while let Some((segment, scanned)) = scanner.next().await? {
            if let Some(damage) = scanned.damage.iter().find(|damage| !damage.known) {
                let (offset, sectors) = (damage.offset, damage.sectors);
                return Err(ChainError::Damaged { segment, offset, sectors });
            }
            for record in &scanned.records {
                if store.root().is_older_than(record) {
                    return Err(ChainError::StaleRoot);
                }
                let whole = scanned.is_whole(record);
                versions.take_record(segment, record, Floors::both(floor), whole);
            }
        }
        store.fill(versions);
        Ok(())
    }
}

async fn superblock_of(
    drive: &Rc<dyn BlockDevice>,
    index: usize,
) -> Result<Superblock, ChainError> {
    let sectors = drive.capabilities().capacity;
    if sectors < least_device(SEGMENTS_LEAST, Sectors(8)) {
        return Err(ChainError::NotAChain { drive: index });
    }
    let mut refused = ChainError::NotAChain { drive: index };
    for place in Superblock::places(sectors) {
        let Ok(read) = read_copy(drive, place).await? else { continue };
        match Superblock::decode(&read.to_bytes().unwrap_or_default()) {
            Some(Ok(superblock)) if superblock.sectors <= sectors => return Ok(superblock),
            Some(Err(other)) => refused = other,
            _ => {}
        }
    }
    Err(refused)
}
