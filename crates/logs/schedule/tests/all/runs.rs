//! Streams that pause, and streams that begin, in virtual time: a record beside them waits for a
//! piece or two, as long as the device has time for that.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{in_virtual_time, read, write};
use manylogs_block::{Nanos, Sectors, Time};
use manylogs_schedule::{Class, Scheduler, Targets};

/// The default targets.
const USUAL: Targets =
    Targets { latency: Nanos::from_millis(10), contended_after: Nanos::from_millis(300) };
/// A mebibyte, which takes the device 10.5 ms.
const REQUEST: u64 = 2048;

/// Sends a record 5 ms after each of several bursts; returns the longest latency of the records.
fn beside_bursts(starts: [u64; 16], frequent_syncs: bool) -> Nanos {
    let longest = Rc::new(Cell::new(Nanos(0)));
    let found = Rc::clone(&longest);
    in_virtual_time(USUAL, move |runtime, _, scheduler| async move {
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        // Lets the scheduler see that the device is idle at times.
        for _ in 0..12 {
            runtime.sleep(Nanos::from_millis(100)).await;
            scheduler.submit(Class::Small, read(0, 8)).await.unwrap();
            scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        }
        for round in 1..8 {
            for _ in 0..30 {
                runtime.sleep(Nanos::from_millis(10)).await;
                if frequent_syncs {
                    scheduler.sync_asked();
                }
            }
            let burst: Vec<_> =
                starts.map(|at| scheduler.submit(Class::Stream, read(at, REQUEST))).into();
            runtime.sleep(Nanos::from_millis(5)).await;
            let took = record_takes(&scheduler, &runtime, round).await;
            longest.set(longest.get().max(took));
            for read in burst {
                assert_eq!(read.await.unwrap().len(), Sectors(REQUEST));
            }
        }
    });
    found.get()
}

async fn record_takes(
    scheduler: &Scheduler,
    runtime: &manylogs_block::Handle,
    round: u64,
) -> Nanos {
    let before = runtime.now();
    let record = write((1 << 19) + 8 * round, 8, 1);
    scheduler.submit(Class::Record, record).await.unwrap();
    runtime.now().since(before)
}

const fn run() -> [u64; 16] {
    let mut starts = [0; 16];
    let mut index = 0;
    while index < 16 {
        starts[index] = REQUEST * index as u64;
        index += 1;
    }
    starts
}

/// A record waits only shortly, even if bursts are far apart.
fn a_run_is_held_back() {
    let took = beside_bursts(run(), false);
    assert!(took <= Nanos::from_millis(30), "a piece or two of the run: {took:?}");
}

#[test]
fn a_run_is_held_back_before_it_is_contention() {
    a_run_is_held_back();
}

#[test]
fn a_burst_that_has_an_order_goes_as_a_whole() {
    let two_runs =
        std::array::from_fn(|index| REQUEST * (index as u64 / 2) + 100_000 * (index as u64 % 2));
    let took = beside_bursts(two_runs, false);
    assert!(took >= Nanos::from_millis(100), "all of it is in the device: {took:?}");
}

/// If syncs are frequent, each record would cost the run a seek and back, so the run passes.
fn a_run_beside_frequent_syncs_passes() {
    let took = beside_bursts(run(), true);
    assert!(took >= Nanos::from_millis(100), "all of it is in the device: {took:?}");
}

#[test]
fn a_run_is_not_held_back_for_frequent_syncs() {
    a_run_beside_frequent_syncs_passes();
}

/// Records beside a reader of depth 16 that has just begun are fast after a moment.
#[test]
fn records_beside_a_stream_that_begins_are_fast_within_a_tenth_of_a_second() {
    in_virtual_time(USUAL, |runtime, _, scheduler| async move {
        for round in 0..40 {
            runtime.sleep(Nanos::from_millis(50)).await;
            scheduler.submit(Class::Small, read(0, 8)).await.unwrap();
            record_takes(&scheduler, &runtime, round).await;
        }
        let began = runtime.now();
        let next = Rc::new(Cell::new(0));
        for _ in 0..16 {
            let (clock, scheduler, next) = (runtime.clone(), scheduler.clone(), Rc::clone(&next));
            runtime.spawn(async move {
                while clock.now().since(began) < Nanos::from_secs(1) {
                    let at = next.replace(next.get() + REQUEST) % (1 << 18);
                    scheduler.submit(Class::Stream, read(at, REQUEST)).await.unwrap();
                }
            });
        }
        while runtime.now().since(began) < Nanos::from_secs(1) {
            runtime.sleep(Nanos::from_millis(20)).await;
            let asked = runtime.now().since(began);
            let took = record_takes(&scheduler, &runtime, 3).await;
            let late = asked >= Nanos::from_millis(100);
            assert!(!late || took <= Nanos::from_millis(30), "{took:?} at {asked:?}");
        }
    });
}

/// Runs a reader that asks for more than the device can serve beside the records, at fixed times.
/// Returns the longest latency of its requests.
fn beside_overload() -> Nanos {
    let longest = Rc::new(Cell::new(Nanos(0)));
    let found = Rc::clone(&longest);
    // Contention has rules of its own, so it is switched off.
    let targets = Targets { contended_after: Nanos::from_secs(1000), ..USUAL };
    in_virtual_time(targets, move |runtime, _, scheduler| async move {
        for round in 0..40 {
            runtime.sleep(Nanos::from_millis(50)).await;
            scheduler.submit(Class::Small, read(0, 8)).await.unwrap();
            record_takes(&scheduler, &runtime, round).await;
        }
        let (clock, records) = (runtime.clone(), scheduler.clone());
        let until: Time = runtime.now() + Nanos::from_secs(20);
        runtime.spawn(async move {
            let mut at = 1 << 19;
            while clock.now() < until {
                clock.sleep(Nanos::from_millis(8)).await;
                // Records that wait together take one seek.
                let _record = records.submit(Class::Record, write(at, 8, 1));
                at += 8;
            }
        });
        let mut at = 0;
        while runtime.now() < until {
            runtime.sleep(Nanos::from_micros(11_800)).await;
            let before = runtime.now();
            let answer = scheduler.submit(Class::Stream, read(at % (1 << 18), REQUEST));
            at += REQUEST;
            let (clock, longest) = (runtime.clone(), Rc::clone(&longest));
            runtime.spawn(async move {
                answer.await.unwrap();
                longest.set(longest.get().max(clock.now().since(before)));
            });
        }
    });
    found.get()
}

fn holding_back_ends() {
    let took = beside_overload();
    assert!(took <= Nanos::from_millis(400), "held back for ever: {took:?}");
}

#[test]
fn holding_a_run_back_ends_where_the_device_has_no_time_for_it() {
    holding_back_ends();
}

#[cfg(feature = "plant")]
mod planted {
    use super::*;
    use crate::common::is_noticed;
    use manylogs_plant::Bug;

    #[test]
    fn a_run_that_is_held_back_for_ever_is_noticed() {
        is_noticed(Bug::RunHeldBackForEver, holding_back_ends);
    }

    #[test]
    fn a_run_that_is_held_back_for_frequent_syncs_is_noticed() {
        is_noticed(Bug::RunHeldBackForFrequent, a_run_beside_frequent_syncs_passes);
    }

    #[test]
    fn a_run_that_is_never_held_back_is_noticed() {
        is_noticed(Bug::RunsPass, a_run_is_held_back);
    }
}
