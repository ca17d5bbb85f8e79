//! The scheduler in virtual time, over a device that takes requests one after the other.

use std::collections::VecDeque;

use crate::common::{AT_ONCE, CAPACITY, LATENCY, in_virtual_time, read, write};
use manylogs_block::{BlockDevice, Extent, IoError, Lba, MemoryDevice, Nanos, Request, Sectors};
use manylogs_schedule::{Cause, Class};
use proptest::prelude::*;

#[test]
fn where_nobody_syncs_everything_passes_at_once() {
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        let reads: Vec<_> =
            (0..32).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        assert_eq!(drive.0.submitted.borrow().len(), 32);
        assert!(drive.0.submitted.borrow().iter().all(|(at, _)| *at == runtime.now()));
        for read in reads {
            read.await.unwrap();
        }
    });
}

/// A record finds little work ahead of it, even if many requests wait.
#[test]
fn a_record_waits_for_no_more_than_the_target_beside_a_deep_stream() {
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        let stream: Vec<_> =
            (0..64).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        // After this time the stream counts as one that goes on.
        runtime.sleep(Nanos::from_millis(150)).await;
        drive.0.most_sectors.set(0);
        for i in 0..20 {
            runtime.sleep(Nanos::from_millis(15)).await;
            let before = runtime.now();
            scheduler.submit(Class::Record, write((1 << 19) + 8 * i, 8, i)).await.unwrap();
            let took = runtime.now().since(before);
            assert!(took <= LATENCY, "{took:?}");
        }
        assert!(drive.0.most_sectors.get() < 1024, "{}", drive.0.most_sectors.get());
        for read in stream {
            assert_eq!(read.await.unwrap().len(), Sectors(2048));
        }
    });
}

/// Scattered reads take the head away from a stream, so that each of its pieces would cost a seek.
#[test]
fn a_stream_beside_scattered_reads_goes_in_whole_requests() {
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        let until = runtime.now() + Nanos::from_secs(4);
        for client in 0..6 {
            let (clock, scheduler) = (runtime.clone(), scheduler.clone());
            runtime.spawn(async move {
                let mut at = client * 8192;
                while clock.now() < until {
                    at = (at + 65_536) % (1 << 18);
                    scheduler.submit(Class::Small, read((1 << 18) + at, 8)).await.unwrap();
                }
            });
        }
        let (clock, records) = (runtime.clone(), scheduler.clone());
        runtime.spawn(async move {
            let mut at = 1 << 19;
            while clock.now() < until {
                records.submit(Class::Record, write(at, 8, 1)).await.unwrap();
                at += 8;
                clock.sleep(Nanos::from_millis(15)).await;
            }
        });
        let (mut next, mut whole) = (0, 0);
        while runtime.now() < until {
            scheduler.submit(Class::Stream, read(next, 1024)).await.unwrap();
            let submitted = drive.0.submitted.borrow();
            whole += u32::from(submitted.iter().any(|(_, request)| *request == read(next, 1024)));
            next = (next + 1024) % (1 << 18);
            drop(submitted);
            drive.0.submitted.borrow_mut().clear();
        }
        // Half a MiB takes 7 ms with the seek, and other requests have their turns in between.
        assert!(whole > 80, "{whole}");
    });
}

#[test]
fn it_says_what_waits_for_what() {
    in_virtual_time(AT_ONCE, |runtime, _, scheduler| async move {
        let turns = |class: Class| scheduler.stats().classes[class as usize];
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        assert_eq!((scheduler.stats().waits_for, scheduler.stats().waited_ns), (None, [0, 0]));
        // The first two go together; the others find no room in the device.
        let mut stream: VecDeque<_> =
            (0..8).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        assert_eq!(scheduler.stats().waits_for, Some(Cause::Room));
        let waiting = turns(Class::Stream).waiting;
        assert!((1..8).contains(&waiting), "{waiting}");
        stream.pop_front().unwrap().await.unwrap();
        let [for_record, for_room] = scheduler.stats().waited_ns;
        assert!(for_record == 0 && for_room > 0, "{for_record} {for_room}");
        // While a record is under way, the next request of the stream waits for it.
        let began = runtime.now();
        let record = scheduler.submit(Class::Record, write((1 << 19) + 8, 8, 2));
        stream.pop_front().unwrap().await.unwrap();
        assert_eq!(scheduler.stats().waits_for, Some(Cause::Record));
        record.await.unwrap();
        let took = runtime.now().since(began);
        let [for_record, _] = scheduler.stats().waited_ns;
        assert!((1..=took.0).contains(&for_record), "{for_record} of {took:?}");
        for read in stream {
            read.await.unwrap();
        }
        let stats = scheduler.stats();
        assert_eq!((stats.waits_for, turns(Class::Stream).waiting), (None, 0));
        let (record, stream) = (turns(Class::Record), turns(Class::Stream));
        assert_eq!((record.requests, record.held), (2, 0), "a record goes at once");
        assert_eq!(stream.requests, 8);
        assert!(stream.held >= waiting && stream.held_ns >= stream.held_max_ns);
        assert!(stream.held_max_ns >= for_room);
    });
}

#[test]
fn a_record_that_the_device_leaves_waiting_is_not_forgotten() {
    in_virtual_time(AT_ONCE, |runtime, _, scheduler| async move {
        // Two seconds of a stream, which the device serves first.
        let mut stream: Vec<_> =
            (0..200).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        let began = runtime.now();
        let record = scheduler.submit(Class::Record, write(1 << 19, 8, 1));
        runtime.sleep(Nanos::from_millis(1500)).await;
        // Some of these get a turn, because none had one for so long; the others are held back.
        stream.extend((200..204).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))));
        assert!(scheduler.stats().classes[Class::Stream as usize].waiting > 0);
        record.await.unwrap();
        assert!(runtime.now().since(began) > Nanos::from_millis(1900), "it waited for them");
        for read in stream {
            read.await.unwrap();
        }
    });
}

/// Four clients append without a pause; requests of all other classes must still get turns.
fn nobody_starves() {
    in_virtual_time(AT_ONCE, |runtime, _, scheduler| async move {
        let until = runtime.now() + Nanos::from_secs(4);
        for client in 0..4 {
            let (clock, scheduler) = (runtime.clone(), scheduler.clone());
            runtime.spawn(async move {
                let mut at = (1 << 19) + client * 4096;
                while clock.now() < until {
                    scheduler.submit(Class::Record, write(at, 8, 7)).await.unwrap();
                    at = (1 << 19) + client * 4096 + (at + 8) % 4096;
                }
            });
        }
        runtime.sleep(Nanos::from_millis(50)).await;
        for class in [Class::Small, Class::Stream, Class::Background] {
            for round in 0..4 {
                let before = runtime.now();
                let len = if class == Class::Small { 8 } else { 512 };
                scheduler.submit(class, read(round * 65_536, len)).await.unwrap();
                let took = runtime.now().since(before);
                assert!(took <= Nanos::from_millis(500), "{class:?}: {took:?}");
            }
        }
    });
}

#[test]
fn no_class_starves_beside_endless_records() {
    nobody_starves();
}

#[test]
fn the_volumes_own_work_goes_on_beside_clients_that_always_wait() {
    in_virtual_time(AT_ONCE, |runtime, _, scheduler| async move {
        let until = runtime.now() + Nanos::from_secs(4);
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        for client in 0..8 {
            let (clock, scheduler) = (runtime.clone(), scheduler.clone());
            runtime.spawn(async move {
                let mut at = client * 8192;
                while clock.now() < until {
                    at = (at + 65_536) % (1 << 18);
                    let class = if client < 4 { Class::Small } else { Class::Stream };
                    scheduler
                        .submit(class, read(at, if client < 4 { 8 } else { 1024 }))
                        .await
                        .unwrap();
                }
            });
        }
        let mut records = (1 << 19) + 8;
        for _ in 0..8 {
            scheduler.submit(Class::Record, write(records, 8, 1)).await.unwrap();
            records += 8;
            let before = runtime.now();
            scheduler.submit(Class::Background, read(1 << 18, 256)).await.unwrap();
            let took = runtime.now().since(before);
            assert!(took <= Nanos::from_millis(600), "{took:?}");
        }
    });
}

#[test]
fn the_error_of_a_piece_is_the_error_of_the_request() {
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        let before: Vec<_> =
            (4..24).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        drive.0.fails_at.set(Some(Lba(700)));
        let failed = scheduler.submit(Class::Stream, read(0, 2048)).await.unwrap_err();
        assert!(matches!(failed, IoError::Medium { extent } if extent.range().contains(&700)));
        drive.0.fails_at.set(None);
        for read in before {
            assert_eq!(read.await.unwrap().len(), Sectors(2048));
        }
        assert!(drive.0.submitted.borrow().len() > 40, "it went in pieces");
        drop(scheduler.submit(Class::Stream, read(0, 2048)));
        runtime.sleep(Nanos::from_secs(1)).await;
        let stats = scheduler.stats();
        assert!(stats.classes.iter().all(|class| class.waiting == 0), "{stats:?}");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read { class: Class, start: u64, len: u64 },
    Write { class: Class, start: u64, len: u64 },
    Zero { start: u64, len: u64 },
    Flush,
    Sleep { us: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = prop_oneof![Just(Class::Small), Just(Class::Stream), Just(Class::Background)];
    let any = prop_oneof![3 => class.clone(), 1 => Just(Class::Record)];
    let place = (0..400u64, prop_oneof![Just(8u64), 1..40u64, 300..2600u64]);
    prop::collection::vec(
        prop_oneof![
            4 => (class.clone(), place.clone())
                .prop_map(|(class, (start, len))| Step::Read { class, start, len }),
            4 => (any, place.clone())
                .prop_map(|(class, (start, len))| Step::Write { class, start, len }),
            1 => place.prop_map(|(start, len)| Step::Zero { start, len }),
            1 => Just(Step::Flush),
            2 => (0..8_000u64).prop_map(|us| Step::Sleep { us }),
        ],
        1..120,
    )
}

/// Each request is answered once, with the answer it would get in order of arrival. So none is
/// lost, sent twice, or overtaken by a request that touches the same sectors.
fn answers_are_those_of_the_order_of_arrival(steps: Vec<Step>) {
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        let model = MemoryDevice::new(CAPACITY);
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        let mut sent = 8;
        let mut answers = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let tag = 10_000 * (index as u64 + 1);
            let (class, request) = match step {
                Step::Read { class, start, len } => (class, read(start, len)),
                Step::Write { class, start, len } => (class, write(start, len, tag)),
                Step::Zero { start, len } => {
                    let extent = Extent::new(start, len);
                    (Class::Stream, Request::WriteZeroes { extent, fua: false, if_fast: false })
                }
                Step::Flush => (Class::Record, Request::Flush),
                Step::Sleep { us } => {
                    runtime.sleep(Nanos::from_micros(us)).await;
                    continue;
                }
            };
            sent += request.extent().map_or(0, |extent| extent.len.0);
            let expected = model.submit(request.clone()).await;
            answers.push((scheduler.submit(class, request), expected));
        }
        for (answer, expected) in answers {
            assert_eq!(answer.await, expected);
        }
        let found: u64 = drive
            .0
            .submitted
            .borrow()
            .iter()
            .filter_map(|(_, r)| r.extent())
            .map(|e| e.len.0)
            .sum();
        assert_eq!(found, sent, "every sector goes to the device once");
        let whole = read(0, 4096);
        assert_eq!(drive.0.memory.submit(whole.clone()).await, model.submit(whole).await);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn requests_take_effect_as_they_arrived(steps in steps()) {
        answers_are_those_of_the_order_of_arrival(steps);
    }
}

#[cfg(feature = "plant")]
mod planted {
    use manylogs_plant::Bug;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::common::is_noticed;

    #[test]
    fn starving_and_overtaking_are_noticed() {
        is_noticed(Bug::RecordsStarveOthers, nobody_starves);
        for bug in [Bug::OverlapsOvertaken, Bug::PieceSentTwice] {
            is_noticed(bug, || {
                let mut runner = TestRunner::new(Config { cases: 300, ..Config::default() });
                let test = |steps| {
                    answers_are_those_of_the_order_of_arrival(steps);
                    Ok(())
                };
                runner.run(&steps(), test).unwrap();
            });
        }
    }
}
