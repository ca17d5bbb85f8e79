//! The drives of a chain that is opened, and what their records say.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, Sectors};
use manylogs_engine::{FoundRoot, InDoubt, PatientReads, RootSlot, Scanner, find_root, read_copy};
use manylogs_logstore::ondisk::equal_logs::least_device;
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Store, Versions};
use manylogs_logstore::{Floors, Incarnation, LogId, Scanned};
use manylogs_plant::{self as plant, Bug};

use crate::error::ChainError;
use crate::keeper::{Drive, Keeper, NotChanged};
use crate::limit::SEGMENTS_LEAST;
use crate::ondisk::{Superblock, root_slots};
use crate::pair::Pair;
use crate::roster::Roster;

/// The links of a chain, in its order, and their labels.
pub(super) struct Found {
    pub(super) drives: Vec<Rc<dyn BlockDevice>>,
    /// The same links, as an opening reads them: reads that fail for a while are tried again.
    pub(super) reads: Vec<Rc<dyn BlockDevice>>,
    /// The label of a current drive of each link.
    pub(super) superblocks: Vec<Superblock>,
    pub(super) keeper: Rc<Keeper>,
    /// The mirrored links; none if the links are single drives.
    pub(super) pairs: Vec<Pair>,
    /// Ids of current drives that are missing.
    pub(super) missing: Vec<u64>,
    /// Id of the drive that joins, if it missed something since the copy's progress was noted.
    behind: Option<u64>,
}

impl Found {
    /// Finds the chain whose members are `drives`, given in any order. If the chain may be
    /// `degraded`, halves may be missing of which the twin is there.
    pub(super) async fn on(
        runtime: &Handle,
        drives: Vec<Rc<dyn BlockDevice>>,
        degraded: bool,
    ) -> Result<Self, ChainError> {
        let mut found = Vec::with_capacity(drives.len());
        for (index, device) in drives.into_iter().enumerate() {
            let reads: Rc<dyn BlockDevice> = PatientReads::new(Rc::clone(&device), runtime.clone());
            let label = superblock_of(&reads, index).await?;
            found.push(Drive { device, label, given: index });
        }
        let newest = newest(&found)?;
        let (roster, links) = (newest.roster, usize::from(newest.drives));
        let missing = missing(&found, &roster, links, degraded)?;
        let behind = behind(&found, &newest);
        found.retain(|drive| roster.link_of(drive.label.id).is_some());
        let keeper = Rc::new(Keeper::new(roster, newest.opening, found));
        let with = Self::with(runtime, keeper, links, newest.halves, missing);
        Ok(Self { behind, ..with })
    }

    /// The links of drives that `keeper` knows.
    pub(super) fn with(
        runtime: &Handle,
        keeper: Rc<Keeper>,
        links: usize,
        halves: u32,
        missing: Vec<u64>,
    ) -> Self {
        let of_link = |link| keeper.current(link).into_iter().next();
        let firsts: Vec<Drive> = (0..links).filter_map(of_link).collect();
        let pair = |link| Pair::new(runtime.clone(), Rc::clone(&keeper), link, true);
        let pairs: Vec<Pair> = if halves > 1 { (0..links).map(pair).collect() } else { Vec::new() };
        let alone = firsts.iter().map(|drive| Rc::clone(&drive.device));
        let drives: Vec<Rc<dyn BlockDevice>> = match pairs.is_empty() {
            true => alone.collect(),
            false => {
                pairs.iter().map(|pair| Rc::new(pair.clone()) as Rc<dyn BlockDevice>).collect()
            }
        };
        let patient = |link: &Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
            PatientReads::new(Rc::clone(link), runtime.clone())
        };
        let reads = drives.iter().map(patient).collect();
        let superblocks = firsts.iter().map(|drive| drive.label).collect();
        Self { drives, reads, superblocks, keeper, pairs, missing, behind: None }
    }

    /// The newest root, and its slot. An error if a drive's opening is older than the root, or
    /// newer by more than one.
    pub(super) async fn root(&self) -> Result<(Root, usize), ChainError> {
        self.newest_of(self.roots().await?)
    }

    /// The roots of the chain, as an opening finds them.
    pub(super) async fn roots(&self) -> Result<FoundRoot, ChainError> {
        let (chain, segments) = (self.superblocks[0].chain, self.logs().count());
        Ok(find_root(&self.reads, &root_slots(), chain, segments).await?)
    }

    /// See [`Found::root`].
    pub(super) fn newest_of(&self, found: FoundRoot) -> Result<(Root, usize), ChainError> {
        let (root, slot) = found.newest.ok_or(ChainError::NoRoot)?;
        let links = self.superblocks.len();
        let current: Vec<Drive> = (0..links).flat_map(|link| self.keeper.current(link)).collect();
        let openings = current.iter().map(|drive| drive.label.opening);
        // A drive that is not current any more may know of newer openings.
        let newest = openings.max().unwrap_or(0).max(root.incarnation.0);
        let newest = newest.max(self.keeper.opening());
        for Drive { label, given, .. } in &current {
            let (drive, found) = (*given, label.opening);
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
    /// counts that opening. Halves that are missing leave their links.
    pub(super) async fn begin_opening(
        &self,
        last: Incarnation,
        root: (&Root, usize),
    ) -> Result<(), ChainError> {
        if !self.pairs.is_empty() {
            // A crash may have left the root on one half alone.
            let RootSlot { device, place } = root_slots()[root.1];
            let link = &self.drives[usize::from(device.0)];
            link.submit(root.0.write_to(place, self.superblocks[0].chain)).await?;
        }
        let begun = self.keeper.begin(last.0.saturating_add(1), &self.missing, self.behind);
        begun.await.map_err(|why| match why {
            NotChanged::Io(error) => error.into(),
            NotChanged::Impossible(_) => ChainError::NoRoster,
        })
    }

    /// The drive of each link that is read if the half `half` is to be judged: the other one if it
    /// is missing.
    pub(super) fn drives_used(&self, half: usize) -> Vec<Drive> {
        (0..self.superblocks.len()).filter_map(|link| self.drive_used(link, half)).collect()
    }

    /// The drive of a link among those of [`Found::drives_used`].
    pub(super) fn drive_used(&self, link: usize, half: usize) -> Option<Drive> {
        let current = self.keeper.current(link);
        current.get(half).or(current.first()).cloned()
    }

    /// The same chain, with one drive of each link alone. Nothing can be written to the other.
    pub(super) fn alone(self, runtime: &Handle, half: usize) -> Self {
        let used = self.drives_used(half);
        let patient = |drive: &Drive| -> Rc<dyn BlockDevice> {
            PatientReads::new(Rc::clone(&drive.device), runtime.clone())
        };
        let drives = used.iter().map(|drive| Rc::clone(&drive.device)).collect();
        let reads = used.iter().map(patient).collect();
        let superblocks = used.iter().map(|drive| drive.label).collect();
        Self { drives, reads, superblocks, pairs: Vec::new(), ..self }
    }

    /// Fills `store` from the records in the segments. Returns the places where halves of a link
    /// may differ after a crash.
    pub(super) async fn recover(&self, store: &mut Store) -> Result<InDoubt, ChainError> {
        let refuse = |segment, scanned: &Scanned| {
            let unknown = scanned.damage.iter().find(|damage| !damage.known);
            unknown.map_or(Ok(()), |damage| {
                let (offset, sectors) = (damage.offset, damage.sectors);
                Err(ChainError::Damaged { segment, offset, sectors })
            })
        };
        self.recover_with(store, refuse).await
    }

    /// As [`Found::recover`]; `judge` looks at each segment first.
    pub(super) async fn recover_with(
        &self,
        store: &mut Store,
        mut judge: impl FnMut(LogId, &Scanned) -> Result<(), ChainError>,
    ) -> Result<InDoubt, ChainError> {
        let (floor, first) = (store.floor(), &self.superblocks[0]);
        let mut versions = Versions::new(store.take_logs());
        let of = (store.volume(), first.physical, first.export);
        let segments = store.logs().ids().collect();
        let root = store.root();
        let differ = root.notes_copies.then(|| root.opened.clone());
        let scanner = Scanner::new(&self.reads, store.logs(), segments, of, floor);
        let mut scanner = scanner.in_doubt_only(differ);
        while let Some((segment, scanned)) = scanner.next().await? {
            judge(segment, &scanned)?;
            for record in &scanned.records {
                if store.root().is_older_than(record) {
                    return Err(ChainError::StaleRoot);
                }
                let whole = scanned.is_whole(record);
                versions.take_record(segment, record, Floors::both(floor), whole);
            }
        }
        store.fill(versions);
        Ok(scanner.in_doubt())
    }
}

/// The label with the newest roster. All drives must be of one chain, each once.
fn newest(found: &[Drive]) -> Result<Superblock, ChainError> {
    let first = found.first().ok_or(ChainError::Drives(0))?;
    for (index, Drive { label, .. }) in found.iter().enumerate() {
        if !label.is_of_one_chain(&first.label) {
            return Err(ChainError::Foreign { drive: index });
        }
        if found[..index].iter().any(|other| other.label.id == label.id) {
            return Err(ChainError::Twice { drive: index, member: label.drive.into() });
        }
    }
    let labels = || found.iter().map(|drive| &drive.label);
    let newest = labels().max_by_key(|label| label.age()).unwrap_or(&first.label);
    if plant::is(Bug::FormerHalfBelieved) {
        return Ok(first.label);
    }
    let same_age = |label: &&Superblock| label.age() == newest.age();
    if labels().filter(same_age).any(|label| label.roster != newest.roster) {
        return Err(ChainError::NoRoster);
    }
    Ok(*newest)
}

/// Ids of current drives that are not there. An error if a link has none, or if it may not be
/// `degraded`.
fn missing(
    found: &[Drive],
    roster: &Roster,
    links: usize,
    degraded: bool,
) -> Result<Vec<u64>, ChainError> {
    let is_there = |id: u64| found.iter().any(|drive| drive.label.id == id);
    let listed = |link: usize| roster.links[link].iter().map(|half| half.id).filter(|id| *id != 0);
    let gone = |link: &usize| !listed(*link).any(is_there);
    let gone: Vec<usize> = (0..links).filter(gone).collect();
    // A drive that is there, but left its link.
    let former = |drive: &&Drive| {
        gone.contains(&usize::from(drive.label.drive)) && roster.link_of(drive.label.id).is_none()
    };
    if let Some(drive) = found.iter().find(former) {
        return Err(ChainError::Former { drive: drive.given });
    }
    if !gone.is_empty() {
        return Err(ChainError::Missing { wanted: links, missing: gone });
    }
    let missing: Vec<u64> = (0..links).flat_map(listed).filter(|id| !is_there(*id)).collect();
    match missing.first().and_then(|id| roster.place(*id)) {
        Some((link, half)) if !degraded => Err(ChainError::HalfMissing { link, half }),
        _ => Ok(missing),
    }
}

/// The drive of which `newest` notes what was copied to it, unless that still holds. It holds if
/// the drive's own label is as new: then the drive took part in all that happened since.
fn behind(found: &[Drive], newest: &Superblock) -> Option<u64> {
    let joining = newest.roster.joining.filter(|joining| joining.copied > 0)?;
    let is_it = |drive: &&Drive| drive.label.id == joining.id;
    let has_all = found.iter().find(is_it).is_some_and(|it| it.label.age() == newest.age());
    (!has_all && !plant::is(Bug::AbsentHalfGoesOn)).then_some(joining.id)
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
