//! What is measured, and what came out.

use manylogs_block::{Nanos, Sectors};

use crate::episodes::OffloadPolicy;
use crate::replay::DriveSettings;

/// What the clients of a volume ask for, without a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LentLoad {
    /// Reads among the requests, per cent.
    pub reads_percent: u64,
    /// Length of each request.
    pub request: Sectors,
    /// Clients of each volume: requests that are in flight all the time.
    pub depth: u32,
    /// The part of the volume that they use.
    pub over: Sectors,
    /// Each request follows the last one's end. Otherwise all places are alike.
    pub sequential: bool,
    /// Where they ask.
    pub at: LoadAt,
}

/// Which part of a drive clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadAt {
    /// Its beginning, where a volume is.
    Beginning,
    /// Its end, where a store would be.
    End,
}

/// Busy volumes and the drives that they borrow.
#[derive(Clone, Debug)]
pub struct LentCase {
    /// What each volume, and each store, is on.
    pub drive: DriveSettings,
    /// When the volumes off-load.
    pub policy: OffloadPolicy,
    /// Copies of what they off-load.
    pub copies: usize,
    /// Volumes that are busy from the beginning.
    pub clients: u32,
    /// Drives that lend, and do nothing else.
    pub idle: u32,
    /// Whether the busy volumes lend to each other, too.
    pub mutual: bool,
    /// Whether each volume has its only store on its own drive, behind the part that is used: then
    /// it is a log-structured one.
    pub own: bool,
    /// Whether there is a volume that lends, and becomes busy itself after the warm-up.
    pub wakes: bool,
    /// What stores have of their drives' time while others wait there, in per cent.
    pub share: u8,
    /// What clients of each busy volume ask for.
    pub load: LentLoad,
    /// Time before the measurement.
    pub warm: Nanos,
    /// Length of the measurement.
    pub span: Nanos,
    /// Decides everything random.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LentFigures {
    /// Requests a second that each volume's clients got: the mean of the volumes that were busy
    /// from the beginning.
    pub per_s: f64,
    /// The same in megabytes.
    pub mb_s: f64,
    /// Requests a second in the second half of the warm-up.
    pub before_per_s: f64,
    /// Requests a second of the volume that became busy after the warm-up.
    pub woken_per_s: f64,
    /// Writes that went to stores, per cent.
    pub offloaded_percent: f64,
    /// What stores held in the end.
    pub held_mb: f64,
}
