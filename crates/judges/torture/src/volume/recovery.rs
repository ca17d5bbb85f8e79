//! Recovers crashed images in a world of its own.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs::{MappedExtent, OpenOptions, Phase, Settings, VolumeError};
use manylogs_block::{Payload, Rng, Sectors, Time};
use manylogs_sim::{CrashDiskConfig, Oracle, Sim, TaskOrder};

use crate::volume::clients::read_all;
use crate::volume::machine::{Images, Machine};

/// Time at which a recovery and the checkpoint after it are over.
const AT_REST: Time = Time(20_000_000_000);

/// Results of the recoveries of one crash state.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The content of the whole volume, recovered with the snapshot.
    fast: Payload,
    /// The content recovered from the logs alone, if there was a snapshot.
    alone: Option<Payload>,
    /// The settings kept in the volume.
    settings: Settings,
}

struct Opened {
    content: Payload,
    table: Vec<MappedExtent>,
    from_snapshot: bool,
    settings: Settings,
}

impl Recovered {
    /// Recovers `images`: with the snapshot, and if there is one, also from the logs alone. `None`
    /// if they hold no volume. If `lossy`, the device once failed to read, and content may be lost.
    ///
    /// # Errors
    /// If the volume cannot be opened or read, or if the two tables differ.
    pub(crate) fn of(
        images: &Images,
        config: CrashDiskConfig,
        seed: u64,
        lossy: bool,
    ) -> Result<Option<Self>, String> {
        let Some(fast) = open_and_read(images.clone(), config, seed, (false, lossy))? else {
            return Ok(None);
        };
        if !fast.from_snapshot {
            // No snapshot was used, so the second recovery would be the same.
            let (content, settings) = (fast.content, fast.settings);
            return Ok(Some(Self { fast: content, alone: None, settings }));
        }
        let alone = open_and_read(images.clone(), config, seed, (true, lossy))?;
        let alone = alone.ok_or("without its snapshot the volume does not open")?;
        if fast.table != alone.table {
            let differing = fast.table.iter().zip(&alone.table).find(|(a, b)| a != b);
            return Err(format!(
                "table(snapshot + logs) has {} extents, table(logs alone) {}; first difference \
                 {differing:?}",
                fast.table.len(),
                alone.table.len()
            ));
        }
        let (content, settings) = (fast.content, fast.settings);
        Ok(Some(Self { fast: content, alone: Some(alone.content), settings }))
    }

    pub(crate) const fn used_snapshot(&self) -> bool {
        self.alone.is_some()
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The content of the whole volume, opened as usual.
    pub(crate) const fn content(&self) -> &Payload {
        &self.fast
    }

    /// Checks every sector, in both recoveries. A volume that may have grown has as many sectors as
    /// before, or more; the new ones were never written.
    pub(crate) fn check(&self, oracle: &Oracle, may_grow: bool) -> Result<(), String> {
        let (found, known) = (self.fast.len(), Sectors(oracle.sectors() as u64));
        if found < known || (found > known && !may_grow) {
            return Err(format!("the volume has {} sectors, not {}", found.0, known.0));
        }
        if !self.fast.slice(known, found - known).is_zero() {
            return Err("what the volume has grown by does not read as zeroes".to_owned());
        }
        self.check_as(oracle, Payload::clone)
    }

    /// As [`Recovered::check`]. `as_seen` turns the content into the form that the oracle knows.
    pub(crate) fn check_as(
        &self,
        oracle: &Oracle,
        as_seen: impl Fn(&Payload) -> Payload,
    ) -> Result<(), String> {
        let fast = oracle.check_crashed(&as_seen(&self.fast));
        fast.map_err(|wrong| format!("after recovery: {wrong}"))?;
        match &self.alone {
            // The two contents are most often the same, piece by piece.
            Some(alone) if *alone != self.fast => oracle
                .check_crashed(&as_seen(alone))
                .map_err(|wrong| format!("after recovery from the logs alone: {wrong}")),
            _ => Ok(()),
        }
    }

    /// Whether every sector reads as zeroes.
    pub(crate) fn is_blank(&self) -> bool {
        let zeroes = |content: &Payload| *content == Payload::zeroes(content.len());
        zeroes(&self.fast) && self.alone.as_ref().is_none_or(zeroes)
    }
}

/// As [`open_once`]. If the copies of an array may differ, the members that were read fail soon
/// after the opening, and what was read must be found on the others.
fn open_and_read(
    images: Images,
    config: CrashDiskConfig,
    seed: u64,
    options: (bool, bool),
) -> Result<Option<Opened>, String> {
    let (opened, left) = open_once(images, config, seed, options)?;
    if let (Some(opened), Some(left)) = (&opened, left) {
        let again = open_once(left, config, seed, options);
        let (again, _) = again.map_err(|wrong| format!("a member is lost: {wrong}"))?;
        let again = again.ok_or("a member is lost: no volume")?;
        let mut both = opened.content.sectors().zip(again.content.sectors()).zip(0..);
        if let Some(((one, two), lba)) = both.find(|((one, two), _)| one != two) {
            let version = |opened: &Opened| {
                opened.table.iter().find(|it| it.extent.range().contains(&lba)).copied()
            };
            let (before, now) = (version(opened), version(&again));
            return Err(format!(
                "a member is lost: sector {lba} was read as {one:?} of {before:?}, and is {two:?} \
                 of {now:?} now"
            ));
        }
    }
    Ok(opened)
}

fn open_once(
    images: Images,
    config: CrashDiskConfig,
    seed: u64,
    (ignore_snapshot, lossy): (bool, bool),
) -> Result<(Option<Opened>, Option<Images>), String> {
    let sim = Sim::new(seed, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let machine = Machine::new(sim.handle(drive), config, images);
    let (runtime, used) = (sim.handle(user), machine.clone());
    let opened = sim.block_on(user, async move {
        let options = OpenOptions { ignore_snapshot, ..OpenOptions::default() };
        let (volume, report) = match machine.open(runtime, options).await {
            Ok(opened) => opened,
            Err(VolumeError::NotAVolume | VolumeError::Superblock) => return Ok(None),
            Err(error) => return Err(format!("recovery failed: {error}")),
        };
        // Read at once: the volume may begin a checkpoint as soon as this task waits.
        let table = volume.table();
        let content = read_all(&volume, lossy).await;
        let content = content.map_err(|error| format!("read after recovery: {error}"))?;
        let settings = volume.settings();
        machine.disk.check_rows(volume.layout())?;
        Ok(Some(Opened { content, table, from_snapshot: report.from_snapshot, settings }))
    })?;
    Ok((opened, used.lose_members(&mut Rng::new(seed))))
}

/// Starts a recovery, and crashes somewhere in it or in the checkpoint after it.
pub(crate) fn crash_in_recovery(
    images: Images,
    config: CrashDiskConfig,
    rng: &mut Rng,
) -> (Images, Phase) {
    let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    // Often crashes while a table in RAM is loaded, which does not take long.
    let soon = images.nvram.is_some() && rng.one_in(2);
    let crash_at = 1 + rng.below(if soon { 16 } else { 60 });
    let machine = Machine::new(sim.handle(drive), config, images);
    if machine.disk.life.leaves && rng.one_in(3) {
        machine.disk.members_leave(rng);
    }
    let (runtime, opened) = (sim.handle(user), machine.clone());
    runtime.clone().spawn(async move {
        let Ok((volume, _)) = opened.open(runtime, OpenOptions::default()).await else { return };
        let _ = volume.checkpoint().await;
    });
    let crashed = Rc::new(RefCell::new(None));
    let crash = {
        let (crashed, machine, rng) = (Rc::clone(&crashed), machine.clone(), rng.split());
        let rng = Rc::new(RefCell::new(rng));
        move || {
            let mut crashed = crashed.borrow_mut();
            crashed.get_or_insert_with(|| (machine.crash(&mut rng.borrow_mut()), machine.phase()));
        }
    };
    let (between, watched) = (crash.clone(), machine.clone());
    machine.watch_nvram(move || {
        if watched.events() >= crash_at {
            between();
        }
    });
    // A volume at rest causes no more events.
    sim.run_until(|| machine.events() >= crash_at || sim.now() > AT_REST);
    machine.unwatch_nvram();
    crash();
    let crashed = crashed.borrow_mut().take();
    crashed.unwrap_or_else(|| unreachable!("it crashed just now, if not before"))
}
