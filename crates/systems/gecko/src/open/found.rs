//! The drives of a chain that is opened, and what their records say.

use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, Payload, Request, Sectors, narrow};
use manylogs_engine::{FoundRoot, InDoubt, PatientReads, RootSlot, Scanner, find_root, read_copy};
use manylogs_logstore::ondisk::equal_logs::least_device;
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Store, Versions};
use manylogs_logstore::{Floors, Incarnation, Log, LogId, RecordShape, Scanned, VolumeId};
use manylogs_plant::{self as plant, Bug};

use crate::error::ChainError;
use crate::keeper::{Drive, Keeper, NotChanged};
use crate::limit::SEGMENTS_LEAST;
use crate::link::{Link, Places};
use crate::ondisk::{Superblock, root_slots, slots_meanwhile};
use crate::roster::{HALVES, Roster};
use crate::state::OpenedBy;
use crate::summaries::{SummaryReader, Tables, next_link};

/// The links of a chain, by their places.
pub(super) struct Found {
    runtime: Handle,
    pub(super) places: Places,
    /// The same links, as an opening reads them: reads that fail for a while are tried again.
    pub(super) reads: Vec<Rc<dyn BlockDevice>>,
    /// The label of one drive. What all drives have alike is used of it.
    pub(super) label: Superblock,
    pub(super) keeper: Rc<Keeper>,
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
            found.push(Drive { device, label, given: index, sleeper: None });
        }
        let newest = newest(&found)?;
        let roster = newest.roster;
        let missing = missing(&found, &roster, degraded)?;
        let behind = behind(&found, &newest);
        found.retain(|drive| roster.link_of(drive.label.id).is_some());
        let keeper = Rc::new(Keeper::new(roster, newest.opening, found));
        let with = Self::with(runtime, keeper, &newest, missing);
        Ok(Self { behind, ..with })
    }

    /// The links of drives that `keeper` knows, of a chain with this label.
    pub(super) fn with(
        runtime: &Handle,
        keeper: Rc<Keeper>,
        label: &Superblock,
        missing: Vec<u64>,
    ) -> Self {
        let places = Places::of(|place| Link::of(runtime, &keeper, place, true));
        let reads = patient(&places, runtime);
        let runtime = runtime.clone();
        Self { runtime, places, reads, label: *label, keeper, missing, behind: None }
    }

    pub(super) const fn is_mirrored(&self) -> bool {
        self.label.halves > 1
    }

    /// The current drives of all links.
    pub(super) fn current(&self) -> Vec<Drive> {
        self.keeper.roster().in_use().flat_map(|link| self.keeper.current(link)).collect()
    }

    /// The newest root, and its slot. An error if a drive's opening is older than the root, or
    /// newer by more than one.
    pub(super) async fn root(&self) -> Result<(Root, usize), ChainError> {
        self.newest_of(self.roots().await?)
    }

    /// The roots of the chain, as an opening finds them.
    pub(super) async fn roots(&self) -> Result<FoundRoot, ChainError> {
        let (chain, segments) = (self.label.chain, self.logs().count());
        let roster = self.keeper.roster();
        let slots = root_slots(&roster, None);
        let mut found = find_root(&self.reads, &slots, chain, segments).await?;
        if self.is_mirrored() && !plant::is(Bug::SleeperRootBelieved) {
            self.newer_roots(&roster, &mut found).await?;
        }
        // While a link was lost that is back now, the root may have been elsewhere.
        if let Some(slots) = slots_meanwhile(&roster).filter(|_| !self.is_mirrored()) {
            let meanwhile = find_root(&self.reads, &slots, chain, segments).await?.newest;
            let generation =
                |found: &Option<(Root, usize)>| found.as_ref().map(|it| it.0.generation);
            if generation(&meanwhile) > generation(&found.newest) {
                found.newest = meanwhile;
            }
        }
        Ok(found)
    }

    /// Looks for a newer root on each half by itself, in both places: while a half sleeps, roots
    /// are written to the other one alone (see the module `pair::root`).
    async fn newer_roots(&self, roster: &Roster, found: &mut FoundRoot) -> Result<(), ChainError> {
        let (chain, segments) = (self.label.chain, self.logs().count());
        let slots = root_slots(roster, None);
        let [first, second] = slots;
        // The index of a place tells its slot: that of the link that it is on.
        let elsewhere = |slot: RootSlot, place| RootSlot { place, ..slot };
        let all = [slots, [elsewhere(first, second.place), elsewhere(second, first.place)]];
        for half in 0..HALVES {
            let link = |link| self.drive_used(link, half).map(|drive| Link::Drive(drive.device));
            let reads = patient(&Places::of(link), &self.runtime);
            for slots in &all {
                let other = find_root(&reads, slots, chain, segments).await?.newest;
                let generation =
                    |found: &Option<(Root, usize)>| found.as_ref().map(|it| it.0.generation);
                if generation(&other) > generation(&found.newest) {
                    found.newest = other;
                }
            }
        }
        Ok(())
    }

    /// See [`Found::root`].
    pub(super) fn newest_of(&self, found: FoundRoot) -> Result<(Root, usize), ChainError> {
        let (root, slot) = found.newest.ok_or(ChainError::NoRoot)?;
        let current = self.current();
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
        if self.is_mirrored() {
            self.put_root_in_its_places(root).await?;
        }
        let begun = self.keeper.begin(last.0.saturating_add(1), &self.missing, self.behind);
        begun.await.map_err(|why| match why {
            NotChanged::Io(error) => error.into(),
            NotChanged::Impossible(_) => ChainError::NoRoster,
        })
    }

    /// Writes the root to its places on all halves, and zeroes to where it is on a half alone while
    /// the other one sleeps: a crash may have left it on one drive, and older programs do not look
    /// everywhere. The link that it was found on comes last.
    async fn put_root_in_its_places(&self, (root, slot): (&Root, usize)) -> Result<(), ChainError> {
        let (slots, links) = (root_slots(&self.keeper.roster(), None), self.places.devices());
        let link = |slot: RootSlot| &links[usize::from(slot.device.0)];
        for slot in [slots[1 - slot], slots[slot]] {
            link(slot).submit(root.write_to(slot.place, self.label.chain)).await?;
        }
        for (slot, place) in slots.into_iter().zip([slots[1].place, slots[0].place]) {
            let zeroes = Request::write_fua(place, Payload::zeroes(place.len));
            link(slot).submit(zeroes).await?;
        }
        Ok(())
    }

    /// The drive of each link that is read if the half `half` is to be judged: the other one if it
    /// is missing.
    pub(super) fn drives_used(&self, half: usize) -> Vec<Drive> {
        let links = self.keeper.roster().in_use();
        links.filter_map(|link| self.drive_used(link, half)).collect()
    }

    /// The drive of a link among those of [`Found::drives_used`].
    pub(super) fn drive_used(&self, link: usize, half: usize) -> Option<Drive> {
        let current = self.keeper.current(link);
        current.get(half).or(current.first()).cloned()
    }

    /// The same chain, with one drive of each link alone. Nothing can be written to the other.
    pub(super) fn alone(self, runtime: &Handle, half: usize) -> Self {
        let places =
            Places::of(|link| self.drive_used(link, half).map(|drive| Link::Drive(drive.device)));
        let reads = patient(&places, runtime);
        Self { places, reads, ..self }
    }

    /// Fills `store` from the records in the segments. Returns the places where halves of a link
    /// may differ after a crash.
    pub(super) async fn recover(
        &self,
        store: &mut Store,
        tables: Option<&Tables>,
    ) -> Result<(InDoubt, OpenedBy), ChainError> {
        let refuse = |segment, scanned: &Scanned| {
            let unknown = scanned.damage.iter().find(|damage| !damage.known);
            unknown.map_or(Ok(()), |damage| {
                let (offset, sectors) = (damage.offset, damage.sectors);
                Err(ChainError::Damaged { segment, offset, sectors })
            })
        };
        self.recover_with(store, tables, refuse).await
    }

    /// As [`Found::recover`]; `judge` looks at each segment first. With `tables`, which are filled
    /// here, summaries that they name are believed.
    pub(super) async fn recover_with(
        &self,
        store: &mut Store,
        tables: Option<&Tables>,
        mut judge: impl FnMut(LogId, &Scanned) -> Result<(), ChainError>,
    ) -> Result<(InDoubt, OpenedBy), ChainError> {
        let (floor, first) = (store.floor(), &self.label);
        let mut versions = Versions::new(store.take_logs());
        let of = (store.volume(), first.physical, first.export);
        let roster = self.keeper.roster();
        let mut believed = BTreeSet::new();
        if let Some(tables) = tables {
            let shape = store.logs().shape();
            let of = (store.volume(), first.segment, first.export, shape);
            let mut summaries = self.summaries(tables, &roster, of).await?;
            while let Some((segment, records)) = summaries.next().await {
                versions.logs.with(segment, Log::forgo_summary);
                let scanned = Scanned { records, ..Scanned::default() };
                take(store, &mut versions, segment, &scanned)?;
                believed.insert(segment);
            }
        }
        let segments = self.in_turns(&roster, &believed);
        let root = store.root();
        let differ = root.notes_copies.then(|| root.opened.clone());
        let scanner = Scanner::new(&self.reads, store.logs(), segments, of, floor);
        let mut scanner = scanner.in_doubt_only(differ);
        let mut opened_by = OpenedBy { summaries: believed.len() as u64, scanned: 0 };
        while let Some((segment, scanned)) = scanner.next().await? {
            judge(segment, &scanned)?;
            opened_by.scanned += u64::from(!scanned.records.is_empty());
            if !scanned.damage.is_empty() {
                versions.logs.with(segment, Log::forgo_summary);
            }
            take(store, &mut versions, segment, &scanned)?;
        }
        store.fill(versions);
        Ok((scanner.in_doubt(), opened_by))
    }

    /// Reads all tables, and begins to read the summaries that they name.
    async fn summaries<'a>(
        &self,
        tables: &'a Tables,
        roster: &Roster,
        of: (VolumeId, Sectors, Sectors, RecordShape),
    ) -> Result<SummaryReader<'a>, ChainError> {
        let keeper = |link| Some((link, next_link(roster, self.keeper.lost(), link)?));
        for (link, keeper) in roster.in_use().filter_map(keeper) {
            tables.read((link, &self.reads[link]), (keeper, &self.reads[keeper])).await?;
        }
        let kept = roster.in_use().filter_map(keeper);
        let kept = kept.map(|(link, keeper)| (link, Rc::clone(&self.reads[keeper])));
        Ok(SummaryReader::new(tables, kept, of))
    }

    /// The segments that must be read, of one link after the other in turn, so that all links are
    /// busy.
    fn in_turns(&self, roster: &Roster, believed: &BTreeSet<LogId>) -> Vec<LogId> {
        let segments = self.label.segments;
        let of_links = |index| roster.in_use().map(move |link| link as u64 * segments + index);
        let all = (0..segments).flat_map(of_links).map(|number| LogId(narrow(number)));
        all.filter(|id| !believed.contains(id)).collect()
    }
}

/// Takes the versions of a segment.
fn take(
    store: &Store,
    versions: &mut Versions,
    segment: LogId,
    scanned: &Scanned,
) -> Result<(), ChainError> {
    for record in &scanned.records {
        if store.root().is_older_than(record) {
            return Err(ChainError::StaleRoot);
        }
        let whole = scanned.is_whole(record);
        versions.take_record(segment, record, Floors::both(store.floor()), whole);
    }
    Ok(())
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
    if plant::is(Bug::RemovedLinkBelieved) {
        let most = labels().max_by_key(|label| (label.roster.in_use().count(), label.age()));
        return Ok(*most.unwrap_or(newest));
    }
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
fn missing(found: &[Drive], roster: &Roster, degraded: bool) -> Result<Vec<u64>, ChainError> {
    let is_there = |id: u64| found.iter().any(|drive| drive.label.id == id);
    let listed = |link: usize| roster.links[link].iter().map(|half| half.id).filter(|id| *id != 0);
    let gone = |link: &usize| !listed(*link).any(is_there);
    let gone: Vec<usize> = roster.in_use().filter(gone).collect();
    // A drive that is there, but left its link.
    let former = |drive: &&Drive| {
        gone.contains(&usize::from(drive.label.drive)) && roster.link_of(drive.label.id).is_none()
    };
    if let Some(drive) = found.iter().find(former) {
        return Err(ChainError::Former { drive: drive.given });
    }
    if !gone.is_empty() {
        return Err(ChainError::Missing { wanted: roster.places(), missing: gone });
    }
    let missing: Vec<u64> = roster.in_use().flat_map(listed).filter(|id| !is_there(*id)).collect();
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

fn patient(places: &Places, runtime: &Handle) -> Vec<Rc<dyn BlockDevice>> {
    let patient = |link| -> Rc<dyn BlockDevice> { PatientReads::new(link, runtime.clone()) };
    places.devices().into_iter().map(patient).collect()
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
