//! Everything that a seed decides ahead of a history.

use manylogs_block::{Rng, to_usize};

use super::arrays::OnArray;

/// What clients prefer to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A bit of everything.
    Mixed,
    /// Many long names in one directory, so that its index grows and splits.
    ManyNames,
    /// Scattered writes and holes, so that trees of extents grow, split and shrink.
    Scattered,
}

/// Where transactions go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journal {
    /// Into ext4's own journal.
    #[default]
    Own,
    /// Into ext4's own journal, which keeps its transactions; some mounts are in another mode.
    Lazy,
    /// Into the logs of a volume, near the head.
    Near,
    /// Into the logs of a volume, where metadata stays; some mounts bring it home.
    NearLazy,
}

impl Journal {
    /// Whether it is in the logs of a volume.
    #[must_use]
    pub const fn is_near(self) -> bool {
        matches!(self, Self::Near | Self::NearLazy)
    }

    /// This journal, or one near the head.
    const fn or_near(self) -> Self {
        if self.is_near() { self } else { Self::Near }
    }
}

/// The plan of a history.
#[derive(Clone, Debug)]
pub struct Ext4Plan {
    /// The seed of the plan.
    pub seed: u64,
    /// Number of the image, counted around.
    pub image: usize,
    /// Where transactions go.
    pub journal: Journal,
    /// What clients prefer.
    pub shape: Shape,
    /// Number of clients, each in a directory of its own.
    pub clients: usize,
    /// Number of steps of each client in one incarnation.
    pub steps: u64,
    /// How often the file system is mounted. It crashes each time except the last.
    pub incarnations: u64,
    /// One event in this number is forked.
    pub fork_every: u64,
    /// One judged state in this number is also judged by e2fsck; none if zero.
    pub e2fsck_every: u64,
    /// Whether the device fails requests while the file system is mounted or used; for
    /// [`Journal::is_near`].
    pub trouble: bool,
    /// Whether some files need durability and no place; for [`Journal::is_near`].
    pub durable: bool,
    /// With such files, the homes of one judged state in this number are also read without the
    /// logs; none if zero.
    pub homes_every: u64,
    /// Whether metadata is arranged again and again meanwhile; for [`Journal::Lazy`].
    pub arranges: bool,
    /// Whether metadata goes home soon after it was written: for [`Journal::Lazy`] whenever clients
    /// rest a moment, for [`Journal::Own`] at any time.
    pub ages: bool,
    /// Whether the map of the journal is saved again and again meanwhile; for [`Journal::Lazy`].
    pub saves: bool,
    /// The array on which the file system is; for [`Journal::is_near`]. A single disk if `None`.
    pub array: Option<OnArray>,
}

impl Ext4Plan {
    /// The plan of a seed; the same one each time.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x00e4_4e44);
        let image = to_usize(rng.below(64));
        let shape = match rng.below(6) {
            0 => Shape::ManyNames,
            1 => Shape::Scattered,
            _ => Shape::Mixed,
        };
        // Long histories fill the log.
        let longer = if rng.one_in(6) { 6 } else { 1 };
        Self {
            seed,
            image,
            journal: Journal::Own,
            shape,
            clients: 1 + to_usize(rng.below(3)),
            steps: longer * (20 + rng.below(80)),
            incarnations: 1 + rng.below(3),
            fork_every: longer * (4 + rng.below(8)),
            e2fsck_every: SAMPLE,
            trouble: false,
            durable: false,
            homes_every: HOMES,
            arranges: false,
            ages: false,
            saves: false,
            array: None,
        }
    }

    /// As [`Ext4Plan::of_seed`], for clients that prefer `shape`.
    #[must_use]
    pub fn shaped(seed: u64, shape: Shape) -> Self {
        Self { shape, ..Self::of_seed(seed) }
    }

    /// This plan with transactions that go to `journal`. One that keeps metadata is filled several
    /// times.
    #[must_use]
    pub fn with_journal(self, journal: Journal) -> Self {
        let plan = Self { journal, ..self };
        if !matches!(journal, Journal::Lazy | Journal::NearLazy) {
            return plan;
        }
        let (steps, incarnations) = (plan.steps.max(240), plan.incarnations + 1);
        Self { steps, incarnations, fork_every: 5 * plan.fork_every, ..plan }
    }

    /// This plan on a device that fails requests: logs near the head cannot be written or read,
    /// homes cannot, or flushes fail. Nothing may be lost: content that cannot be read can be read
    /// later.
    #[must_use]
    pub fn in_trouble(self) -> Self {
        Self { trouble: true, journal: self.journal.or_near(), ..self }
    }

    /// This plan with files that need durability and no place: their content stays in the logs.
    #[must_use]
    pub fn with_durable_files(self) -> Self {
        Self { durable: true, journal: self.journal.or_near(), ..self }
    }

    /// This plan with metadata that stays in the journal and is arranged there meanwhile.
    #[must_use]
    pub fn arranging(self) -> Self {
        Self { arranges: true, ..self.with_journal(Journal::Lazy) }
    }

    /// This plan with a map of the journal that is saved again and again.
    #[must_use]
    pub fn saving(self) -> Self {
        Self { saves: true, ..self.with_journal(Journal::Lazy) }
    }

    /// This plan with metadata that stays in the journal for moments alone.
    #[must_use]
    pub fn aging(self) -> Self {
        Self { ages: true, ..self.with_journal(Journal::Lazy) }
    }

    /// This plan with metadata that goes home some moments after its last change, and not only when
    /// the journal is full; for [`Journal::Own`].
    #[must_use]
    pub fn expiring(self) -> Self {
        Self { ages: true, ..self }
    }

    /// This plan with long histories, which bring much home.
    #[must_use]
    pub fn long(self) -> Self {
        Self { clients: 3, steps: 400, incarnations: 1, fork_every: 25, ..self }
    }

    /// Sets how often the homes are judged without the logs: those of one judged state in `every`,
    /// none if zero. Needs e2fsck.
    #[must_use]
    pub fn with_homes(self, every: u64) -> Self {
        Self { homes_every: every, ..self }
    }

    /// Sets how often e2fsck judges as well: one judged state in `every`, none if zero.
    #[must_use]
    pub fn with_e2fsck(self, every: u64) -> Self {
        Self { e2fsck_every: every, ..self }
    }
}

/// See [`Ext4Plan::e2fsck_every`].
const SAMPLE: u64 = 40;
/// See [`Ext4Plan::homes_every`].
const HOMES: u64 = 16;
