//! Faults of the medium, which come with time and not with a crash. Non-volatile RAM has none: like
//! with a log, the loss of its last entries cannot be noticed.

use std::collections::BTreeSet;

use manylogs_block::{Lba, Rng, Sector, Sectors};
use manylogs_sim::{DiskImage, PastWrite, Stored};

use crate::volume::zones::{Zone, Zones};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sector has other content than the one written.
    Corrupt,
    /// A sector has become zeroes.
    Zeroed,
    /// A physical sector cannot be read until it is written.
    Unreadable,
    /// A sector, or all sectors of a write, have an older content again.
    Stale,
    /// A write was acknowledged, even as durable, but never done.
    Lost,
    /// A write was done in another place.
    Misdirected,
}

impl Fault {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Corrupt, Self::Zeroed, Self::Unreadable, Self::Stale, Self::Lost, Self::Misdirected];
}

/// The first sign of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The volume was not opened.
    Refused,
    /// A copy of the superblock was found damaged.
    Superblock,
    /// A root was found damaged.
    Root,
    /// The snapshot was found damaged.
    Snapshot,
    /// A log was found damaged.
    LogDamage,
    /// Reads failed.
    ReadFailed,
}

impl Detected {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::Superblock,
        Self::Root,
        Self::Snapshot,
        Self::LogDamage,
        Self::ReadFailed,
    ];
}

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Detected(Detected),
    Harmless,
    /// A loss that cannot be noticed, according to `docs/semantics.md`.
    Listed,
}

/// A fault and the sectors that it changed.
#[derive(Debug)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    pub(crate) sectors: BTreeSet<u64>,
}

/// Injects a fault into `image`, whose cache must be empty. `None` if the fault changed nothing.
pub(crate) fn inject(
    image: &mut DiskImage,
    zones: &Zones,
    physical: Sectors,
    rng: &mut Rng,
) -> Option<Injected> {
    let fault = Fault::ALL[manylogs_block::to_usize(rng.below(Fault::ALL.len() as u64))];
    let mut change = Change { image, sectors: BTreeSet::new() };
    match fault {
        Fault::Corrupt => {
            let lba = victim(change.image, zones, rng)?;
            let content = corrupted(change.image.durable(Lba(lba)), rng);
            change.set(lba, content.into());
        }
        Fault::Zeroed => {
            let lba = victim(change.image, zones, rng)?;
            change.set(lba, Stored::default());
        }
        Fault::Unreadable => {
            let first = victim(change.image, zones, rng)? / physical.0 * physical.0;
            (first..first + physical.0).for_each(|lba| change.make_unreadable(lba));
        }
        Fault::Stale => {
            let past = past_write(change.image, rng, false)?;
            let only = rng.one_in(2).then(|| past.extent.start.0 + rng.below(past.extent.len.0));
            change.restore(&past, only);
        }
        Fault::Lost => {
            let past = past_write(change.image, rng, true)?;
            change.restore(&past, None);
        }
        Fault::Misdirected => {
            let past = past_write(change.image, rng, true)?;
            let room = (zones.len() - past.extent.len.0) / physical.0;
            let target = rng.below(room) * physical.0;
            change.restore(&past, None);
            for (lba, stored) in (target..).zip(&past.after) {
                change.set(lba, stored.clone());
            }
        }
    }
    let sectors = change.sectors;
    (!sectors.is_empty()).then_some(Injected { fault, sectors })
}

struct Change<'a> {
    image: &'a mut DiskImage,
    sectors: BTreeSet<u64>,
}

impl Change<'_> {
    fn set(&mut self, lba: u64, content: Stored) {
        if self.image.durable(Lba(lba)) != *content.sector() {
            self.image.corrupt(Lba(lba), content);
            self.sectors.insert(lba);
        }
    }

    fn make_unreadable(&mut self, lba: u64) {
        self.image.make_unreadable(Lba(lba));
        self.sectors.insert(lba);
    }

    /// Restores the content that a write replaced, or one sector of it.
    fn restore(&mut self, past: &PastWrite, only: Option<u64>) {
        for (lba, before) in past.extent.range().zip(&past.before) {
            if only.is_none_or(|only| only == lba) {
                self.set(lba, before.clone());
            }
        }
    }
}

/// Picks a sector with content. First a zone is drawn, because our own structures are few.
fn victim(image: &DiskImage, zones: &Zones, rng: &mut Rng) -> Option<u64> {
    let wanted: fn(Zone) -> bool = match rng.below(12) {
        0 => |zone| matches!(zone, Zone::Superblock(_)),
        1..3 => |zone| matches!(zone, Zone::Root(_)),
        3..5 => |zone| zone == Zone::Snapshot,
        5..10 => |zone| matches!(zone, Zone::Log(..)),
        _ => |zone| matches!(zone, Zone::Home(_)),
    };
    let candidates: Vec<u64> = (0..zones.len())
        .filter(|lba| wanted(zones.at(*lba)) && image.durable(Lba(*lba)) != Sector::Zero)
        .collect();
    let index = rng.below(candidates.len() as u64);
    candidates.get(manylogs_block::to_usize(index)).copied()
}

fn corrupted(sector: Sector, rng: &mut Rng) -> Sector {
    match sector {
        Sector::Bytes(bytes) => {
            let mut bytes = bytes.to_vec();
            for _ in 0..=rng.below(8) {
                let index = manylogs_block::to_usize(rng.below(bytes.len() as u64));
                bytes[index] ^= 1 << rng.below(8);
            }
            Sector::Bytes(bytes.into())
        }
        Sector::Tag(_) | Sector::Zero => Sector::Tag(rng.next_u64() | 1 << 63),
    }
}

/// Picks one of the writes that the disk remembers, more likely a late one. If `current`, nothing
/// may have replaced it since.
fn past_write(image: &DiskImage, rng: &mut Rng, current: bool) -> Option<PastWrite> {
    let among = if rng.one_in(2) { 8 } else { usize::MAX };
    let is_current = |past: &PastWrite| {
        let mut written = past.extent.range().zip(&past.after);
        written.all(|(lba, after)| image.durable(Lba(lba)) == *after.sector())
    };
    let newest = image.past().rev().take(among);
    let candidates: Vec<&PastWrite> = newest.filter(|past| !current || is_current(past)).collect();
    let index = rng.below(candidates.len() as u64);
    candidates.get(manylogs_block::to_usize(index)).map(|past| (*past).clone())
}
