//! Members: the devices that a system lives on, each with its scheduler and its head. A member that
//! is an array has a scheduler and a head for each column.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_array::Columns;
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, IoError, Lba, Nanos,
    Request, Sectors,
};
use manylogs_plant::{self as plant, Bug};
use manylogs_schedule::{Class, ScheduleStats, Scheduler, Targets};

use crate::phase::{Phase, PhaseProbe};

/// Who needs a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A client, who waits.
    Client,
    /// The system's own work: cleaning.
    System,
}

/// Clients' reads and writes up to this long are small.
const SMALL: Sectors = Sectors(128);

/// A device that a system lives on. It learns why the system writes, and decides when a request
/// goes. Clones are the same member.
#[derive(Clone)]
pub struct Member {
    device: Rc<dyn BlockDevice>,
    /// The columns of the device, if it is an array of known geometry.
    columns: Option<Rc<Columns>>,
    /// Geometry of the device, if it is an array that is scheduled as one device.
    array: Option<Geometry>,
    /// Scheduler of the device, or of each column, once the system serves clients.
    schedulers: Rc<[Scheduler]>,
    /// Runs the tasks of flushes; set together with the schedulers.
    runtime: Option<Handle>,
    probe: PhaseProbe,
    /// The end of the last request that was not logged.
    head: Rc<Cell<Lba>>,
    /// All requests belong to a drain from now on.
    draining: Rc<Cell<bool>>,
    /// Clients wait for room in the logs, and therefore for the system's own work.
    pressed: Rc<Cell<bool>>,
    gone: Rc<Cell<bool>>,
}

impl Member {
    /// The member on `device`. `probe` learns of its writes. Every request passes at once.
    #[must_use]
    pub fn new(device: Rc<dyn BlockDevice>, probe: PhaseProbe) -> Self {
        Self {
            device,
            columns: None,
            array: None,
            schedulers: Rc::new([]),
            runtime: None,
            probe,
            head: Rc::default(),
            draining: Rc::default(),
            pressed: Rc::default(),
            gone: Rc::default(),
        }
    }

    /// The same device with its addresses arranged by `columns`. `each` says whether the device has
    /// these columns now: then requests are scheduled column by column.
    #[must_use]
    pub fn arranged(self, columns: Rc<Columns>, each: bool) -> Self {
        let array = self.device.geometry().filter(|array| array == columns.map().geometry());
        let array = array.filter(|_| !each);
        let device = Rc::clone(&columns) as Rc<dyn BlockDevice>;
        Self { device, columns: each.then_some(columns), array, ..self }
    }

    /// Puts a scheduler in front of the device, or of each of its columns.
    #[must_use]
    pub fn scheduled(self, runtime: &Handle, targets: Targets) -> Self {
        let schedulers = match &self.columns {
            Some(columns) => Scheduler::of_columns(runtime, columns.ports(), targets).into(),
            None => {
                let one = Scheduler::new(runtime.clone(), Rc::clone(&self.device), targets);
                [match self.array {
                    Some(array) => one.over_stripes(array),
                    None => one,
                }]
                .into()
            }
        };
        Self { schedulers, runtime: Some(runtime.clone()), ..self }
    }

    /// Number of columns that are scheduled one by one; 1 if the device is no array.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns.as_ref().map_or(1, |columns| usize::from(columns.map().geometry().columns))
    }

    /// The column of a log that begins at `at`; 0 if the device is no array.
    #[must_use]
    pub fn column_of(&self, at: Lba) -> usize {
        self.columns.as_ref().map_or(0, |columns| usize::from(columns.map().locate(at).0))
    }

    /// Changes the target latency; see [`Scheduler::set_latency`].
    pub fn set_latency(&self, latency: Nanos) {
        self.schedulers.iter().for_each(|scheduler| scheduler.set_latency(latency));
    }

    /// Counters of the schedulers together.
    #[must_use]
    pub fn schedule_stats(&self) -> ScheduleStats {
        let each = self.schedulers.iter().map(Scheduler::stats);
        each.reduce(ScheduleStats::with).unwrap_or_default()
    }

    /// Capabilities of the device.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    /// See [`BlockDevice::is_reset_first`].
    #[must_use]
    pub fn is_reset_first(&self) -> bool {
        self.device.is_reset_first()
    }

    /// Submits a read.
    pub fn read(&self, reader: Reader, extent: Extent) -> Completion {
        let class = match reader {
            Reader::Client => by_length(extent),
            Reader::System => self.own_work(),
        };
        self.hand_over(class, Request::Read { extent })
    }

    /// See [`BlockDevice::extents`].
    pub fn extents(&self, within: Extent) -> Completion<Extents> {
        self.device.extents(within)
    }

    /// Submits any request except a read.
    pub fn submit(&self, phase: Phase, request: Request) -> Completion {
        let phase = if self.draining.get() { Phase::Drain } else { phase };
        self.probe.note(phase, &request);
        self.hand_over(self.class(phase, &request), request)
    }

    /// Resets the device at `log`, if the device must be reset before it is written again.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn reset(&self, log: Extent) -> Result<(), IoError> {
        if self.is_reset_first() && !plant::is(Bug::ZoneNotReset) {
            self.device.reset(log).await?;
        }
        Ok(())
    }

    fn hand_over(&self, class: Class, request: Request) -> Completion {
        match (&*self.schedulers, &self.columns) {
            ([], _) => self.device.submit(request),
            ([scheduler], None) => scheduler.submit(class, request),
            (each, Some(columns)) => {
                let send = |column: usize, part| each[column].submit(class, part);
                match (&request, &self.runtime) {
                    (Request::Flush, Some(runtime)) => columns.flush(runtime, send),
                    _ => columns.spread(&request, send),
                }
            }
            (_, None) => unreachable!("one device has one scheduler"),
        }
    }

    /// Every flush is urgent: a client waits for it, or a client's next flush waits for one that
    /// the volume needs.
    fn class(&self, phase: Phase, request: &Request) -> Class {
        let Some(extent) = request.extent() else { return Class::Record };
        match phase {
            // Moved content too: a client's record behind it in the log waits for it.
            Phase::Append
            | Phase::Swap
            | Phase::Supersede
            | Phase::Discard
            | Phase::Reset
            | Phase::Open
            | Phase::Recovery => Class::Record,
            Phase::Bypass => by_length(extent),
            // Placement would like another log, but has one meanwhile.
            Phase::OpenedSet => self.own_work(),
            Phase::Checkpoint | Phase::Snapshot => self.own_work(),
            Phase::Drain => Class::Stream,
        }
    }

    fn own_work(&self) -> Class {
        if self.pressed.get() { Class::Stream } else { Class::Background }
    }

    /// Position of the head after the requests that are in the device, if the scheduler knows it.
    /// Otherwise the end of the last request that was not logged: see [`Member::asked`].
    #[must_use]
    pub fn head(&self) -> Lba {
        let seen = self.schedulers.first().filter(|_| self.columns.is_none());
        seen.and_then(Scheduler::head).unwrap_or(self.head.get())
    }

    /// As [`Member::head`], for one column: an address of the array at the head's position there.
    #[must_use]
    pub fn head_of(&self, column: usize) -> Lba {
        let Some(columns) = &self.columns else { return self.head() };
        let place = self.schedulers.get(column).and_then(Scheduler::head);
        let geometry = columns.map().geometry();
        let on_array = |place| geometry.address(manylogs_block::narrow(column as u64), place);
        place.and_then(on_array).unwrap_or(self.head.get())
    }

    /// The end of the last request that was not logged.
    #[must_use]
    pub fn asked(&self) -> Lba {
        self.head.get()
    }

    /// Notes that a request that is not logged ends at `end`.
    pub fn set_asked(&self, end: Lba) {
        self.head.set(end);
    }

    /// Tells the schedulers that a client asks for something to be durable.
    pub fn sync_asked(&self) {
        self.schedulers.iter().for_each(Scheduler::sync_asked);
    }

    /// Whether lasting streams, and no other requests, compete with records for the device.
    #[must_use]
    pub fn serves_stream(&self) -> bool {
        self.schedulers.iter().any(Scheduler::serves_stream)
    }

    /// Whether clients wait for small reads, and sync so often that the reads need a share of the
    /// time.
    #[must_use]
    pub fn serves_database(&self) -> bool {
        self.schedulers.iter().any(Scheduler::serves_database)
    }

    /// Whether the device is gone: nothing more is written to it until the system is opened again.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Notes that the device is gone.
    pub fn set_gone(&self) {
        self.gone.set(true);
    }

    /// Another device has taken the place of one that may have been gone.
    pub fn set_replaced(&self) {
        self.gone.set(false);
    }

    /// From now on all requests belong to a drain.
    pub fn set_draining(&self) {
        self.draining.set(true);
    }

    /// Says whether clients wait for room in the logs, and so for the system's own work.
    pub fn set_pressed(&self, pressed: bool) {
        self.pressed.set(pressed);
        self.schedulers.iter().for_each(|scheduler| scheduler.set_pressed(pressed));
    }

    /// The device itself, for callers that only read.
    #[must_use]
    pub const fn device(&self) -> &Rc<dyn BlockDevice> {
        &self.device
    }
}

fn by_length(extent: Extent) -> Class {
    if extent.len <= SMALL { Class::Small } else { Class::Stream }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("head", &self.head.get())
            .field("schedulers", &self.schedulers)
            .finish_non_exhaustive()
    }
}
