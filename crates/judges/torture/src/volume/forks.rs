//! Forks of a history: crash states that are recovered and judged, some of them after damage.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use manylogs::{Layout, Phase};
use manylogs_block::{Payload, Rng, Sectors};
use manylogs_sim::Oracle;

use crate::history::States;
use crate::report::Report;
use crate::volume::disks::DiskImages;
use crate::volume::incarnation::Watch;
use crate::volume::kept::Kept;
use crate::volume::machine::{Images, Machine};
use crate::volume::plan::Plan;
use crate::volume::recovery::{Recovered, crash_in_recovery};
use crate::volume::verdict::Patient;
use crate::volume::zones::Zones;

/// One new crash state in this number is also damaged.
const FAULT_EVERY: u64 = 4;
/// An array resynchronises in one judged recovery in this number, because that takes long.
const RESYNC_EVERY: u64 = 4;

/// The moment at which the world is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// An event of the disk.
    Event,
    /// Between two operations on non-volatile RAM.
    Between,
}

/// The models with which volumes are compared.
pub(crate) struct Models {
    pub(crate) oracle: Rc<RefCell<Oracle>>,
    pub(crate) kept: Rc<RefCell<Kept>>,
}

/// Crashes copies of the world, and keeps the results.
pub(crate) struct Forks {
    plan: Plan,
    faults: bool,
    /// The forks' own generator: the history must not depend on its forks.
    rng: Rng,
    models: Models,
    zones: Option<Zones>,
    /// Whether the device could not read content that it should have kept: that may be lost.
    lossy: Rc<Cell<bool>>,
    /// Whether the device became larger.
    may_grow: bool,
    /// The moments are those of the two models.
    states: States<[u64; 2]>,
    recovered: HashMap<u64, Option<Rc<Recovered>>>,
    pub(crate) report: Report,
}

/// Number of crash states of one history after which only one due fork in [`SPARSE`] is made.
const STATES_DENSE: usize = 600;
const SPARSE: u64 = 50;

impl Forks {
    pub(crate) fn new(
        plan: &Plan,
        faults: bool,
        rng: Rng,
        models: Models,
        lossy: Rc<Cell<bool>>,
    ) -> Self {
        Self {
            plan: plan.clone(),
            faults,
            rng,
            models,
            zones: None,
            lossy,
            may_grow: false,
            states: States::default(),
            recovered: HashMap::new(),
            report: Report::default(),
        }
    }

    /// Makes the device larger from now on. A crash may show the volume on all of it.
    pub(crate) fn grow_device(&mut self, capacity: Sectors) {
        self.plan.disk.capacity = capacity;
        self.may_grow = true;
        self.zones = None;
        // The same image may be recovered to another state from now on.
        self.recovered.clear();
    }

    /// The volume's logs get other places from now on.
    pub(crate) fn forget_layout(&mut self) {
        self.zones = None;
    }

    /// Crashes copies of the world as it is now, if a fork is due. `watch` gets the broken promise.
    pub(crate) fn maybe_fork(&mut self, machine: &Machine, watch: &Watch, at: At) {
        // A long history would show the same states over and over.
        let sparse = if self.report.states.len() > STATES_DENSE { SPARSE } else { 1 };
        let due = self.rng.one_in(self.plan.fork_every * sparse);
        if due
            && watch.problem.borrow().is_none()
            && let Err(problem) = self.fork(machine, watch, at)
        {
            watch.note(problem);
        }
    }

    fn fork(&mut self, machine: &Machine, watch: &Watch, at: At) -> Result<(), String> {
        if self.zones.is_none() {
            let volume = watch.volume.borrow();
            self.zones = volume.as_ref().map(|volume| Zones::of(volume.layout()));
        }
        for _ in 0..self.plan.forks {
            let (mut images, mut phase) = (machine.crash(&mut self.rng), machine.phase());
            let born = self.models.oracle.borrow().sectors() > 0;
            self.report.tally.nvram_between += u64::from(at == At::Between);
            while born && self.rng.one_in(4) {
                (images, phase) = crash_in_recovery(images, self.plan.disk, &mut self.rng);
                self.report.tally.nested += 1;
            }
            if self.judge(&images, Some(phase))? && self.faults && born {
                self.damage(&images, watch)?;
            }
        }
        Ok(())
    }

    /// Recovers the images and compares them with the models; true if it is a new crash state.
    pub(crate) fn judge(&mut self, images: &Images, phase: Option<Phase>) -> Result<bool, String> {
        let fingerprint = images.fingerprint();
        let mut new = false;
        if let Some(phase) = phase {
            new = self.states.meet(fingerprint, phase, &mut self.report);
        }
        let moment = [self.models.oracle.borrow().moment(), self.models.kept.borrow().moment];
        if !self.states.judged(fingerprint, moment, ()) {
            return Ok(new);
        }
        self.report.tally.judged += 1;
        let recovered = self.recover(fingerprint, images)?;
        let oracle = self.models.oracle.borrow();
        let born = oracle.sectors() > 0;
        self.report.tally.unborn += u64::from(!born);
        match recovered {
            Some(recovered) if born => {
                recovered.check(&oracle, self.may_grow)?;
                self.models.kept.borrow().check(recovered.settings()).map(|()| new)
            }
            Some(recovered) if !recovered.is_blank() => Err("a new volume is not blank".into()),
            None if born => Err("recovery failed: no volume".into()),
            _ => Ok(new),
        }
    }

    /// Checks that a drained volume can be read without this software: everything is at home.
    pub(crate) fn check_homes(&self, image: &DiskImages, watch: &Watch) -> Result<(), String> {
        let volume = watch.volume.borrow();
        let (Some(volume), true) = (volume.as_ref(), watch.drained.get()) else { return Ok(()) };
        let content = homes(image, volume.layout());
        let checked = self.models.oracle.borrow().check_crashed(&content);
        checked.map_err(|wrong| format!("drained, and at home {wrong}"))
    }

    /// Recovers images, each only once: their content does not depend on when they are judged.
    fn recover(
        &mut self,
        fingerprint: u64,
        images: &Images,
    ) -> Result<Option<Rc<Recovered>>, String> {
        if let Some(recovered) = self.recovered.get(&fingerprint) {
            return Ok(recovered.clone());
        }
        let images = &as_it_resyncs(images, fingerprint);
        let recovered = Recovered::of(images, self.plan.disk, self.plan.seed, self.lossy.get())?;
        let recovered = recovered.map(Rc::new);
        let tally = &mut self.report.tally;
        tally.recovered += 1;
        tally.from_snapshot += u64::from(recovered.as_ref().is_some_and(|r| r.used_snapshot()));
        self.recovered.insert(fingerprint, recovered.clone());
        Ok(recovered)
    }

    fn damage(&mut self, images: &Images, watch: &Watch) -> Result<(), String> {
        let volume = watch.volume.borrow();
        let (Some(volume), Some(zones)) = (volume.as_ref(), &self.zones) else { return Ok(()) };
        if !self.rng.one_in(FAULT_EVERY) {
            return Ok(());
        }
        let patient = Patient {
            layout: volume.layout(),
            zones,
            disk: self.plan.disk,
            oracle: &self.models.oracle.borrow(),
            kept: &self.models.kept.borrow(),
        };
        if let Some((fault, outcome)) = patient.examine(images, &mut self.rng)? {
            self.report.tally.add_fault(fault, outcome);
        }
        Ok(())
    }
}

/// The images, with an array that resynchronises in one recovery in [`RESYNC_EVERY`].
fn as_it_resyncs(images: &Images, fingerprint: u64) -> Images {
    let mut images = images.clone();
    if !Rng::new(fingerprint).one_in(RESYNC_EVERY) {
        images.disk.life.pace = None;
    }
    images
}

/// The content of the homes in linear order.
fn homes(image: &DiskImages, layout: &Layout) -> Payload {
    let mut content = Payload::default();
    for (_, extent) in layout.homes() {
        content.append(image.read(*extent));
    }
    content
}
