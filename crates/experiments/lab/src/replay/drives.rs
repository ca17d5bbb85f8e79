//! The drives below a policy: one, or an array of them.

use std::rc::Rc;

use manylogs_array::{Shape, assemble};
use manylogs_block::{BlockDevice, Handle, Nanos, Rng};
use manylogs_disk::device::{Carried, ModelledDrive};
use manylogs_disk::{Counters, Options};
use manylogs_filters::Delay;

use super::stack::DriveSettings;
use crate::runs::KeyBuilder;

/// Salt of the seeds of an array's further members.
const MEMBER: u64 = 0x6d65_6d62;

/// An array of equal drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArraySettings {
    /// Level, number of members, and chunk.
    pub shape: Shape,
    /// A member that answers late.
    pub slow: Option<SlowMember>,
}

/// A member of an array that answers late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlowMember {
    /// Its number, from 0.
    pub member: u16,
    /// The delay of its answers.
    pub by: Nanos,
}

impl DriveSettings {
    /// Number of drives: 1, or the members of the array.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.array.map_or(1, |array| array.shape.members)
    }

    /// The options of one drive. Each member of an array has a rotation and errors of its own.
    pub(crate) fn member_options(&self, seed: u64, member: u16) -> Options {
        if self.array.is_none() {
            return self.options(seed);
        }
        let mut rng = Rng::new(seed ^ MEMBER ^ u64::from(member) << 48);
        let seed = if member == 0 { seed } else { rng.next_u64() };
        let phase = rng.below(1 << 20) as f64 / f64::from(1 << 20);
        Options { phase, ..self.options(seed) }
    }

    /// Joins the drives to one device: the only drive, or the array of all.
    pub(crate) fn assembled<D: BlockDevice + 'static>(
        &self,
        runtime: &Handle,
        drives: Vec<D>,
    ) -> Rc<dyn BlockDevice> {
        let slow = self.array.and_then(|array| array.slow);
        let device = |(index, drive): (u16, D)| -> Rc<dyn BlockDevice> {
            match slow.filter(|slow| slow.member == index) {
                Some(slow) => Rc::new(Delay::late(runtime.clone(), drive, slow.by)),
                None => Rc::new(drive),
            }
        };
        let mut devices: Vec<Rc<dyn BlockDevice>> = (0..).zip(drives).map(device).collect();
        match self.array {
            Some(ArraySettings { shape, .. }) => assemble(runtime, &shape, devices),
            None => devices.swap_remove(0),
        }
    }

    /// Adds everything on the drive that a run's result depends on.
    #[must_use]
    pub fn add_to(&self, key: KeyBuilder) -> KeyBuilder {
        let Self { profile, write_cache, link, queue, placement, smr_cache, array } = self;
        let key = key
            .with("profile", format!("{profile:?}"))
            .with("drive", format!("{write_cache} {link:?} {queue:?} {placement:?} {smr_cache}"));
        match array {
            Some(array) => key.with("array", format!("{array:?}")),
            None => key,
        }
    }
}

/// Modelled drives, and the device made of them.
pub(crate) struct Drives {
    each: Vec<ModelledDrive>,
    top: Rc<dyn BlockDevice>,
}

impl Drives {
    /// The drives of `settings`, which belong to the node of `runtime`.
    pub(crate) fn new(runtime: &Handle, settings: &DriveSettings, seed: u64) -> Self {
        let drive =
            |options: &Options| ModelledDrive::new(runtime.clone(), &settings.profile, options);
        let each: Vec<ModelledDrive> =
            (0..settings.members()).map(|one| drive(&settings.member_options(seed, one))).collect();
        Self { top: settings.assembled(runtime, each.clone()), each }
    }

    /// The device below a policy.
    pub(crate) fn top(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.top)
    }

    /// The drive, or an array's first member.
    pub(crate) fn first(&self) -> &ModelledDrive {
        &self.each[0]
    }

    /// Counters of all drives together.
    pub(crate) fn counters(&self) -> Counters {
        let each = self.each.iter().map(ModelledDrive::counters);
        each.reduce(|all, one| all.with(&one)).unwrap_or_default()
    }

    /// Number of drives.
    pub(crate) fn count(&self) -> usize {
        self.each.len()
    }

    /// Calls `observer` for each command of the drive, or of an array's first member.
    pub(crate) fn observe(&self, observer: impl FnMut(&Carried) + 'static) {
        self.first().observe(observer);
    }
}
