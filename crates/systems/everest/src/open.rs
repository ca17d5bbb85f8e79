//! Making a store, and opening one after an orderly close or a crash.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Nanos, Payload, Request, Sectors};
use manylogs_engine::{
    Engine, FoundRoot, Member, Members, PatientReads, PhaseProbe, RootSlot, Scanner,
    begin_incarnation, find_root, read_copy, reserve_sequences, retire_failed, run_committer,
    run_opener,
};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Device, Logs, Room, Store, Versions as Recovered};
use manylogs_logstore::{
    Damage, Entry, EntryKind, Floors, Log, LogId, RECORD_PAYLOAD_MAX, RecordShape, Scanned, Space,
    UnitTable, new_volume_id,
};
use manylogs_plant::{self as plant, Bug};
use manylogs_schedule::Targets;

use crate::ages::Ages;
use crate::call::StoreId;
use crate::cleaning::Cleaning;
use crate::error::StoreError;
use crate::left::{LeftTable, load};
use crate::ondisk::{Superblock, root_places, root_slots};
use crate::store::{CircularStore, Inner, State, StoreOptions};
use crate::versions::{Version, Versions};

/// The largest record is bounded so that a log takes this number of them.
const RECORDS_A_LOG: u64 = 4;
const LOG_LEAST: Sectors = Sectors(64);
const LOG_MOST: Sectors = Sectors((1 << 28) - 8);

/// The defaults of a volume: requests of clients are held back while records are expected on a lent
/// disk that has been busy for longer than `contended_after` without a pause.
const TARGETS: Targets =
    Targets { latency: Nanos::from_millis(10), contended_after: Nanos::from_millis(300) };

/// Devices and their superblocks.
pub(crate) struct Found {
    pub(crate) devices: Vec<Rc<dyn BlockDevice>>,
    /// The same devices, as an opening reads them: reads that fail for a while are tried again.
    pub(crate) reads: Vec<Rc<dyn BlockDevice>>,
    pub(crate) superblocks: Vec<Superblock>,
}

impl CircularStore {
    /// Makes an empty store on `devices` and overwrites their content.
    ///
    /// # Errors
    /// If the devices or the options make no store, or a device fails.
    pub async fn create(
        runtime: Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let found = Found::new(&runtime, devices, options)?;
        let logs = found.logs();
        let mut root = Root::first(logs.count());
        root.open_around(LogId(0), logs.count());
        let store = found.superblocks[0].store;
        for RootSlot { device, place } in root_slots(found.roots_on_two(), |_| false) {
            found.devices[usize::from(device.0)].submit(root.write_to(place, store)).await?;
        }
        // The first copy on the first device is written last: only then the devices are a store.
        for (device, superblock) in found.devices.iter().zip(&found.superblocks).rev() {
            for place in Superblock::places(superblock.sectors).into_iter().rev() {
                let content = Payload::bytes(superblock.encode());
                device.submit(Request::write_fua(place, content)).await?;
            }
        }
        let store = Store::new(store, logs, root, 1);
        let (versions, ages) = (Versions::new(), Ages::default());
        let state = State { store, versions, ages, head: LogId(0) };
        let store = found.assemble(runtime, state);
        store.0.run();
        Ok(store)
    }

    /// Name of the store that `device` is a part of. Writes nothing.
    ///
    /// # Errors
    /// If the device holds no store, its superblock is damaged or of another format version, or it
    /// fails.
    pub async fn identify(device: &Rc<dyn BlockDevice>) -> Result<StoreId, StoreError> {
        superblock_of(device, 0).await.map(|superblock| superblock.store)
    }

    /// Opens the store on `devices`, given in the order in which it was made.
    ///
    /// # Errors
    /// If they hold no store, or one that is damaged or of another format version, or a device
    /// fails.
    pub async fn open(
        runtime: Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
    ) -> Result<Self, StoreError> {
        // Data that a killed process left in a drive's cache must be durable before it is believed.
        for device in &devices {
            device.submit(Request::Flush).await?;
        }
        let found = Found::on(&runtime, devices).await?;
        let (root, slot) = found.root().await?;
        let first = root.sequence_limit;
        let mut store = Store::new(found.superblocks[0].store, found.logs(), root, slot);
        retire_failed(&mut store);
        let left = found.left_table(&store).await?;
        let entries = match &left {
            None => found.recover(&mut store).await?,
            Some(_) => Vec::new(),
        };
        let reused = plant::is(Bug::StoreReusesSequences);
        let first = if reused { 1 + store.map().len() as u64 } else { first.0 };
        store.number_from(first);
        let (versions, ages) = match left {
            None => versions_of(&store, &entries),
            Some(table) => table.fill(&mut store),
        };
        let head = seal_all_but_the_newest(&mut store);
        let opened = found.assemble(runtime, State { store, versions, ages, head });
        if !begin_incarnation(&*opened.0).await? {
            return Err(StoreError::Worn);
        }
        opened.0.run();
        Ok(opened)
    }
}

impl Inner {
    /// Starts the store's tasks.
    fn run(self: &Rc<Self>) {
        let runtime = &self.engine.runtime;
        runtime.spawn(run_committer(Rc::clone(self)));
        runtime.spawn(Rc::clone(self).run_cleaner());
        runtime.spawn(run_opener(Rc::clone(self)));
        runtime.spawn(reserve_sequences(Rc::clone(self)));
    }
}

impl Found {
    fn new(
        runtime: &Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let (log, count) = (options.log, devices.len());
        if !log.0.is_multiple_of(8) || log < LOG_LEAST || !UnitTable::fits(log) {
            let (least, most) = (LOG_LEAST, LOG_MOST);
            return Err(StoreError::LogLength { given: log, least, most });
        }
        if !(1..=1024).contains(&count) {
            return Err(StoreError::Devices(count));
        }
        let told: Vec<_> = devices.iter().map(|device| device.capabilities()).collect();
        let physical = told.iter().map(|told| told.physical_sector).max().unwrap_or(Sectors(1));
        let store = new_volume_id(runtime);
        let (mut superblocks, has_table) = (Vec::new(), options.table.0 > 0);
        for (device, told) in told.iter().enumerate() {
            let table = if device == 0 { options.table } else { Sectors(0) };
            let (have, need) = (told.capacity, Superblock::least(log) + table);
            if have < need {
                return Err(StoreError::TooSmall { device, have, need });
            }
            superblocks.push(Superblock {
                store,
                device: manylogs_block::narrow(device),
                devices: manylogs_block::narrow(count),
                physical,
                log,
                sectors: have,
                roots_on_two: count > 1,
                table: has_table.then_some(if device == 0 { options.table } else { Sectors(0) }),
            });
        }
        Ok(Self { reads: devices.clone(), devices, superblocks })
    }

    pub(crate) async fn on(
        runtime: &Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
    ) -> Result<Self, StoreError> {
        let patient = |device: &Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
            PatientReads::new(Rc::clone(device), runtime.clone())
        };
        let reads: Vec<_> = devices.iter().map(patient).collect();
        let mut superblocks: Vec<Superblock> = Vec::new();
        for (index, device) in reads.iter().enumerate() {
            let superblock = superblock_of(device, index).await?;
            let first = superblocks.first().unwrap_or(&superblock);
            let fits = superblock.store == first.store
                && usize::from(superblock.device) == index
                && usize::from(superblock.devices) == devices.len()
                && (superblock.log, superblock.physical) == (first.log, first.physical)
                && superblock.roots_on_two == first.roots_on_two;
            if !fits {
                return Err(StoreError::OtherDevice { device: index });
            }
            superblocks.push(superblock);
        }
        if superblocks.is_empty() {
            return Err(StoreError::Devices(0));
        }
        Ok(Self { devices, reads, superblocks })
    }

    fn roots_on_two(&self) -> bool {
        self.superblocks[0].roots_on_two
    }

    fn record(&self) -> Sectors {
        Sectors((self.superblocks[0].log.0 / RECORDS_A_LOG - 8).min(RECORD_PAYLOAD_MAX.0))
    }

    fn shape(&self) -> RecordShape {
        RecordShape::in_log(self.superblocks[0].physical)
    }

    /// The most room that an entry needs.
    fn largest(&self) -> Room {
        Room::of_one(
            EntryKind::Data,
            Extent { len: self.record(), ..Extent::default() },
            self.shape(),
        )
    }

    pub(crate) fn logs(&self) -> Logs {
        let regions: Vec<(Device, Extent)> =
            self.superblocks.iter().flat_map(Superblock::logs).collect();
        Logs::on_devices(&regions, self.largest().log, self.shape())
    }

    async fn root(&self) -> Result<(Root, usize), StoreError> {
        let found = self.roots().await?;
        let (root, place) = found.newest.ok_or(StoreError::NoRoot)?;
        Ok((root, place % 2))
    }

    pub(crate) async fn roots(&self) -> Result<FoundRoot, StoreError> {
        let (store, logs) = (self.superblocks[0].store, self.logs().count());
        let places = root_places(self.roots_on_two());
        Ok(find_root(&self.reads, &places, store, logs).await?)
    }

    /// The table that an orderly close left, if nothing was written since.
    pub(crate) async fn left_table(&self, store: &Store) -> Result<Option<LeftTable>, IoError> {
        let Some(place) = self.superblocks[0].table_place() else { return Ok(None) };
        let loaded = load(&self.reads[0], place, store.root()).await?;
        let regions: Vec<Extent> =
            self.superblocks.iter().flat_map(Superblock::logs).map(|(_, log)| log).collect();
        let (physical, limit) = (self.superblocks[0].physical, store.root().sequence_limit);
        Ok(loaded.filter(|table| table.fits(&regions, physical, limit)))
    }

    /// Fills `store` from the logs. Returns the entries found, by log and in order.
    async fn recover(&self, store: &mut Store) -> Result<Vec<Entry>, StoreError> {
        self.recover_with(store, |log, scanned| {
            match scanned.damage.iter().find(|damage| !damage.known) {
                Some(&Damage { offset, sectors, .. }) => {
                    Err(StoreError::Damaged { log, offset, sectors })
                }
                None => Ok(()),
            }
        })
        .await
    }

    /// As [`Found::recover`], whatever is damaged, unless `note` objects to what a log holds.
    pub(crate) async fn recover_with(
        &self,
        store: &mut Store,
        mut note: impl FnMut(LogId, &Scanned) -> Result<(), StoreError>,
    ) -> Result<Vec<Entry>, StoreError> {
        let (floor, mut entries) = (store.floor(), Vec::new());
        let mut versions = Recovered::new(store.take_logs());
        let of = (store.volume(), self.superblocks[0].physical, Space::END);
        let used = &store.root().used;
        let logs = store.logs().ids().filter(|log| used.contains(*log)).collect();
        let mut scanner = Scanner::new(&self.reads, store.logs(), logs, of, floor);
        while let Some((log, scanned)) = scanner.next().await? {
            note(log, &scanned)?;
            for record in &scanned.records {
                if store.root().is_older_than(record) {
                    return Err(StoreError::StaleRoot);
                }
                versions.take_record(log, record, Floors::both(floor), scanned.is_whole(record));
                entries.extend_from_slice(&record.entries);
            }
        }
        store.fill(versions);
        Ok(entries)
    }

    pub(crate) fn assemble(self, runtime: Handle, state: State) -> CircularStore {
        let (record, largest) = (self.record(), self.largest());
        // The live versions of the tail must fit at the head before the tail can be reset.
        let for_cleaning = Room { log: self.superblocks[0].log, ..largest };
        let for_deletions = Room { log: Sectors(self.superblocks[0].log.0 / 2), ..largest };
        let member =
            |device| Member::new(device, PhaseProbe::default()).scheduled(&runtime, TARGETS);
        let (roots_on_two, table) = (self.roots_on_two(), self.superblocks[0].table_place());
        let members = Members::of_all(self.devices.into_iter().map(member).collect());
        let inner = Rc::new(Inner {
            engine: Engine::new(runtime.clone(), members, state),
            roots_on_two,
            record,
            spared: [for_cleaning, for_deletions],
            table,
            closing: Cell::default(),
            cleaning: Cleaning::default(),
        });
        CircularStore(inner)
    }
}

async fn superblock_of(
    device: &Rc<dyn BlockDevice>,
    index: usize,
) -> Result<Superblock, StoreError> {
    let sectors = device.capabilities().capacity;
    if sectors < Superblock::least(LOG_LEAST) {
        return Err(StoreError::NotAStore { device: index });
    }
    let mut refused = StoreError::NotAStore { device: index };
    for place in Superblock::places(sectors) {
        let Ok(read) = read_copy(device, place).await? else { continue };
        match Superblock::decode(&read.to_bytes().unwrap_or_default()) {
            Some(Ok(superblock)) if superblock.sectors <= sectors => return Ok(superblock),
            Some(Err(other)) => refused = other,
            _ => {}
        }
    }
    Err(refused)
}

/// The owners' versions of the mapped extents, and their ages, taken from the entries.
pub(crate) fn versions_of(store: &Store, entries: &[Entry]) -> (Versions, Ages) {
    let (mut versions, mut ages) = (Versions::new(), Ages::default());
    for entry in entries {
        for (part, mapped) in store.map().lookup(entry.extent) {
            if mapped.is_some_and(|mapped| mapped.sequence == entry.data_sequence) {
                versions.insert(part, Version(entry.version));
                ages.add(entry.data_sequence, entry.extent);
            }
        }
    }
    (versions, ages)
}

/// Returns the log that was appended to last: it stays the head. Seals the others, so the rest of
/// each stays unused.
pub(crate) fn seal_all_but_the_newest(store: &mut Store) -> LogId {
    let used = |store: &Store| -> Vec<LogId> {
        store.logs().iter().filter(|log| log.used().0 > 0).map(Log::id).collect()
    };
    let newest = |id: &LogId| store.logs().get(*id).map(Log::epoch);
    let head = used(store).into_iter().max_by_key(newest).unwrap_or_default();
    for id in used(store) {
        if id != head {
            store.seal(id);
        }
    }
    head
}

const _: () = assert!(LOG_LEAST.0 / RECORDS_A_LOG > 8);
