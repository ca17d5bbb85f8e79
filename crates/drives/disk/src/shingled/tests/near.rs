//! Logs near the head, and the bugs that their tests notice.

use super::*;
use crate::planted::{Bug, with};

const PLACE: u64 = 4_000_000_000;

/// A drive that logs near the head and answers once the data is on the medium.
fn near(profile: &Profile) -> Bench {
    Bench::new(profile, |options| Options {
        write_cache: false,
        placement: CachePlacement::NearHead,
        ..options
    })
}

fn with_logs(change: impl FnOnce(&mut ShingledTable)) -> Profile {
    let mut profile = seagate();
    change(profile.shingled.as_mut().unwrap());
    profile
}

impl Bench {
    /// Runs one command; returns the time from its arrival to its answer.
    fn serve(&mut self, kind: CommandKind, start: u64, len: u64) -> Nanos {
        let arrived = self.now;
        self.submit(kind, Extent::new(start, len));
        self.settle();
        self.now.since(arrived)
    }
}

const WRITE: CommandKind = CommandKind::Write { fua: true };

#[test]
fn logs_near_the_head_save_the_way_to_the_cache() {
    let seconds = |placement| {
        let mut bench =
            Bench::new(&seagate(), |options| Options { write_cache: false, placement, ..options });
        let (mut rng, room) = (Rng::new(3), bench.drive.capacity().0 * 8 / 10);
        for _ in 0..500 {
            let at = rng.below(room / 8) * 8;
            bench.serve(CommandKind::Read, at, 8);
            bench.serve(WRITE, at / 2, 8);
        }
        bench.now.as_secs_f64()
    };
    let (near, single) = (seconds(CachePlacement::NearHead), seconds(CachePlacement::Single));
    assert!(single / near > 1.7, "{single} s, {near} s");
}

/// Writes one at a time: the sector behind the last write has always just passed.
fn writes_in_turn_wait_for_no_revolution() -> bool {
    let mut bench = near(&seagate());
    bench.serve(CommandKind::Read, PLACE, 8);
    let spent: u64 = (0..200).map(|index| bench.serve(WRITE, index * 80_000, 8).0).sum();
    // Head switch and settling take 1.7 ms, a revolution 10.
    spent / 200 < 3_000_000
}

#[test]
fn the_log_whose_end_passes_first_takes_a_write() {
    assert!(writes_in_turn_wait_for_no_revolution());
    assert!(!with(Bug::NearestLog, writes_in_turn_wait_for_no_revolution));
}

#[test]
fn of_one_log_the_next_sector_is_a_revolution_away() {
    let mut bench = near(&with_logs(|table| table.near_logs = 1));
    bench.serve(CommandKind::Read, PLACE, 8);
    let spent: u64 = (0..200).map(|index| bench.serve(WRITE, index * 80_000, 8).0).sum();
    assert!(spent / 200 > 9_000_000, "{} ns", spent / 200);
}

/// Writes that wait together are written one behind the other: only the first needs positioning.
#[test]
fn writes_that_wait_together_follow_each_other() {
    let mut bench = near(&seagate());
    bench.serve(CommandKind::Read, PLACE, 8);
    let began = bench.now;
    for index in 0..32 {
        bench.submit(WRITE, Extent::new(index * 80_000, 8));
    }
    bench.settle();
    assert!(bench.now.since(began) < Nanos::from_millis(8), "{:?}", bench.now.since(began));
}

/// Fills the log at one place without a pause, and then leaves the drive alone.
fn full_logs_swap_in_a_pause_and_not_far() -> bool {
    let mut bench = near(&with_logs(|table| (table.log_sectors, table.near_logs) = (8192, 1)));
    bench.serve(CommandKind::Read, PLACE, 8);
    let here = bench.drive.position().cylinder;
    for index in 0..60 {
        bench.serve(WRITE, 80_000 * index, 1024);
    }
    let busy = bench.figures();
    bench.wait(Nanos(SECOND / 2));
    let after = bench.figures();
    bench.serve(CommandKind::Read, 0, 8);
    let there = bench.drive.position().cylinder;
    (busy.log_swaps, busy.cleaning) == (0, Nanos(0))
        && after.log_swaps >= 1
        && there.abs_diff(here) < 200
}

#[test]
fn full_logs_are_swapped_when_nothing_waits() {
    assert!(full_logs_swap_in_a_pause_and_not_far());
    assert!(!with(Bug::SwapsBesideWork, full_logs_swap_in_a_pause_and_not_far));
}

#[test]
fn where_the_near_logs_are_full_the_next_ones_take_over() {
    let mut bench = near(&with_logs(|table| (table.log_sectors, table.near_logs) = (8192, 1)));
    bench.serve(CommandKind::Read, PLACE, 8);
    let here = bench.drive.position().cylinder;
    // 100 MiB, in logs of 4 MiB.
    for index in 0..200 {
        bench.serve(WRITE, 80_000 * index, 1024);
        assert!(bench.drive.position().cylinder.abs_diff(here) < 400, "{index}");
    }
    assert_eq!(bench.figures().refused_entries, 0);
    bench.wait(Nanos::from_secs(1000));
    let figures = bench.figures();
    assert_eq!((figures.dirty_bands, figures.cache_used), (0, Sectors(0)), "{figures:?}");
    assert!(figures.table_bytes_max >= 200 * 16, "{figures:?}");
}

/// Half of the data lies in the cache and half in its band, piece by piece.
fn the_head_goes_once_to_the_cache_and_once_to_the_band() -> bool {
    let mut bench = Bench::new(&seagate(), |options| Options {
        write_cache: false,
        placement: CachePlacement::Single,
        ..options
    });
    let far = bench.drive.capacity().0 / 2;
    let pieces = 8;
    for piece in 0..pieces {
        bench.serve(WRITE, far + piece * 32, 16);
    }
    // In address order there are 16 long seeks.
    bench.serve(CommandKind::Read, far, pieces * 32) < Nanos::from_millis(150)
}

#[test]
fn the_pieces_of_a_read_are_read_as_they_come() {
    assert!(the_head_goes_once_to_the_cache_and_once_to_the_band());
    assert!(!with(Bug::PiecesByAddress, the_head_goes_once_to_the_cache_and_once_to_the_band));
}

/// Time that reads and small writes take in turn, 32 of them at a time.
fn seconds_of_a_deep_queue(placement: CachePlacement) -> f64 {
    let mut bench =
        Bench::new(&seagate(), |options| Options { write_cache: false, placement, ..options });
    let (mut rng, room) = (Rng::new(3), bench.drive.capacity().0 * 8 / 10);
    for _ in 0..1500 {
        for kind in [CommandKind::Read, WRITE] {
            bench.submit(kind, Extent::new(rng.below(room / 8) * 8, 8));
        }
    }
    bench.settle();
    bench.now.as_secs_f64()
}

fn a_deep_queue_is_as_fast_as_with_one_cache() -> bool {
    seconds_of_a_deep_queue(CachePlacement::NearHead)
        < seconds_of_a_deep_queue(CachePlacement::Single)
}

#[test]
fn writes_gather_while_more_reads_wait() {
    assert!(a_deep_queue_is_as_fast_as_with_one_cache());
    assert!(!with(Bug::WritesFirst, a_deep_queue_is_as_fast_as_with_one_cache));
}

/// A single write among reads is not held back for ever.
#[test]
fn a_single_write_among_reads_waits_a_fifth_of_a_second_at_most() {
    let mut bench = near(&seagate());
    let (mut rng, room) = (Rng::new(5), bench.drive.capacity().0 * 8 / 10);
    for _ in 0..31 {
        bench.submit(CommandKind::Read, Extent::new(rng.below(room / 8) * 8, 8));
    }
    bench.submit(WRITE, Extent::new(0, 8));
    let (write, arrived) = (bench.tag, bench.now);
    let answered = |bench: &Bench| bench.completed.iter().find(|c| c.tag == write).map(|c| c.at);
    while answered(&bench).is_none() {
        bench.submit(CommandKind::Read, Extent::new(rng.below(room / 8) * 8, 8));
    }
    let waited = answered(&bench).unwrap().since(arrived);
    assert!(waited > Nanos::from_millis(100) && waited < Nanos::from_millis(250), "{waited:?}");
}
