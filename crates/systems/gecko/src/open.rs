//! Making a chain, and opening one after an orderly close or a crash.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Handle, Payload, Request, Sectors, Signal, TaskLock, narrow, to_usize,
};
use manylogs_engine::{
    Engine, Member, Members, PhaseProbe, RootSlot, begin_incarnation, reserve_sequences,
    retire_failed, run_committer, run_opener,
};
use manylogs_logstore::ondisk::equal_logs::{least_device, log_count};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Device, Logs, Room, Store};
use manylogs_logstore::{Log, LogId, RecordShape, Summary, UnitTable, VolumeId, new_volume_id};
use manylogs_plant::{self as plant, Bug};

use crate::chain::Chain;
use crate::error::ChainError;
use crate::keeper::{Drive, Keeper};
use crate::limit::{DRIVES_MOST, Geometry, SEGMENTS_LEAST};
use crate::ondisk::{Superblock, root_slots};
use crate::policy::ChainSettings;
use crate::roster::Roster;
use crate::sleep::{Beds, Rota};
use crate::state::{Inner, OpenedBy, State};
use crate::summaries::{Area, Floor, Tables};

mod examine;
mod found;
pub use examine::{ChainFinding, Depth, Examined, SegmentFound};
use found::Found;

const SEGMENT_LEAST: Sectors = Sectors(128);
const SEGMENT_MOST: Sectors = Sectors((1 << 28) - 8);
/// Links of a chain.
const DRIVES: std::ops::RangeInclusive<usize> = 2..=DRIVES_MOST;

/// Options of making a chain.
#[derive(Clone, Copy, Debug)]
pub struct ChainOptions {
    /// Length of a segment, the unit of cleaning. A multiple of 8 sectors.
    pub segment: Sectors,
    /// Size of the exported device; by default the largest that cleaning can bear.
    pub export: Option<Sectors>,
    /// Whether each link is two drives with the same content: the first and the second one, the
    /// third and the fourth one, and so on.
    pub mirror: bool,
    /// Whether each link has room for summaries of another link's segments, so that an opening
    /// after a crash need not read all. Programs that do not know such chains refuse them. Zoned
    /// drives have none.
    pub summaries: bool,
}

impl Chain {
    /// Makes an empty chain of `drives`, in their order, and overwrites what they hold. Of each
    /// drive as much is used as the smallest has.
    ///
    /// # Errors
    /// If the drives or the options make no chain, or a drive fails.
    pub async fn create(
        runtime: Handle,
        drives: Vec<Rc<dyn BlockDevice>>,
        options: ChainOptions,
        settings: ChainSettings,
    ) -> Result<Self, ChainError> {
        let mut labels = lay_out(new_volume_id(&runtime), &drives, options)?;
        let halves = labels[0].halves.max(1);
        let mut ids: Vec<Vec<u64>> = vec![Vec::new(); labels.len() / to_usize(halves.into())];
        for (number, label) in labels.iter_mut().enumerate() {
            label.id = first_id(&label.chain, number);
            ids[usize::from(label.drive)].push(label.id);
        }
        let roster = Roster::first(&ids);
        let beds = Beds::new(&runtime);
        let settings = settings.for_links_of(to_usize(halves.into()));
        let (drives, sleepers) = beds.make_all(drives, settings.sleep).await;
        let of_chain = drives.into_iter().zip(&labels).enumerate();
        let of_chain = of_chain.map(|(index, (device, label))| Drive {
            device,
            label: Superblock { roster, ..*label },
            given: index,
            sleeper: None,
        });
        let of_chain: Vec<Drive> = of_chain.collect();
        let keeper = Rc::new(Keeper::new(roster, 1, of_chain.clone()));
        keeper.command(&sleepers);
        let found = Found::with(&runtime, keeper, &of_chain[0].label, Vec::new());
        let logs = found.logs_to_open();
        let mut root = Root::first(logs.count());
        // Recovery looks at all segments: most of them are used.
        logs.ids().for_each(|log| root.open_around(log, logs.count()));
        let (chain, links) = (found.label.chain, found.places.devices());
        for RootSlot { device, place } in root_slots(&roster, None) {
            links[usize::from(device.0)].submit(root.write_to(place, chain)).await?;
        }
        for (Drive { device, .. }, area) in of_chain.iter().zip(found.label.area()) {
            for table in area.mark_and_table() {
                device.submit(Request::write_fua(table, Payload::zeroes(table.len))).await?;
            }
        }
        // The first copy on the first drive is written last: only then the drives are a chain.
        for Drive { device, label, .. } in of_chain.iter().rev() {
            for write in label.writes() {
                device.submit(write).await?;
            }
        }
        found.places.pairs().for_each(|pair| pair.is_in_step());
        let mut store = Store::new(chain, logs, root, 1);
        let tables = found.tables();
        let tail = LogId(0);
        hold_unknown(&mut store, tables.as_ref());
        // Nothing was written yet that a summary could tell of.
        store.let_begin(tail);
        let state = State::new(store, tail, settings);
        let made = found.assemble(&runtime, state, (settings, tables, OpenedBy::default()), beds);
        made.0.run();
        Ok(made)
    }

    /// Opens the chain whose members are `drives`, given in any order.
    ///
    /// # Errors
    /// If a drive fails, is missing or is of no chain, or the chain is damaged or of another format
    /// version.
    pub async fn open(
        runtime: Handle,
        drives: Vec<Rc<dyn BlockDevice>>,
        settings: ChainSettings,
    ) -> Result<Self, ChainError> {
        let beds = Beds::new(&runtime);
        let (drives, sleepers) = beds.make_all(drives, settings.sleep).await;
        // Data that a killed process left in a drive's cache must be durable before it is believed.
        for drive in &drives {
            drive.submit(Request::Flush).await?;
        }
        let found = Found::on(&runtime, drives, settings.degraded).await?;
        found.keeper.command(&sleepers);
        let settings = settings.for_links_of(to_usize(found.label.halves.into()));
        let (root, slot) = found.root().await?;
        let (first, on_disk) = (root.sequence_limit, root.clone());
        let mut store = Store::new(found.label.chain, found.logs_to_open(), root, slot);
        retire_failed(&mut store);
        let tables = found.tables();
        let (in_doubt, opened_by) = found.recover(&mut store, tables.as_ref()).await?;
        let reused = plant::is(Bug::ChainReusesSequences);
        store.number_from(if reused { 1 + store.map().len() as u64 } else { first.0 });
        let tail = seal_all_but_the_newest(&mut store, tables.as_ref());
        if found.is_reset_first() && !plant::is(Bug::ZoneGoesOnAfterCrash) {
            store.end_epochs();
        }
        found.begin_opening(store.root().incarnation, (&on_disk, slot)).await?;
        let (places, is_mirrored) = (found.places.clone(), found.is_mirrored());
        let mut state = State::new(store, tail, settings);
        state.close_all();
        let opened = found.assemble(&runtime, state, (settings, tables, opened_by), beds);
        if is_mirrored {
            opened.0.settle_tables(tail).await?;
            let settled = in_doubt.settle(&opened.0.engine.members, |_| true).await?;
            opened.0.settled.set(settled);
            places.pairs().for_each(|pair| pair.is_in_step());
        }
        if !begin_incarnation(&*opened.0).await? {
            return Err(ChainError::Worn);
        }
        opened.0.run();
        opened.0.resume_joining();
        opened.0.resume_leaving();
        Ok(opened)
    }
}

impl Chain {
    /// Checks that `drives` and `options` make a chain. Nothing is written.
    ///
    /// # Errors
    /// If they do not.
    pub fn check(drives: &[Rc<dyn BlockDevice>], options: ChainOptions) -> Result<(), ChainError> {
        lay_out([0; 16], drives, options).map(drop)
    }
}

impl Inner {
    /// Starts the chain's tasks.
    fn run(self: &Rc<Self>) {
        let runtime = &self.engine.runtime;
        runtime.spawn(run_committer(Rc::clone(self)));
        self.start_cleaners();
        runtime.spawn(Rc::clone(self).run_flusher());
        runtime.spawn(run_opener(Rc::clone(self)));
        if self.is_mirrored() {
            runtime.spawn(Rc::clone(self).run_namer());
        }
        if let Some(settings) = self.settings.sleep {
            runtime.spawn(Rc::clone(self).run_rota(settings));
            runtime.spawn(Rc::clone(self).run_renewer());
        }
        runtime.spawn(reserve_sequences(Rc::clone(self)));
        runtime.spawn(Rc::clone(self).run_summarizer());
    }
}

impl Found {
    /// Whether segments must be reset before they are written again.
    fn is_reset_first(&self) -> bool {
        self.places.devices().iter().any(BlockDevice::is_reset_first)
    }

    fn geometry(&self) -> Geometry {
        let first = &self.label;
        Geometry {
            drives: self.keeper.roster().in_use().count(),
            per_drive: first.segments,
            segment: first.segment,
            shape: RecordShape::in_log(first.physical),
        }
    }

    fn logs(&self) -> Logs {
        let roster = self.keeper.roster();
        let regions = (0..roster.places()).flat_map(|place| self.label.regions(place));
        let (regions, geometry) = (regions.collect::<Vec<_>>(), self.geometry());
        let mut logs =
            Logs::on_devices(&regions, geometry.largest().log, geometry.shape).with_inverse();
        for place in (0..roster.places()).filter(|place| !roster.has(*place)) {
            logs.shut(Device(narrow(place)));
        }
        if self.is_reset_first() { logs.with_reset_first() } else { logs }
    }

    /// The logs of a chain that is opened: they keep summaries if the chain does.
    fn logs_to_open(&self) -> Logs {
        match self.label.area() {
            Some(area) => self.logs().with_summaries(to_usize(area.slot.bytes())),
            None => self.logs(),
        }
    }

    /// The tables of an opened chain that keeps summaries, without what they say.
    fn tables(&self) -> Option<Tables> {
        let area = self.label.area()?;
        Some(Tables::new(area, self.label.chain, self.label.physical))
    }

    fn assemble(
        self,
        runtime: &Handle,
        state: State,
        (settings, tables, opened_by): (ChainSettings, Option<Tables>, OpenedBy),
        beds: Beds,
    ) -> Chain {
        let geometry = self.geometry();
        // The live content of a segment must fit at the tail before the segment can be reset.
        let spared = Room { log: geometry.segment, ..geometry.largest() };
        let member = |drive| Member::new(drive, PhaseProbe::default());
        let members = self.places.devices().into_iter().map(member).collect();
        let members = Members::of_all(members);
        Chain(Rc::new(Inner {
            engine: Engine::new(runtime.clone(), members, state),
            geometry,
            settings,
            export: self.label.export,
            label: self.label,
            keeper: self.keeper,
            places: self.places,
            tables,
            opened_by,
            is_changing: Cell::default(),
            stopped: RefCell::default(),
            beds,
            rota: Rota::default(),
            is_noting_sleepers: Cell::default(),
            cleaners: Cell::default(),
            copying: Cell::default(),
            naming: TaskLock::default(),
            looked: Cell::default(),
            settled: Cell::default(),
            spared,
            longest: Cell::default(),
            alarm: Cell::default(),
            cache_wanted: Signal::default(),
            flush_asked: Signal::default(),
        }))
    }
}

/// The id of a drive of a new chain, the `number`th of them. It is as random as that of the chain,
/// and no two are the same.
fn first_id(chain: &VolumeId, number: usize) -> u64 {
    let (high, _) = chain.split_at(8);
    let mixed = high.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    // A multiple of 16 and more than that, so that it is never zero.
    (mixed << 4) + 1 + number as u64
}

/// The superblocks of a new chain.
fn lay_out(
    chain: VolumeId,
    drives: &[Rc<dyn BlockDevice>],
    options: ChainOptions,
) -> Result<Vec<Superblock>, ChainError> {
    let halves = if options.mirror { 2 } else { 1 };
    let (segment, count) = (options.segment, drives.len() / halves);
    if !drives.len().is_multiple_of(halves) {
        return Err(ChainError::Odd(drives.len()));
    }
    if !DRIVES.contains(&count) {
        return Err(ChainError::Drives(count));
    }
    if options.mirror && drives.iter().any(BlockDevice::is_reset_first) {
        return Err(ChainError::ZonedPair);
    }
    if !segment.0.is_multiple_of(8) || segment < SEGMENT_LEAST || !UnitTable::fits(segment) {
        let (least, most) = (SEGMENT_LEAST, SEGMENT_MOST);
        return Err(ChainError::SegmentLength { given: segment, least, most });
    }
    let told: Vec<_> = drives.iter().map(|drive| drive.capabilities()).collect();
    let is_zoned = drives.iter().any(BlockDevice::is_reset_first);
    let slot = match options.summaries && !is_zoned {
        true => Area::slot_for(segment),
        false => Sectors(0),
    };
    let area = Area { segments: SEGMENTS_LEAST, slot };
    let area = if slot.0 > 0 { area.len() } else { Sectors(0) };
    let need = least_device(SEGMENTS_LEAST, segment) + area;
    for (drive, have) in told.iter().map(|told| told.capacity).enumerate() {
        if have < need {
            return Err(ChainError::TooSmall { drive, have, need });
        }
    }
    let physical = told.iter().map(|told| told.physical_sector).max().unwrap_or(Sectors(1));
    let smallest = told.iter().map(|told| told.capacity).min().unwrap_or_default();
    let segments = match slot.0 {
        0 => log_count(smallest, segment),
        _ => Area::segments_on(smallest, segment),
    };
    let shape = RecordShape::in_log(physical);
    let limit = Geometry { drives: count, per_drive: segments, segment, shape }.export_limit();
    let export = options.export.unwrap_or(limit);
    if export > limit || export.0 == 0 {
        return Err(ChainError::Export { given: export, limit });
    }
    let of_drive = |(drive, told): (usize, &manylogs_block::Capabilities)| Superblock {
        chain,
        drive: narrow(drive / halves),
        halves: narrow(halves),
        physical,
        segment,
        segments,
        export,
        sectors: told.capacity,
        opening: 1,
        id: 0,
        roster: Roster::default(),
        slot,
    };
    Ok(told.iter().enumerate().map(of_drive).collect())
}

/// Returns the segment that was appended to last: it stays the tail. Seals the others, so the rest
/// of each stays unused. Seals also a tail of which a summary may count.
fn seal_all_but_the_newest(store: &mut Store, tables: Option<&Tables>) -> LogId {
    // One that was believed is not kept in memory.
    let is_summarized = |log: &Log| {
        let is_read = log.summary().is_some_and(Summary::is_whole);
        tables.is_some_and(|tables| !is_read || !tables.is_known(log.id()))
    };
    let used = |log: &&Log| !log.is_empty();
    let used: Vec<LogId> = store.logs().iter().filter(used).map(Log::id).collect();
    let newest = |id: &&LogId| store.logs().get(**id).map(Log::bound);
    let tail = used.iter().max_by_key(newest).copied().unwrap_or_default();
    for id in used {
        if id != tail || store.logs().get(id).is_some_and(is_summarized) {
            store.seal(id);
        }
        store.reset_small(id);
    }
    hold_unknown(store, tables);
    tail
}

/// Keeps segments that hold nothing from being written before they have a floor.
fn hold_unknown(store: &mut Store, tables: Option<&Tables>) {
    let Some(tables) = tables else { return };
    let has_floor = |id| tables.is_known(id) && tables.floor(id) != Floor::None;
    for id in store.logs().ids().filter(|id| !has_floor(*id)) {
        if store.logs().is_unused(id) {
            store.hold(id);
        }
    }
}
