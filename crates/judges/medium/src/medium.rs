//! The thread that owns the disk and the oracle. Everything that happens is an event in its queue.
//!
//! A client reports a request before sending it, and an answer after receiving it. So an event of
//! the disk comes after the request that caused it and before the answer that relies on it.
//! Whatever the oracle counts as answered at a cut was answered, and whatever the disk holds was
//! requested.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use manylogs_block::{Extent, Payload, Rng};
use manylogs_logstore::VolumeId;
use manylogs_sim::{CrashDiskConfig, DiskImage, FlushId, Oracle, ReadId, Survival, WriteId};
use manylogs_torture::{CrashedVolume, Violation, new_volume, small_config};

use crate::disk::{Asked, Disk, Reply};
use crate::history::Failure;
use crate::mount::{DiskFile, Mount};
use crate::units::Units;

/// Time for which requests wait for others to overtake them.
const LULL: Duration = Duration::from_micros(60);
/// Power is cut at one in this number of events of the disk or its clients ...
const CUT_EVERY: u64 = 12;
/// ... and at one in this number of answers that promise durability: such an answer may rely on
/// data that is still in the cache.
const CUT_EVERY_PROMISE: u64 = 3;

/// Events of the disk and of its clients.
pub(crate) enum Event {
    /// The disk receives a request.
    Disk { generation: u64, asked: Asked, reply: Reply },
    /// A client reports an operation.
    Client { id: u64, told: Told },
    /// A caller's closure to run on the thread.
    Order(Box<dyn FnOnce(&mut State) + Send>),
}

/// Reports of clients. Each request has an id of its client.
#[derive(Debug)]
pub(crate) enum Told {
    Write { extent: Extent, content: Payload },
    Written { durable: bool },
    Flush,
    Flushed,
    Read { extent: Extent },
    WasRead { content: Payload },
}

/// Results of the power cuts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Number of images that were recovered and checked.
    pub states: u64,
    /// The first failure.
    pub problem: Option<String>,
}

/// A disk that the test's process serves. See the crate's documentation.
#[derive(Debug)]
pub struct Medium {
    events: Sender<Event>,
    thread: JoinHandle<()>,
    units: Units,
    generation: u64,
    capacity: manylogs_block::Sectors,
}

struct Cut {
    image: DiskImage,
    oracle: Oracle,
    event: u64,
    survival: Survival,
}

/// State of the thread.
pub(crate) struct State {
    disk: Disk,
    config: CrashDiskConfig,
    generation: u64,
    oracle: Oracle,
    units: Units,
    writes: BTreeMap<u64, (Extent, WriteId)>,
    flushes: BTreeMap<u64, FlushId>,
    reads: BTreeMap<u64, ReadId>,
    cuts: Vec<Cut>,
    cuts_max: usize,
    rng: Rng,
    events: u64,
    judged: Judged,
}

impl Medium {
    /// Makes a disk with a new volume. The id of the volume comes from `volume`, all other choices
    /// from the seed. Power is cut at most `cuts` times for each opening of the volume.
    ///
    /// # Errors
    /// If the volume or the thread cannot be made.
    pub fn new(
        seed: u64,
        config: CrashDiskConfig,
        volume: VolumeId,
        cuts: usize,
    ) -> Result<Self, Failure> {
        let (events, queue) = channel();
        let (tell, told) = sync_channel(1);
        let run = move || match State::new(seed, config, volume, cuts) {
            Ok(state) => {
                let _ = tell.send(Ok(state.units));
                state.run(&queue);
            }
            Err(error) => {
                let _ = tell.send(Err(Failure::Setup(error.to_string())));
            }
        };
        let thread = std::thread::Builder::new().name("medium".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Failure::Setup(error.to_string()))?;
        let ended = |_| Failure::Setup("the medium's thread ended".to_owned());
        let units = told.recv().map_err(ended)??;
        Ok(Self { events, thread, units, generation: 0, capacity: config.capacity })
    }

    /// The units of the volume's export.
    #[must_use]
    pub const fn units(&self) -> Units {
        self.units
    }

    pub(crate) fn events(&self) -> Sender<Event> {
        self.events.clone()
    }

    /// Mounts the disk as the file `path`.
    ///
    /// # Errors
    /// If the kernel refuses the mount.
    pub fn mount(&self, path: &Path) -> io::Result<Mount> {
        let events = self.events.clone();
        let file = DiskFile { events, generation: self.generation, capacity: self.capacity };
        Mount::new(file, path)
    }

    /// Cuts the power. The recovered content is checked and becomes the truth of the oracle. The
    /// disk must not be in use meanwhile. A mounted file stays mounted without a disk.
    ///
    /// # Errors
    /// If the recovered content breaks a promise.
    pub fn cut_power(&mut self) -> Result<(), Failure> {
        self.generation += 1;
        let generation = self.generation;
        self.order(move |state| state.cut_power(generation))?.map_err(Failure::of)
    }

    /// Recovers and checks all images of power cuts.
    ///
    /// # Errors
    /// If the thread has panicked.
    pub fn judge(self) -> Result<Judged, Failure> {
        let judged = self.order(State::judge)?;
        let Self { events, thread, .. } = self;
        drop(events);
        thread.join().map_err(|_| panicked())?;
        Ok(judged)
    }

    fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = sync_channel(1);
        let order = Event::Order(Box::new(move |state| {
            let _ = answer.send(order(state));
        }));
        self.events.send(order).map_err(|_| panicked())?;
        answered.recv().map_err(|_| panicked())
    }
}

fn panicked() -> Failure {
    Failure::Wrong("the medium's thread panicked".to_owned())
}

impl State {
    fn new(
        seed: u64,
        config: CrashDiskConfig,
        volume: VolumeId,
        cuts_max: usize,
    ) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let image = new_volume(config, &small_config(&mut rng), volume, seed)?;
        let content = CrashedVolume::recover(image.clone(), config, seed)?;
        let units = Units::new(content.content().len());
        Ok(Self {
            disk: Disk::new(image, config, rng.split()),
            config,
            generation: 0,
            oracle: Oracle::new(units.count()),
            units,
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            reads: BTreeMap::new(),
            cuts: Vec::new(),
            cuts_max,
            rng,
            events: 0,
            judged: Judged::default(),
        })
    }

    fn run(mut self, queue: &Receiver<Event>) {
        loop {
            let received = if self.disk.is_idle() {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(LULL)
            };
            match received {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => self.answer_one(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.disk.is_busy() {
                self.answer_one();
            }
        }
    }

    fn answer_one(&mut self) {
        // The cut comes before the answer is sent: no client relies on its promise yet, but the
        // promise must hold.
        self.disk.answer_one();
        self.happened(CUT_EVERY);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Order(order) => order(self),
            Event::Disk { generation, asked, reply } if generation == self.generation => {
                self.disk.begin(asked, reply);
                self.happened(CUT_EVERY);
            }
            // The server is dead. Dropping the reply answers with an I/O error.
            Event::Disk { .. } => {}
            Event::Client { id, told } => {
                let promise = matches!(told, Told::Written { durable: true } | Told::Flushed);
                self.hear(id, told);
                self.happened(if promise { CUT_EVERY_PROMISE } else { CUT_EVERY });
            }
        }
    }

    fn hear(&mut self, id: u64, told: Told) {
        match told {
            Told::Write { extent, content } => {
                let write = self.oracle.submit(extent, &content);
                self.writes.insert(id, (extent, write));
            }
            Told::Written { durable } => {
                if let Some((extent, write)) = self.writes.remove(&id) {
                    self.oracle.acknowledge(extent, write, durable);
                }
            }
            Told::Flush => {
                let flush = self.oracle.submit_flush();
                self.flushes.insert(id, flush);
            }
            Told::Flushed => {
                if let Some(flush) = self.flushes.remove(&id) {
                    self.oracle.acknowledge_flush(flush);
                }
            }
            Told::Read { extent } => {
                let read = self.oracle.submit_read(extent);
                self.reads.insert(id, read);
            }
            Told::WasRead { content } => {
                let Some(read) = self.reads.remove(&id) else { return };
                if let Err(wrong) = self.oracle.check_read(read, &content) {
                    self.note(format!("a client's read: {wrong}"));
                }
            }
        }
    }

    fn note(&mut self, problem: String) {
        let event = self.events;
        self.judged.problem.get_or_insert(format!("at event {event}: {problem}"));
    }

    fn happened(&mut self, cut_every: u64) {
        self.events += 1;
        if self.cuts.len() < self.cuts_max && self.rng.one_in(cut_every) {
            self.keep_image();
        }
    }

    fn keep_image(&mut self) {
        let survival = match self.rng.below(8) {
            0..4 => Survival::Nothing,
            4 => Survival::Everything,
            _ => Survival::Random,
        };
        let image = self.disk.cache().after_power_cut(survival, &mut self.rng);
        let (oracle, event) = (self.oracle.clone(), self.events);
        self.cuts.push(Cut { image, oracle, event, survival });
    }

    fn cut_power(&mut self, generation: u64) -> Result<(), Violation> {
        self.judge();
        let survival = if self.rng.one_in(2) { Survival::Nothing } else { Survival::Random };
        let image = self.disk.cache().after_power_cut(survival, &mut self.rng);
        let found = CrashedVolume::recover(image.clone(), self.config, self.rng.next_u64())?;
        let units = self.units;
        found.check(&self.oracle, |content| units.of_volume(content))?;
        self.oracle.check_recovered(&units.of_volume(found.content())).map_err(Violation::new)?;
        self.writes.clear();
        self.flushes.clear();
        self.reads.clear();
        self.disk = Disk::new(image, self.config, self.rng.split());
        self.generation = generation;
        self.judged.states += 1;
        Ok(())
    }

    fn judge(&mut self) -> Judged {
        let (units, config) = (self.units, self.config);
        for cut in std::mem::take(&mut self.cuts) {
            self.judged.states += 1;
            let found = CrashedVolume::recover(cut.image, config, self.rng.next_u64());
            let checked = found
                .and_then(|found| found.check(&cut.oracle, |content| units.of_volume(content)));
            if let Err(problem) = checked {
                let Cut { event, survival, .. } = cut;
                let problem = format!("power cut at event {event} ({survival:?}): {problem}");
                self.judged.problem.get_or_insert(problem);
            }
        }
        self.judged.clone()
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Event")
    }
}
