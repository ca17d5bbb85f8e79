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
    /// Level, members, chunk.
    pub shape: Shape,
    /// A member that answers late.
    pub slow: Option<SlowMember>,
}

/// A member of an array that answers late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlowMember {
    /// Which, from 0.
    pub member: u16,
    /// How much later.
    pub by: Nanos,
}

impl DriveSettings {
    /// Everything that a run on the drive follows from.
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

/// Modelled drives, and the device that is made of them.
pub(crate) struct Drives {
    each: Vec<ModelledDrive>,
    top: Rc<dyn BlockDevice>,
}

impl Drives {
    /// The drives of `settings`, which belong to the node of `runtime`.
    pub(crate) fn new(runtime: &Handle, settings: &DriveSettings, seed: u64) -> Self {
        let drive =
            |options: &Options| ModelledDrive::new(runtime.clone(), &settings.profile, options);
        let Some(ArraySettings { shape, slow }) = settings.array else {
            let only = drive(&settings.options(seed));
            return Self { top: Rc::new(only.clone()), each: vec![only] };
        };
        let each: Vec<ModelledDrive> = (0..shape.members)
            .map(|member| drive(&member_options(settings, seed, member)))
            .collect();
        let device = |(index, drive): (u16, &ModelledDrive)| -> Rc<dyn BlockDevice> {
            match slow.filter(|slow| slow.member == index) {
                Some(slow) => Rc::new(Delay::late(runtime.clone(), drive.clone(), slow.by)),
                None => Rc::new(drive.clone()),
            }
        };
        let devices = (0..).zip(&each).map(device).collect();
        Self { top: assemble(runtime, &shape, devices), each }
    }

    /// What a policy stands on.
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

/// Each member turns and errs by itself.
fn member_options(settings: &DriveSettings, seed: u64, member: u16) -> Options {
    let mut rng = Rng::new(seed ^ MEMBER ^ u64::from(member) << 48);
    let seed = if member == 0 { seed } else { rng.next_u64() };
    let phase = rng.below(1 << 20) as f64 / f64::from(1 << 20);
    Options { phase, ..settings.options(seed) }
}
