//! Databases in virtual time: which requests go before others.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{AT_ONCE, in_virtual_time, read, write};
use manylogs_block::{Handle, Nanos};
use manylogs_schedule::{Class, Scheduler};

const UNTIL: Nanos = Nanos::from_secs(4);

/// Eight clients, each of which reads four times, syncs and rests, over and over. Returns the
/// number of syncs.
fn database(runtime: &Handle, scheduler: &Scheduler, rests_ms: u64) -> Rc<Cell<u32>> {
    let done = Rc::new(Cell::new(0));
    let until = runtime.now() + UNTIL;
    for client in 0..8 {
        let (clock, scheduler) = (runtime.clone(), scheduler.clone());
        let done = Rc::clone(&done);
        runtime.spawn(async move {
            let mut at = client * 8192;
            while clock.now() < until {
                for _ in 0..4 {
                    at = (at + 65_536 + 24) % (1 << 18);
                    scheduler.submit(Class::Small, read((1 << 18) + at, 8)).await.unwrap();
                }
                scheduler.sync_asked();
                let record = write((1 << 19) + client * 4096, 8, 7);
                scheduler.submit(Class::Record, record).await.unwrap();
                done.set(done.get() + 1);
                clock.sleep(Nanos::from_millis(rests_ms)).await;
            }
        });
    }
    done
}

#[test]
fn frequent_records_have_no_right_of_way_over_small_reads() {
    for (rests_ms, frequent) in [(0, true), (700, false)] {
        in_virtual_time(AT_ONCE, move |runtime, drive, scheduler| async move {
            let done = database(&runtime, &scheduler, rests_ms);
            runtime.sleep(Nanos::from_secs(2)).await;
            let mut seen = 0;
            for _ in 0..1000 {
                runtime.sleep(Nanos::from_millis(1)).await;
                seen += u32::from(scheduler.serves_database());
            }
            assert_eq!(seen > 800, frequent, "{seen}");
            drive.0.beside_writes.set(0);
            let before = done.get();
            runtime.sleep(Nanos::from_secs(1)).await;
            let (passed, syncs) = (drive.0.beside_writes.get(), done.get() - before);
            assert!(syncs > 5, "{syncs}");
            // There are four reads for each sync, so few of them find a record in the device if
            // records go first.
            assert_eq!(2 * passed > syncs, frequent, "{passed} beside {syncs}");
        });
    }
}

/// A stream beside a database gets turns: at the latest after 25 targets.
fn streams_have_turns() {
    in_virtual_time(AT_ONCE, |runtime, _, scheduler| async move {
        let _done = database(&runtime, &scheduler, 0);
        runtime.sleep(Nanos::from_secs(1)).await;
        for round in 0..8 {
            let before = runtime.now();
            scheduler.submit(Class::Stream, read(round * 2048, 2048)).await.unwrap();
            let took = runtime.now().since(before);
            assert!(took <= Nanos::from_millis(400), "{took:?}");
        }
    });
}

#[test]
fn a_stream_has_its_turns_beside_a_database() {
    streams_have_turns();
}

#[cfg(feature = "plant")]
mod planted {
    use super::*;
    use crate::common::is_noticed;
    use manylogs_plant::Bug;

    #[test]
    fn starving_streams_is_noticed() {
        is_noticed(Bug::DatabaseStarvesStreams, streams_have_turns);
    }
}
