//! Making a store, and opening one after an orderly close or a crash.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Payload, Request, Sectors, Signal};
use manylogs_logstore::ondisk::root::{Left, Root};
use manylogs_logstore::store::{Device, Logs, Room, Store, Versions as Recovered};
use manylogs_logstore::{
    DataSequence, Entry, EntryKind, Incarnation, Log, LogId, RECORD_PAYLOAD_MAX, RecordSequence,
    RecordShape, ScanOf, Space, UnitTable, io, new_volume_id, scan,
};
use manylogs_plant::{self as plant, Bug};

use crate::ages::Ages;
use crate::error::StoreError;
use crate::ondisk::{Superblock, root_places};
use crate::store::{CircularStore, Inner, State, StoreOptions};
use crate::versions::{Version, Versions};

/// A log takes at least this number of the largest records.
const RECORDS_A_LOG: u64 = 4;
const LOG_LEAST: Sectors = Sectors(64);
const LOG_MOST: Sectors = Sectors((1 << 28) - 8);

/// Devices and their superblocks.
struct Members {
    devices: Vec<Rc<dyn BlockDevice>>,
    superblocks: Vec<Superblock>,
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
        let members = Members::new(&runtime, devices, options)?;
        let logs = members.logs();
        let mut root = Root::first(logs.count());
        // Recovery looks at all logs: a store is small, and most of it is used.
        logs.ids().for_each(|log| root.open_around(log, logs.count()));
        let store = members.superblocks[0].store;
        for place in root_places() {
            members.devices[0].submit(root.write_to(place, store)).await?;
        }
        // The first copy on the first device last: with that it is a store.
        for (device, superblock) in members.devices.iter().zip(&members.superblocks).rev() {
            for place in Superblock::places(superblock.sectors).into_iter().rev() {
                let content = Payload::bytes(superblock.encode());
                device.submit(Request::write_fua(place, content)).await?;
            }
        }
        let store = Store::new(store, logs, root, 1);
        let (versions, ages) = (Versions::new(), Ages::default());
        let state = State { store, versions, ages, head: LogId(0) };
        Ok(members.assemble(runtime, state))
    }

    /// Opens the store on `devices`, which are in the order in which it was made.
    ///
    /// # Errors
    /// If they hold no store, one that is newer or damaged, or a device fails.
    pub async fn open(
        runtime: Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
    ) -> Result<Self, StoreError> {
        // Data that a killed process left in a drive's cache must be durable before it is believed.
        for device in &devices {
            device.submit(Request::Flush).await?;
        }
        let members = Members::found(devices).await?;
        let (root, slot) = members.root().await?;
        let first = root.sequence_limit;
        let mut store = Store::new(members.superblocks[0].store, members.logs(), root, slot);
        for log in store.roots.on_disk.retired.clone() {
            store.logs.with(log, Log::retire);
        }
        let entries = members.recover(&mut store).await?;
        let reused = plant::is(Bug::StoreReusesSequences);
        let first = if reused { 1 + store.map.len() as u64 } else { first.0 };
        store.sequences.next_data = DataSequence(first);
        store.sequences.next_record = RecordSequence(first);
        let (versions, ages) = versions_of(&store, &entries);
        let head = seal_all_but_the_newest(&mut store);
        let opened = members.assemble(runtime, State { store, versions, ages, head });
        opened.0.begin_incarnation().await?;
        Ok(opened)
    }
}

impl Inner {
    /// Counts the opening and sets sequences aside for it, durably before anything is appended.
    async fn begin_incarnation(&self) -> Result<(), StoreError> {
        let limit = self.state.borrow().store.roots.on_disk.sequence_limit.extended();
        let limit = limit.ok_or(StoreError::Worn)?;
        let update = self.update_root(|root| {
            root.sequence_limit = limit;
            root.incarnation = Incarnation(root.incarnation.0.saturating_add(1));
            root.left = Left::Open;
        });
        Ok(update.await?)
    }
}

impl Members {
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
        let mut superblocks = Vec::new();
        for (device, told) in told.iter().enumerate() {
            let (have, need) = (told.capacity, Superblock::least(log));
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
            });
        }
        Ok(Self { devices, superblocks })
    }

    async fn found(devices: Vec<Rc<dyn BlockDevice>>) -> Result<Self, StoreError> {
        let mut superblocks: Vec<Superblock> = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let superblock = superblock_of(device, index).await?;
            let first = superblocks.first().unwrap_or(&superblock);
            let fits = superblock.store == first.store
                && usize::from(superblock.device) == index
                && usize::from(superblock.devices) == devices.len()
                && (superblock.log, superblock.physical) == (first.log, first.physical);
            if !fits {
                return Err(StoreError::OtherDevice { device: index });
            }
            superblocks.push(superblock);
        }
        if superblocks.is_empty() {
            return Err(StoreError::Devices(0));
        }
        Ok(Self { devices, superblocks })
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

    fn logs(&self) -> Logs {
        let regions: Vec<(Device, Extent)> =
            self.superblocks.iter().flat_map(Superblock::logs).collect();
        Logs::on_devices(&regions, self.largest().log, self.shape())
    }

    async fn root(&self) -> Result<(Root, usize), StoreError> {
        let (store, logs) = (self.superblocks[0].store, self.logs().count());
        let found = io::find_root(&self.devices[0], root_places(), store, logs).await?;
        found.newest.ok_or(StoreError::NoRoot)
    }

    /// Fills `store` from the logs. Returns the entries found, by log and in order.
    async fn recover(&self, store: &mut Store) -> Result<Vec<Entry>, StoreError> {
        let (floor, mut entries) = (store.roots.on_disk.floor, Vec::new());
        let mut versions = Recovered::new(store.logs.take());
        for log in store.logs.ids() {
            let device = &self.devices[usize::from(store.logs.device(log).0)];
            let of = ScanOf {
                volume: store.volume,
                log,
                region: store.logs.region(log),
                physical: self.superblocks[0].physical,
                floor,
                capacity: Space::END,
            };
            let scanned = scan(device, of, Payload::default()).await?;
            if let Some(damage) = scanned.damage.iter().find(|damage| !damage.known) {
                let (offset, sectors) = (damage.offset, damage.sectors);
                return Err(StoreError::Damaged { log, offset, sectors });
            }
            for record in &scanned.records {
                if store.roots.on_disk.is_older_than(record) {
                    return Err(StoreError::StaleRoot);
                }
                versions.take_record(log, record, floor, scanned.is_whole(record));
                entries.extend_from_slice(&record.entries);
            }
        }
        store.fill(versions);
        Ok(entries)
    }

    fn assemble(self, runtime: Handle, state: State) -> CircularStore {
        let (record, largest) = (self.record(), self.largest());
        // The live versions of the tail must fit at the head before the tail can be reset.
        let for_cleaning = Room { log: self.superblocks[0].log, ..largest };
        let for_deletions = Room { log: Sectors(self.superblocks[0].log.0 / 2), ..largest };
        let inner = Rc::new(Inner {
            runtime: runtime.clone(),
            devices: self.devices,
            record,
            spared: [for_cleaning, for_deletions],
            state: RefCell::new(state),
            commit: Signal::default(),
            progress: Signal::default(),
            wanted: Signal::default(),
            closed: Cell::new(false),
        });
        runtime.spawn(Rc::clone(&inner).run_committer());
        runtime.spawn(Rc::clone(&inner).run_cleaner());
        runtime.spawn(io::reserve_sequences(Rc::clone(&inner), ()));
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
        let Ok(read) = io::read_copy(device, place).await? else { continue };
        match Superblock::decode(&read.to_bytes().unwrap_or_default()) {
            Some(Ok(superblock)) if superblock.sectors <= sectors => return Ok(superblock),
            Some(Err(other)) => refused = other,
            _ => {}
        }
    }
    Err(refused)
}

/// The owners' versions of the table, and their ages, taken from the entries.
fn versions_of(store: &Store, entries: &[Entry]) -> (Versions, Ages) {
    let (mut versions, mut ages) = (Versions::new(), Ages::default());
    for entry in entries {
        for (part, mapped) in store.map.lookup(entry.extent) {
            if mapped.is_some_and(|mapped| mapped.sequence == entry.data_sequence) {
                versions.insert(part, Version(entry.version));
                ages.add(entry.data_sequence, entry.extent);
            }
        }
    }
    (versions, ages)
}

/// The log that was appended to last stays the head. The rest of every other log stays unused.
fn seal_all_but_the_newest(store: &mut Store) -> LogId {
    let used = |store: &Store| -> Vec<LogId> {
        store.logs.iter().filter(|log| log.used().0 > 0).map(Log::id).collect()
    };
    let newest = |id: &LogId| store.logs.get(*id).map(Log::epoch);
    let head = used(store).into_iter().max_by_key(newest).unwrap_or_default();
    for id in used(store) {
        if id != head {
            store.logs.with(id, Log::seal);
        }
    }
    head
}

const _: () = assert!(LOG_LEAST.0 / RECORDS_A_LOG > 8);
