//! The file system with its journal near the head on an array, whose members lose their caches
//! apart, leave in use, and are missing after crashes, as many as the level bears.

use manylogs::{Anchors, Layout};
use manylogs_array::{Level, Pace, Shape};
use manylogs_block::{Extent, Geometry, Nanos, Rng, Sectors};
use manylogs_near::Placed;

use super::near::{ANCHOR_BLOCKS, LOG_BLOCKS};
use super::plan::Ext4Plan;
use super::world::BLOCK_SECTORS;
use crate::volume::arrays::ArrayLife;

/// Salt that decides the chunk, and what the array does in use.
const ARRAY: u64 = 0xa44a_0e44;
/// Salt that decides in which incarnations members leave.
const LEAVES: u64 = 0x1ea7_0e44;
/// The most columns for which small images have room: each has a log.
const COLUMNS_MOST: u16 = 5;

/// An array below the file system, and what it does in use.
#[derive(Clone, Copy, Debug)]
pub struct OnArray {
    pub(super) geometry: Geometry,
    pub(super) life: ArrayLife,
    /// Whether the anchors begin at a stripe, so that they share no row with homes. Those of `fs
    /// adopt` lie where the file system has room.
    pub(super) own_rows: bool,
}

/// Whether small images of a file system have room for logs on this array: one on each column, or
/// one over all with parity.
///
/// # Errors
/// Why not.
pub fn has_room_on(array: &Shape) -> Result<(), String> {
    let columns = array.columns();
    if array.parity() > 0 || columns <= COLUMNS_MOST {
        return Ok(());
    }
    Err(format!(
        "{}:{} has {columns} columns, and the small file systems have room for logs on \
         {COLUMNS_MOST}",
        array.level, array.members
    ))
}

impl Ext4Plan {
    /// This plan on an array of this shape; the seed decides the chunk. In two histories of three
    /// the array resynchronises in use, and fills new members in half of these. In half of those
    /// without trouble members leave.
    #[must_use]
    pub fn on(self, array: &Shape) -> Self {
        let mut rng = Rng::new(self.seed ^ ARRAY);
        let (columns, copies, parity) = (array.columns(), array.copies(), array.parity());
        let chunk = match array.level {
            Level::Raid5 | Level::Raid6 => Sectors(32 << rng.below(2)),
            _ => Sectors(8 << rng.below(3)),
        };
        let geometry = Geometry { chunk, columns, copies, parity, first: Sectors(0) };
        let window = Sectors(8 << rng.below(6));
        let pause = Nanos::from_micros(500 * rng.below(8));
        let pace = (!rng.one_in(3)).then_some(Pace { window, pause });
        // A member that fails requests by the plan fails no others.
        let leaves = rng.one_in(2) && !self.trouble;
        let fills = pace.is_some() && rng.one_in(2);
        let life = ArrayLife { pace, leaves, fills };
        let own_rows = rng.one_in(2);
        Self { array: Some(OnArray { geometry, life, own_rows }), ..self }
    }

    /// Decides which members leave in an incarnation, if any do.
    pub(super) fn leaving(&self, incarnation: u64) -> Option<Rng> {
        self.array.filter(|array| array.life.leaves)?;
        let mut rng = Rng::new(self.seed ^ LEAVES ^ incarnation << 32);
        rng.one_in(2).then_some(rng)
    }
}

/// Places anchors and logs in a run of blocks: the anchors in whole stripes at both ends, and logs
/// with room for each column between them. `None` if the run is too short.
pub(super) fn placed_on(on: &OnArray, run: Extent) -> Option<Placed> {
    let array = on.geometry;
    let whole = array.whole_within(run);
    // A block behind the beginning of a stripe, if rows are shared.
    let skip = if on.own_rows { 0 } else { BLOCK_SECTORS };
    let anchor = (skip + ANCHOR_BLOCKS * BLOCK_SECTORS).next_multiple_of(array.stripe().0);
    let taken = if on.own_rows { anchor } else { ANCHOR_BLOCKS * BLOCK_SECTORS };
    // One column is none to its user: RAID-1 has no geometry.
    let shape = (array.columns > 1).then_some(array);
    let logs_in = shape.map_or(1, Layout::logs_in);
    let least = (LOG_BLOCKS * BLOCK_SECTORS * logs_in).next_multiple_of(array.stripe().0);
    let room = whole.len.0.checked_sub(2 * anchor)?;
    let count = room / least;
    let len = room.checked_div(count)? / array.stripe().0 * array.stripe().0;
    let at = |stripe: u64| Extent::new(stripe + skip, taken);
    let (first, last) = (at(whole.start.0), at(whole.end().0 - anchor));
    let log = |number: u64| Extent::new(whole.start.0 + anchor + number * len, len);
    let logs: Vec<Extent> = (0..count).map(log).collect();
    let placed = Placed { logs, anchors: Anchors { first, last }, columns: None };
    let placed = placed.on_array(shape);
    (placed.columns == shape).then_some(placed)
}

/// The longest run of blocks that follow one another, in sectors.
pub(super) fn longest_run(blocks: &[u64]) -> Option<Extent> {
    let runs = blocks.chunk_by(|one, next| one + 1 == *next);
    let longest = runs.max_by_key(|run| run.len())?;
    Some(Extent::new(longest[0] * BLOCK_SECTORS, longest.len() as u64 * BLOCK_SECTORS))
}
