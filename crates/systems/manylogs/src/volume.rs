//! The interface of a volume.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, IoError, Request,
    Sectors, Signal,
};
use manylogs_engine::{Engine, Member, Members, reserve_sequences, run_committer, run_opener};
use manylogs_logstore::store::{Place, Store};
use manylogs_logstore::{DataSequence, EntryKind, VolumeId};

use crate::cleaning::checkpoint::{CheckpointReport, Pace, Pass};
use crate::error::VolumeError;
use crate::lifecycle::columns::arranged;
use crate::ondisk::layout::Layout;
use crate::records::largest::largest_record;
use crate::requests::home_lock::HomeLocks;
use crate::settings::config::VolumeConfig;
use crate::settings::keep::check_settings;
use crate::state::{Inner, State};
use manylogs_plant::{self as plant, Bug};
use manylogs_schedule::Targets;

/// An open volume. Clones are the same volume.
#[derive(Clone)]
pub struct Volume(Rc<Inner>);

/// One extent of the mapping table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// The address in the volume, as clients use it.
    pub extent: Extent,
    /// Data sequence of the version.
    pub sequence: DataSequence,
    /// Whether the extent was zeroed or discarded.
    pub zeroes: bool,
    /// Whether its logged copy is damaged: reads fail until it is overwritten.
    pub lost: bool,
}

impl Volume {
    pub(crate) fn assemble(
        runtime: Handle,
        device: Member,
        below: Capabilities,
        (volume, label): (VolumeId, String),
        layout: Layout,
        config: VolumeConfig,
        store: Store,
    ) -> Self {
        let today = device.device().geometry();
        let array = layout.columns().filter(|columns| today == Some(*columns));
        let device = arranged(device, &layout);
        let state = State::new(store, device.columns(), runtime.now());
        let VolumeConfig { latency, contended_after, .. } = config;
        let device = device.scheduled(&runtime, Targets { latency, contended_after });
        let shape = state.store.logs().shape();
        Self(Rc::new(Inner {
            engine: Engine::new(runtime, Members::one(device.clone()), state),
            device,
            array,
            below,
            shape,
            volume,
            label,
            layout,
            config: Cell::new(config),
            locks: HomeLocks::default(),
            hurries: Cell::default(),
            cleaning: manylogs_block::TaskLock::default(),
            flush_lock: manylogs_block::TaskLock::default(),
            flush_asked: Signal::default(),
            own: OnceCell::new(),
            home_form: OnceCell::new(),
            owners: OnceCell::new(),
            ahead_memory: OnceCell::new(),
            logs_near: Cell::default(),
            pace: Cell::default(),
            record_least: Cell::default(),
            superblock_lock: manylogs_block::TaskLock::default(),
            activity: Rc::new(()),
        }))
    }

    /// Starts the volume's own tasks.
    pub(crate) fn run(&self) {
        let runtime = &self.0.engine.runtime;
        runtime.spawn(run_committer(Rc::clone(&self.0)));
        runtime.spawn(Rc::clone(&self.0).run_flusher());
        runtime.spawn(Rc::clone(&self.0).run_maintenance());
        runtime.spawn(run_opener(Rc::clone(&self.0)));
        runtime.spawn(reserve_sequences(Rc::clone(&self.0)));
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) const fn shared(&self) -> &Rc<Inner> {
        &self.0
    }

    /// The layout of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Id of the volume.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.0.volume
    }

    /// Label that the owner gave the volume when it was formatted; may be empty.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Parameters of the volume.
    #[must_use]
    pub fn config(&self) -> VolumeConfig {
        self.0.config()
    }

    /// Whether content of this length should be logged now, by [`Volume::append`]: logging is on,
    /// and the threshold, which may adapt to the room in the logs, allows it. If so, the content
    /// counts as logged already.
    #[must_use]
    pub fn takes(&self, len: Sectors) -> bool {
        self.0.config().logging && self.0.is_small(len)
    }

    /// Changes the parameters of a volume in use until it is closed; its layout stays. Earlier
    /// writes keep their place and their guarantees. [`Volume::set`] stores the change, too.
    ///
    /// # Errors
    /// [`VolumeError::Config`] if they make no sense; then nothing changes.
    pub fn reconfigure(&self, config: &VolumeConfig) -> Result<(), VolumeError> {
        let config = self.0.config().changed_to(config);
        check_settings(&config, &self.0.layout, self.0.shape, self.0.record_least.get())?;
        self.0.config.set(config);
        self.0.device.set_latency(config.latency);
        // Requests of the old length may wait for room, or for their record. So the room that is
        // left out for a record never shrinks while the volume is open.
        let largest = largest_record(&self.0.config(), &self.0.layout, self.0.shape).log;
        self.0.engine.state.borrow_mut().store.raise_largest_record(largest);
        self.0.engine.notify_progress();
        self.0.engine.wanted.notify();
        Ok(())
    }

    /// Moves all logged data home, now and as fast as the device allows. Kept metadata goes home,
    /// too, and with it kept content that is older. Other kept content stays in the logs.
    ///
    /// # Errors
    /// If the device fails. Data that was not moved stays logged.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, VolumeError> {
        self.0.checkpoint(Pass { all_metadata: true, ..Pass::at(Pace::Urgent) }).await
    }

    /// Writes a table snapshot; false if it does not fit its slot.
    ///
    /// # Errors
    /// If the device fails. The last snapshot stays in use.
    pub async fn snapshot(&self) -> Result<bool, VolumeError> {
        Ok(self.0.snapshot().await?)
    }

    /// Moves the fullest log to an empty one, as in idle time; true if a log was moved.
    pub async fn swap(&self) -> bool {
        self.0.swap_one().await
    }

    /// Bytes of memory of the mapping table, the same as `mapping_table_bytes` of the statistics.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.0.engine.state.borrow().store.table_bytes()
    }

    /// The mapping table, by address; neighbouring parts of one version are one extent.
    #[must_use]
    pub fn table(&self) -> Vec<MappedExtent> {
        table_of(&self.0.engine.state.borrow().store)
    }
}

pub(crate) fn table_of(store: &Store) -> Vec<MappedExtent> {
    let mut table: Vec<MappedExtent> = Vec::new();
    for (extent, mapped) in store.map().iter() {
        let (zeroes, lost) = match mapped.value {
            Place::Log { .. } => (false, false),
            Place::Zeroes { .. } => (true, false),
            Place::Lost { .. } => (false, true),
            Place::Buffered { slot, .. } => {
                let kind = store.entries().slots.get(slot).entry.kind;
                (kind == EntryKind::Zeroes, kind == EntryKind::Lost)
            }
        };
        let sequence = mapped.sequence;
        match table.last_mut() {
            Some(last)
                if last.extent.end() == extent.start
                    && last.sequence == sequence
                    && (last.zeroes, last.lost) == (zeroes, lost) =>
            {
                last.extent.len += extent.len;
            }
            _ => table.push(MappedExtent { extent, sequence, zeroes, lost }),
        }
    }
    table
}

impl BlockDevice for Volume {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            capacity: self.0.layout.capacity(),
            physical_sector: self.0.below.physical_sector,
            untorn: self.0.below.untorn,
            rotational: self.0.below.rotational,
            // Small writes without FUA wait in a buffer, so the volume has a volatile cache even if
            // the device has none.
            volatile_cache: true,
            native_fua: true,
            discard: true,
            fast_zero: true,
        }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        if self.0.engine.state.borrow().closing {
            return Completion::ready(Err(IoError::Gone));
        }
        if request.extent().is_some_and(|extent| self.0.layout.is_hole(extent)) {
            return Completion::ready(Err(IoError::Unsupported));
        }
        match request {
            Request::Read { extent } => self.0.read(extent),
            Request::Write { extent, payload, fua, hint } => {
                self.0.write(extent, payload, fua, hint)
            }
            Request::Flush => self.0.flush(),
            Request::Discard { extent, .. } if plant::is(Bug::DiscardNotLogged) => {
                let mut state = self.0.engine.state.borrow_mut();
                let sequence = state.store.take_data_sequence();
                state.store.displace_older(extent, sequence);
                Completion::ready(Ok(manylogs_block::Payload::default()))
            }
            Request::Discard { extent, fua } => {
                let fua = fua && !plant::is(Bug::DiscardNotDurable);
                self.0.log_write(EntryKind::Zeroes, extent, None, fua)
            }
            Request::WriteZeroes { extent, fua, .. } => {
                let fua = fua && !plant::is(Bug::ZeroesNotDurable);
                self.0.log_write(EntryKind::Zeroes, extent, None, fua)
            }
        }
    }

    /// A volume that was made for the present array exports the array's stripes as whole stripes.
    fn geometry(&self) -> Option<Geometry> {
        let columns = self.0.array?;
        let before = self.0.layout.homes().first()?.1.start.0 + columns.first.0;
        Some(Geometry { first: Sectors(before % columns.stripe().0), ..columns })
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        let inside = self.capabilities().check(&Request::Read { extent: within });
        match inside {
            Err(error) => Completion::ready(Err(error)),
            Ok(()) if self.0.engine.state.borrow().closing => Completion::ready(Err(IoError::Gone)),
            Ok(()) => self.0.extents(within),
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.engine.state.borrow();
        f.debug_struct("Volume")
            .field("health", &self.health())
            .field("pending", &state.store.entries().pending.len())
            .field("records_in_flight", &state.store.entries().records.len())
            .field("deferred", &state.home.deferred.len())
            .field("reserved", &state.store.reserved())
            .field("room", &state.store.logs().room())
            .field("starved", &state.starved)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
