//! Segments under cleaning whose drive is the tail's, and such as clients overwrite meanwhile.

use std::cell::Cell;

use manylogs_block::{BlockDevice, Extent, Hint, Nanos, Payload, Request};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, TaskOrder};

use super::*;
use crate::{Chain, ChainOptions, ChainSettings};

const SEGMENT: Sectors = Sectors(256);
const PER_DRIVE: u64 = 8;
/// Length of each write. Six of them fill a segment.
const PIECE: Sectors = Sectors(32);
const PIECES: u64 = 80;
/// The segment that is cleaned: the first that clients fill.
const VICTIM: LogId = LogId(0);

/// Runs `test` on a chain of which most segments are empty, so that nothing need be cleaned.
fn on_chain<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(Chain) -> F + 'static,
) -> T {
    let sim = Sim::new(7, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let config = CrashDiskConfig {
        capacity: Sectors(100 + PER_DRIVE * SEGMENT.0) + crate::summary_room(PER_DRIVE, SEGMENT),
        physical_sector: Sectors(8),
        volatile_cache: false,
        native_fua: true,
        latency_max: Nanos(1 << 20),
    };
    let disk = |_| CrashDisk::new(sim.handle(drive), config, DiskImage::default());
    let drives = (0..3).map(disk).map(|disk| Rc::new(disk) as Rc<dyn BlockDevice>).collect();
    let runtime = sim.handle(user);
    sim.block_on(user, async move {
        let export = Some(Sectors(PIECES * PIECE.0));
        let options = ChainOptions { segment: SEGMENT, export, mirror: false, summaries: true };
        let settings = ChainSettings { buffer: Sectors(8), ..ChainSettings::default() };
        test(Chain::create(runtime, drives, options, settings).await.unwrap()).await
    })
}

async fn write(chain: &Chain, piece: u64) {
    let extent = Extent::new(PIECE.0 * piece, PIECE.0);
    let (payload, hint) = (Payload::tags(1 + piece, PIECE), Hint::None);
    chain.submit(Request::Write { extent, payload, fua: true, hint }).await.unwrap();
}

fn tail(chain: &Chain) -> LogId {
    chain.0.engine.state.borrow().tail
}

/// Fills the victim, and begins to clean it. The cell says whether its content was moved when that
/// has ended. Returns the first piece that was not written.
async fn clean_the_first(chain: &Chain) -> (u64, Rc<Cell<Option<bool>>>) {
    let mut next = 0;
    while tail(chain) == VICTIM {
        write(chain, next).await;
        next += 1;
    }
    let inner = Rc::clone(&chain.0);
    inner.begin(&mut inner.engine.state.borrow_mut(), VICTIM);
    let moved = Rc::new(Cell::new(None));
    let result = Rc::clone(&moved);
    chain.0.engine.runtime.spawn(async move {
        result.set(Some(inner.move_away(VICTIM).await.unwrap()));
    });
    (next, moved)
}

/// Whether content was moved while the tail was on the victim's drive, and whether all was moved
/// when the tail had gone to the next.
fn read_beside_the_tail() -> (bool, bool) {
    on_chain(async |chain| {
        let (mut next, moved) = clean_the_first(&chain).await;
        let mut is_read = false;
        while chain.tail_drive() == 0 {
            is_read |= chain.figures().renewed > Sectors(0);
            write(&chain, next).await;
            next += 1;
        }
        chain.0.engine.runtime.sleep(Nanos::from_secs(1)).await;
        (is_read, moved.get() == Some(true))
    })
}

#[test]
fn a_segment_rests_while_its_drive_is_the_tails() {
    assert_eq!(read_beside_the_tail(), (false, true));
}

/// Clients overwrite the victim while its cleaning rests, so it begins anew, and the tail comes to
/// it. Whether the cleaning then ended, and moved nothing.
fn a_new_epoch_ends_cleaning() -> bool {
    on_chain(async |chain| {
        let (first, moved) = clean_the_first(&chain).await;
        for piece in 0..first {
            write(&chain, piece).await;
        }
        let mut next = first;
        while tail(&chain) != VICTIM {
            write(&chain, next).await;
            next += 1;
        }
        assert_eq!(chain.tail_drive(), 0, "the tail never left the drive");
        let nothing = chain.figures().renewed == Sectors(0) && moved.get() == Some(false);
        let is_over = chain.0.free_if_unneeded(VICTIM) == Some(true);
        let state = chain.0.engine.state.borrow();
        nothing && is_over && !state.pace.contains(VICTIM) && !state.store.logs().is_blank(VICTIM)
    })
}

#[test]
fn a_segment_that_begins_anew_while_its_cleaning_rests_is_not_cleaned() {
    assert!(a_new_epoch_ends_cleaning());
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    plant::plant(Some(Bug::TailReadByCleaning));
    let (is_read, _) = read_beside_the_tail();
    plant::plant(Some(Bug::EmptiedSegmentTakesRecords));
    let ends = a_new_epoch_ends_cleaning();
    plant::plant(None);
    assert!(is_read && !ends);
}
