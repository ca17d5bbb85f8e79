//! One history: clients, a volume, a disk, and forks at its events.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use manylogs::{Layout, Phase};
use manylogs_block::{Payload, Rng};
use manylogs_sim::{CrashDisk, DiskImage, Oracle, Order, Sim};

use crate::device::last_phase;
use crate::incarnation::{Device, End, Incarnation, Watch};
use crate::plan::Plan;
use crate::recovery::{Recovered, crash, crash_in_recovery};
use crate::tally::Tally;
use crate::verdict::Patient;
use crate::zones::Zones;

/// An incarnation that takes longer hangs.
const PATIENCE_NS: u64 = 20_000_000_000;
/// One new crash state in so many is also damaged.
const FAULT_EVERY: u64 = 4;

/// What a history did, and the distinct crash states it went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts; without the states, which other histories may have seen as well.
    pub tally: Tally,
    /// Hash of image and phase, and the phase.
    pub states: Vec<(u64, Phase)>,
}

struct History<'a> {
    plan: &'a Plan,
    faults: bool,
    rng: Rng,
    oracle: Rc<RefCell<Oracle>>,
    next_tag: Rc<Cell<u64>>,
    zones: Option<Zones>,
    /// The device failed requests: what it did not give back may be lost.
    lossy: bool,
    seen: HashSet<u64>,
    /// Images by fingerprint, and the moments of the model that they were compared at.
    judged: HashSet<(u64, u64)>,
    recovered: HashMap<u64, Option<Rc<Recovered>>>,
    report: Report,
}

/// Runs the history of `plan`, with faults of the medium or without.
///
/// # Errors
/// What did not hold.
pub fn run_history(plan: &Plan, faults: bool) -> Result<Report, String> {
    let mut history = History {
        plan,
        faults,
        rng: Rng::new(plan.seed ^ 0x5eed),
        oracle: Rc::new(RefCell::new(Oracle::new(0))),
        next_tag: Rc::new(Cell::new(1)),
        zones: None,
        lossy: false,
        seen: HashSet::new(),
        judged: HashSet::new(),
        recovered: HashMap::new(),
        report: Report::default(),
    };
    let troubled = history.rng.below(plan.incarnations);
    let mut image = DiskImage::default();
    for incarnation in 0..plan.incarnations {
        let device = match incarnation.cmp(&troubled) {
            Ordering::Equal if plan.trouble => Device::Failing,
            // Logs that failed stay out of use; without any, the volume may refuse writes.
            Ordering::Greater if plan.trouble => Device::Failed,
            _ => Device::Sound,
        };
        image = history.live(incarnation == 0, image, device)?;
    }
    history.report.tally.histories = 1;
    Ok(history.report)
}

impl History<'_> {
    /// One incarnation, from opening to crash; returns what the disk holds then.
    fn live(&mut self, fresh: bool, image: DiskImage, device: Device) -> Result<DiskImage, String> {
        let sim = Sim::new(self.rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let disk = CrashDisk::new(sim.handle(drive), self.plan.disk, image);
        self.lossy |= device == Device::Failing;
        if self.faults {
            disk.remember_writes();
        }
        let end = End::draw(&mut self.rng);
        let watch = Watch::default();
        let incarnation = Incarnation {
            plan: self.plan.clone(),
            fresh,
            device,
            end,
            runtime: sim.handle(user),
            disk: disk.clone(),
            oracle: Rc::clone(&self.oracle),
            next_tag: Rc::clone(&self.next_tag),
            rng: self.rng.split(),
            watch: watch.clone(),
        };
        sim.handle(user).spawn(incarnation.run());
        let lived = self.watch(&sim, &disk, &watch, end);
        self.count(&watch, device, end);
        let image = crash(&disk, &mut self.rng);
        // The next incarnation recovers by itself; versions that it may or may not find stay
        // possible.
        let lived = lived.and_then(|()| self.judge(&image, None).map(drop));
        let lived = lived.and_then(|()| self.check_homes(&image, &watch));
        let trouble = || watch.trouble.take().map(|words| format!(" ({words})"));
        lived.map_err(|problem| problem + &trouble().unwrap_or_default())?;
        Ok(image)
    }

    /// Runs the world to the end of the incarnation, and forks it at its events.
    fn watch(
        &mut self,
        sim: &Sim,
        disk: &CrashDisk,
        watch: &Watch,
        end: End,
    ) -> Result<(), String> {
        let mut seen = disk.events();
        let mut last = None;
        let mut problem = None;
        sim.run_until(|| {
            if problem.is_none() {
                problem = watch.problem.borrow_mut().take();
            }
            let events = disk.events();
            if events != seen && problem.is_none() && self.rng.one_in(self.plan.fork_every) {
                problem = self.fork(disk, watch).err();
            }
            seen = events;
            if watch.ended.get() && last.is_none() {
                let linger = if let End::Crash(linger) = end { linger } else { 0 };
                last = Some(events + linger);
            }
            let over = last.is_some_and(|last| events >= last);
            over || problem.is_some() || sim.now().0 > PATIENCE_NS
        });
        match problem {
            Some(problem) => Err(problem),
            None if !watch.ended.get() => {
                let volume = watch.volume.borrow();
                Err(format!("clients hang: 20 s of virtual time passed; {volume:?}"))
            }
            None => Ok(()),
        }
    }

    fn count(&mut self, watch: &Watch, device: Device, end: End) {
        let tally = &mut self.report.tally;
        tally.incarnations += 1;
        tally.operations += watch.operations.get();
        tally.troubled += u64::from(device == Device::Failing);
        tally.failed_requests += watch.failed_requests.get();
        tally.closed += u64::from(end == End::Close);
        tally.drained += u64::from(watch.drained.get());
        if let Some(volume) = watch.volume.borrow().as_ref() {
            tally.add_stats(&volume.stats());
        }
    }

    /// Crashes copies of the world as it is now.
    fn fork(&mut self, disk: &CrashDisk, watch: &Watch) -> Result<(), String> {
        if self.zones.is_none() {
            let volume = watch.volume.borrow();
            self.zones = volume.as_ref().map(|volume| Zones::of(volume.layout()));
        }
        let phase = last_phase(disk);
        for _ in 0..self.plan.forks {
            let (mut image, mut phase) = (crash(disk, &mut self.rng), phase);
            let born = self.oracle.borrow().sectors() > 0;
            while born && self.rng.one_in(4) {
                (image, phase) = crash_in_recovery(image, self.plan.disk, &mut self.rng);
                self.report.tally.nested += 1;
            }
            if self.judge(&image, Some(phase))? && self.faults && born {
                self.damage(&image, watch)?;
            }
        }
        Ok(())
    }

    /// Recovers the image and compares it with the model; true if it is a new crash state.
    fn judge(&mut self, image: &DiskImage, phase: Option<Phase>) -> Result<bool, String> {
        let fingerprint = image.fingerprint();
        let mut new = false;
        if let Some(phase) = phase {
            let state = Rng::new(fingerprint ^ phase as u64).next_u64();
            new = self.seen.insert(state);
            if new {
                self.report.states.push((state, phase));
            }
        }
        let moment = self.oracle.borrow().moment();
        if !self.judged.insert((fingerprint, moment)) {
            return Ok(new);
        }
        self.report.tally.judged += 1;
        let recovered = self.recover(fingerprint, image)?;
        let oracle = self.oracle.borrow();
        let born = oracle.sectors() > 0;
        self.report.tally.unborn += u64::from(!born);
        match recovered {
            Some(recovered) if born => recovered.check(&oracle).map(|()| new),
            Some(recovered) if !recovered.is_blank() => Err("a new volume is not blank".into()),
            None if born => Err("recovery failed: no volume".into()),
            _ => Ok(new),
        }
    }

    /// A drained volume can be read without this software: all of it is at home.
    fn check_homes(&self, image: &DiskImage, watch: &Watch) -> Result<(), String> {
        let volume = watch.volume.borrow();
        let (Some(volume), true) = (volume.as_ref(), watch.drained.get()) else { return Ok(()) };
        let content = homes(image, volume.layout());
        let checked = self.oracle.borrow().check_crashed(&content);
        checked.map_err(|wrong| format!("drained, and at home {wrong}"))
    }

    /// What is in an image does not depend on when it is asked: each is recovered once.
    fn recover(
        &mut self,
        fingerprint: u64,
        image: &DiskImage,
    ) -> Result<Option<Rc<Recovered>>, String> {
        if let Some(recovered) = self.recovered.get(&fingerprint) {
            return Ok(recovered.clone());
        }
        let recovered =
            Recovered::of(image, self.plan.disk, self.plan.seed, self.lossy)?.map(Rc::new);
        let tally = &mut self.report.tally;
        tally.recovered += 1;
        tally.from_snapshot += u64::from(recovered.as_ref().is_some_and(|r| r.used_snapshot()));
        self.recovered.insert(fingerprint, recovered.clone());
        Ok(recovered)
    }

    fn damage(&mut self, image: &DiskImage, watch: &Watch) -> Result<(), String> {
        let volume = watch.volume.borrow();
        let (Some(volume), Some(zones)) = (volume.as_ref(), &self.zones) else { return Ok(()) };
        if !self.rng.one_in(FAULT_EVERY) {
            return Ok(());
        }
        let patient = Patient {
            layout: volume.layout(),
            zones,
            disk: self.plan.disk,
            oracle: &self.oracle.borrow(),
        };
        if let Some((fault, outcome)) = patient.examine(image, &mut self.rng)? {
            self.report.tally.add_fault(fault, outcome);
        }
        Ok(())
    }
}

/// What a linear mapping of the homes shows.
fn homes(image: &DiskImage, layout: &Layout) -> Payload {
    let mut content = Payload::default();
    for (_, extent) in layout.homes() {
        content.append(image.read(*extent));
    }
    content
}
