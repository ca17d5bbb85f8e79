//! A disk with a volatile cache that can lose its power, or outlive the process that used it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, ExtentKind, Extents, Handle, IoError, IoResult,
    Nanos, Payload, Request, Rng, Sectors, completion,
};

use crate::image::{DiskImage, Survival};
use crate::write_cache::{PendingWrite, WriteCache};

/// Factor by which one read in four is slower than the others.
const SLOW_READ: u64 = 20;

/// Options of a [`CrashDisk`].
#[derive(Clone, Copy, Debug)]
pub struct CrashDiskConfig {
    /// Size.
    pub capacity: Sectors,
    /// The atomic unit of the medium: a torn write keeps or loses whole ones.
    pub physical_sector: Sectors,
    /// Whether acknowledged writes may be lost until a flush.
    pub volatile_cache: bool,
    /// Whether a FUA write is one command. Else the disk writes to its cache and then flushes the
    /// whole cache before it answers: a crash may fall between the two.
    pub native_fua: bool,
    /// Requests take a random time up to this, so that they overtake one another.
    pub latency_max: Nanos,
}

/// Decides at submission whether a request fails, and how.
pub type FailRequest = Box<dyn FnMut(&Request) -> Option<IoError>>;

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct CrashDisk(Rc<Disk>);

struct Disk {
    runtime: Handle,
    config: CrashDiskConfig,
    state: RefCell<State>,
    fail: RefCell<Option<FailRequest>>,
    /// The label of the last event.
    label: Cell<u8>,
}

#[derive(Debug)]
struct State {
    cache: WriteCache,
    events: u64,
    remembers: bool,
    rng: Rng,
}

impl CrashDisk {
    /// A disk that holds `image`. Its tasks belong to the node of `runtime`, which should not be
    /// the node of its user: a killed process does not stop the disk.
    #[must_use]
    pub fn new(runtime: Handle, config: CrashDiskConfig, image: DiskImage) -> Self {
        let mut image = image;
        image.begin_run();
        let state = State {
            cache: WriteCache::new(image, config.physical_sector, config.volatile_cache),
            events: 0,
            remembers: false,
            rng: Rng::new(runtime.random()),
        };
        let (fail, label) = (RefCell::new(None), Cell::new(0));
        Self(Rc::new(Disk { runtime, config, state: RefCell::new(state), fail, label }))
    }

    /// The runtime of the disk's own tasks.
    #[must_use]
    pub fn runtime(&self) -> Handle {
        self.0.runtime.clone()
    }

    /// From now on the image remembers its writes and the content that the last of them replaced.
    /// Faults can bring that content back, and [`DiskImage::ledger`] tells when a write was
    /// acknowledged.
    pub fn remember_writes(&self) {
        self.0.state.borrow_mut().remembers = true;
    }

    /// From now on `fail` is asked about every request. Any part of a failed write or flush may
    /// have taken effect, unless the device is gone.
    pub fn fail_requests(&self, fail: FailRequest) {
        *self.0.fail.borrow_mut() = Some(fail);
    }

    /// Counts submissions and completions. Crashes between the same two events cannot be told
    /// apart.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.state.borrow().events
    }

    /// The label of the request that the last event belongs to.
    #[must_use]
    pub fn last_label(&self) -> u8 {
        self.0.label.get()
    }

    /// Content of the disk after its user crashed: the cache is kept, and any part of each write in
    /// flight may still arrive.
    #[must_use]
    pub fn after_kill(&self, rng: &mut Rng) -> DiskImage {
        self.0.state.borrow().cache.after_kill(rng)
    }

    /// Content of the disk after a power cut at this moment.
    #[must_use]
    pub fn after_power_cut(&self, survival: Survival, rng: &mut Rng) -> DiskImage {
        self.0.state.borrow().cache.after_power_cut(survival, rng)
    }

    /// As [`BlockDevice::submit`]; the request's events carry `label`.
    pub fn submit_labelled(&self, request: Request, label: u8) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        let failure = self.0.fail.borrow_mut().as_mut().and_then(|fail| fail(&request));
        match request {
            Request::Read { extent } => self.read(extent, failure, label),
            Request::Write { extent, payload, fua, .. } => {
                self.write(extent, payload, fua, failure, label)
            }
            Request::WriteZeroes { extent, fua, .. } => {
                self.write(extent, Payload::zeroes(extent.len), fua, failure, label)
            }
            Request::Discard { .. } => {
                self.after(self.latency(), label, |_| async { Ok(Payload::default()) })
            }
            Request::Flush => self.flush(failure, label),
        }
    }

    fn latency(&self) -> Nanos {
        let max = self.0.config.latency_max.0;
        Nanos(1 + self.0.state.borrow_mut().rng.below(max))
    }

    fn read(&self, extent: Extent, failure: Option<IoError>, label: u8) -> Completion {
        // Some reads take long, to test that the log they point to is kept until they end.
        let slow = if self.0.state.borrow_mut().rng.one_in(4) { SLOW_READ } else { 1 };
        let latency = Nanos(self.latency().0 * slow);
        self.after(latency, label, move |disk| async move {
            let state = disk.0.state.borrow();
            let image = state.cache.image();
            match failure {
                Some(error) => Err(error),
                None if !image.is_readable(extent) => Err(IoError::Medium { extent }),
                None => Ok(image.read(extent)),
            }
        })
    }

    fn write(
        &self,
        extent: Extent,
        payload: Payload,
        fua: bool,
        failure: Option<IoError>,
        label: u8,
    ) -> Completion {
        if failure == Some(IoError::Gone) {
            return self.after(self.latency(), label, |_| async { Err(IoError::Gone) });
        }
        let write = {
            let mut state = self.0.state.borrow_mut();
            let write = state.cache.begin_write(extent, payload);
            if state.remembers {
                state.cache.note_submitted(write, self.0.runtime.now());
            }
            write
        };
        let two_steps = fua && !self.0.config.native_fua && self.0.config.volatile_cache;
        let (runtime, second) = (self.0.runtime.clone(), self.latency_if(two_steps));
        self.after(self.latency(), label, move |disk| async move {
            let (failed, config) = (failure.is_some(), disk.0.config);
            let flush = {
                let mut state = disk.0.state.borrow_mut();
                state.end_write(write, fua && !two_steps, failed);
                state.cache.begin_flush()
            };
            if two_steps && !failed {
                disk.note_event(label);
                runtime.sleep(second).await;
                disk.0.state.borrow_mut().cache.end_flush(flush);
            }
            let mut state = disk.0.state.borrow_mut();
            if state.remembers && !failed && (fua || !config.volatile_cache) {
                state.cache.note_durable(write, runtime.now());
            }
            failure.map_or(Ok(Payload::default()), Err)
        })
    }

    /// Draws a latency only if one is needed, so that other random decisions do not change.
    fn latency_if(&self, needed: bool) -> Nanos {
        if needed { self.latency() } else { Nanos(0) }
    }

    fn flush(&self, failure: Option<IoError>, label: u8) -> Completion {
        let flush = self.0.state.borrow().cache.begin_flush();
        self.after(self.latency(), label, move |disk| async move {
            if let Some(error) = failure {
                return Err(error);
            }
            disk.0.state.borrow_mut().cache.end_flush(flush);
            Ok(Payload::default())
        })
    }

    fn after<F: Future<Output = IoResult> + 'static>(
        &self,
        latency: Nanos,
        label: u8,
        finish: impl FnOnce(Self) -> F + 'static,
    ) -> Completion {
        let (completer, completion) = completion();
        self.note_event(label);
        let (disk, sleep) = (self.clone(), self.0.runtime.sleep(latency));
        self.0.runtime.spawn(async move {
            sleep.await;
            let result = finish(disk.clone()).await;
            disk.note_event(label);
            completer.complete(result);
        });
        completion
    }

    fn note_event(&self, label: u8) {
        self.0.state.borrow_mut().events += 1;
        self.0.label.set(label);
    }
}

impl State {
    /// Ends a write: all of it takes effect, or a random part if it failed.
    fn end_write(&mut self, write: PendingWrite, fua: bool, failed: bool) {
        if failed {
            let rng = &mut self.rng;
            return self.cache.fail_write(write, || !rng.one_in(2));
        }
        if self.remembers {
            self.cache.remember(write);
        }
        self.cache.end_write(write, fua);
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (config, state) = (&self.config, &self.state);
        f.debug_struct("Disk").field("config", config).field("state", state).finish()
    }
}

impl BlockDevice for CrashDisk {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            capacity: self.0.config.capacity,
            physical_sector: self.0.config.physical_sector,
            untorn: self.0.config.physical_sector,
            rotational: true,
            volatile_cache: self.0.config.volatile_cache,
            native_fua: self.0.config.native_fua,
            discard: false,
            fast_zero: false,
        }
    }

    fn submit(&self, request: Request) -> Completion {
        self.submit_labelled(request, 0)
    }

    /// Reports sectors that were never written, or hold zeroes, as zero: no sector is unallocated.
    fn extents(&self, within: Extent) -> Completion<Extents> {
        if let Err(error) = self.capabilities().check(&Request::Read { extent: within }) {
            return Completion::ready(Err(error));
        }
        let state = self.0.state.borrow();
        let image = state.cache.image();
        Completion::ready(Ok(if image.is_readable(within) {
            Extents::of_content(within, &image.read(within), ExtentKind::Zero)
        } else {
            Extents::of(within, ExtentKind::Data)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, Sim, TaskOrder};
    use manylogs_block::{Lba, Sector};

    fn disk(volatile_cache: bool) -> (Sim, NodeId, CrashDisk) {
        disk_with(volatile_cache, true)
    }

    fn disk_with(volatile_cache: bool, native_fua: bool) -> (Sim, NodeId, CrashDisk) {
        let sim = Sim::new(3, TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let config = CrashDiskConfig {
            capacity: Sectors(64),
            physical_sector: Sectors(1),
            volatile_cache,
            native_fua,
            latency_max: Nanos::from_millis(1),
        };
        let disk = CrashDisk::new(sim.handle(drive), config, DiskImage::default());
        (sim, user, disk)
    }

    fn write(lba: u64, tag: u64, fua: bool) -> Request {
        let (extent, payload) = (Extent::new(lba, 1), Payload::tags(tag, Sectors(1)));
        Request::Write { extent, payload, fua, hint: manylogs_block::Hint::None }
    }

    fn after_cut(disk: &CrashDisk, survival: Survival) -> Vec<Sector> {
        let image = disk.after_power_cut(survival, &mut Rng::new(1));
        (0..4).map(|lba| image.durable(Lba(lba))).collect()
    }

    #[test]
    fn an_unflushed_write_may_be_lost_and_a_flushed_or_fua_one_is_not() {
        let (sim, user, disk) = disk(true);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(0, 10, false)).await.unwrap();
            device.submit(Request::Flush).await.unwrap();
            device.submit(write(1, 11, true)).await.unwrap();
            device.submit(write(2, 12, false)).await.unwrap();
        });
        use Sector::{Tag, Zero};
        assert_eq!(after_cut(&disk, Survival::Nothing), [Tag(10), Tag(11), Zero, Zero]);
        assert_eq!(after_cut(&disk, Survival::Everything), [Tag(10), Tag(11), Tag(12), Zero]);
    }

    #[test]
    fn an_emulated_fua_write_is_durable_only_after_its_flush() {
        let (sim, user, disk) = disk_with(true, false);
        let (device, answered) = (disk.clone(), std::rc::Rc::new(std::cell::Cell::new(false)));
        let ended = std::rc::Rc::clone(&answered);
        sim.handle(user).spawn(async move {
            device.submit(write(0, 10, false)).await.unwrap();
            device.submit(write(1, 11, true)).await.unwrap();
            ended.set(true);
        });
        // Two events of the first write, the begin of the second, and the end of its data.
        sim.run_until(|| disk.events() == 4);
        assert!(!answered.get());
        use Sector::{Tag, Zero};
        assert_eq!(
            after_cut(&disk, Survival::Nothing),
            [Zero, Zero, Zero, Zero],
            "the flush is under way"
        );
        assert_eq!(after_cut(&disk, Survival::Everything), [Tag(10), Tag(11), Zero, Zero]);
        sim.run_until(|| answered.get());
        // The flush makes all writes durable that were answered before.
        assert_eq!(after_cut(&disk, Survival::Nothing), [Tag(10), Tag(11), Zero, Zero]);
    }

    #[test]
    fn an_older_cached_version_never_covers_a_newer_durable_one() {
        let (sim, user, disk) = disk(true);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(0, 1, false)).await.unwrap();
            device.submit(write(0, 2, true)).await.unwrap();
        });
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random] {
            assert_eq!(after_cut(&disk, survival)[0], Sector::Tag(2));
        }
    }

    #[test]
    fn without_a_cache_every_acknowledged_write_is_durable() {
        let (sim, user, disk) = disk(false);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(3, 9, false)).await.unwrap();
        });
        assert_eq!(after_cut(&disk, Survival::Nothing)[3], Sector::Tag(9));
    }
}
