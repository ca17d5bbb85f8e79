//! An array that is scheduled as one device, because records go to all of its drives.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{AT_ONCE, in_virtual_time, read, write};
use manylogs_block::{Geometry, Lba, Nanos, Request, Sectors};
use manylogs_schedule::{Class, Scheduler};

/// A piece of a stream of reads is 64 KiB.
const PIECE: u64 = 128;

/// Number of pieces of a stream that the device gets at once after a record.
fn pieces_after_a_record(over: impl Fn(Scheduler) -> Scheduler + 'static) -> usize {
    let found = Rc::new(Cell::new(0));
    let out = Rc::clone(&found);
    in_virtual_time(AT_ONCE, |runtime, drive, scheduler| async move {
        let scheduler = over(scheduler);
        scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
        let stream: Vec<_> =
            (0..64).map(|i| scheduler.submit(Class::Stream, read(i * 2048, 2048))).collect();
        // After this time the stream counts as one that goes on.
        runtime.sleep(Nanos::from_millis(150)).await;
        drive.0.submitted.borrow_mut().clear();
        scheduler.submit(Class::Record, write((1 << 19) + 8, 8, 2)).await.unwrap();
        runtime.sleep(Nanos::from_millis(15)).await;
        let submitted = drive.0.submitted.take();
        let is_read = |request: &Request| matches!(request, Request::Read { .. });
        let record = submitted.iter().position(|(_, request)| !is_read(request)).unwrap();
        let behind = &submitted[record + 1..];
        out.set(behind.iter().filter(|(at, _)| *at == behind[0].0).count());
        for read in stream {
            read.await.unwrap();
        }
    });
    found.get()
}

#[test]
fn after_a_record_each_drive_of_an_array_gets_a_piece() {
    assert_eq!(pieces_after_a_record(|one| one), 1, "a drive would begin with the wrong one");
    let array = |one: Scheduler| one.over_stripes(array(2, Sectors(0)));
    assert_eq!(pieces_after_a_record(array), 2);
}

/// An array with parity of so many columns, which begins `first` behind the beginning of a stripe.
fn array(columns: u16, first: Sectors) -> Geometry {
    Geometry { chunk: Sectors(PIECE), columns, copies: 1, parity: 1, first }
}

/// A record in flight holds back a stream of writes that goes on: then it goes in pieces.
#[test]
fn writes_to_an_array_with_parity_go_in_pieces_that_end_at_stripes() {
    for (columns, first) in [(3, 0), (3, 8), (6, 0), (6, 640)] {
        let array = array(columns, Sectors(first));
        in_virtual_time(AT_ONCE, move |runtime, drive, scheduler| async move {
            let scheduler = scheduler.over_stripes(array);
            scheduler.submit(Class::Record, write(1 << 19, 8, 1)).await.unwrap();
            let stream: Vec<_> = (0..64)
                .map(|i| scheduler.submit(Class::Stream, write(i * 4096, 4096, 3)))
                .collect();
            runtime.sleep(Nanos::from_millis(150)).await;
            drive.0.submitted.borrow_mut().clear();
            // What went whole has ended, and records are still expected.
            runtime.sleep(Nanos::from_millis(150)).await;
            drive.0.most_sectors.set(0);
            runtime.sleep(Nanos::from_millis(100)).await;
            let piece = 1024_u64.next_multiple_of(array.stripe().0);
            let most = drive.0.most_sectors.get() / piece;
            for write in stream {
                write.await.unwrap();
            }
            let each = 2 * u64::from(columns);
            // The last piece of a request may be longer by a half.
            let right = each - 1..=each + each / 2;
            assert!(right.contains(&most), "{most} pieces of {columns} columns at once");
            let submitted = drive.0.submitted.take();
            let parts: Vec<_> = submitted.iter().filter_map(|(_, one)| one.extent()).collect();
            let cut = |end: Lba| !end.0.is_multiple_of(4096);
            assert!(parts.iter().any(|part| cut(part.end())), "no request went in pieces");
            for end in parts.iter().map(|part| part.end()).filter(|end| cut(*end)) {
                assert_eq!(array.stripe_from(end), end, "{columns} columns, {first} behind");
            }
        });
    }
}

#[cfg(feature = "plant")]
#[test]
fn drives_that_idle_are_noticed() {
    let bug = manylogs_plant::Bug::ArrayResumesOnOneDrive;
    crate::common::is_noticed(bug, after_a_record_each_drive_of_an_array_gets_a_piece);
}

#[cfg(feature = "plant")]
#[test]
fn pieces_that_end_within_a_stripe_are_noticed() {
    let bug = manylogs_plant::Bug::PieceEndsWithinStripe;
    crate::common::is_noticed(bug, writes_to_an_array_with_parity_go_in_pieces_that_end_at_stripes);
}
