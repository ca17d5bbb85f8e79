//! Kept content that is read in order is read ahead: each piece once, in the order of the device,
//! in memory that is lent, and never instead of a newer version.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Rig, bytes, cached, config, in_virtual_time, low_byte, read, write};
use manylogs::{AheadMemory, Volume};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, Lba, Nanos, Payload, Request, RequestKind, Sectors,
};

/// Sectors of a piece, and how many pieces a file has.
const PIECE: u64 = 8;
const COUNT: u64 = 120;
/// Bytes of the first window.
const WINDOW: u64 = 2 << 20;
/// Where two files begin, farther from each other than a window is long.
const FILE: u64 = 8000;
const OTHER: u64 = 20_000;

/// Memory of which so many bytes can be lent.
#[derive(Clone, Debug)]
struct Lender {
    most: u64,
    lent: Rc<Cell<u64>>,
}

struct Lent(Lender, u64);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.lent.set(self.0.lent.get() - self.1);
    }
}

impl AheadMemory for Lender {
    fn take(&self, bytes: u64) -> Option<Box<dyn Any>> {
        let lent = self.lent.get() + bytes;
        (lent <= self.most).then(|| {
            self.lent.set(lent);
            Box::new(Lent(self.clone(), bytes)) as Box<dyn Any>
        })
    }
}

/// A volume that keeps versions, its device, and who lends memory of so many bytes.
async fn lending(runtime: &Handle, most: u64) -> (Volume, Rc<Rig>, Lender) {
    let device = cached();
    let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
    assert!(volume.keep_versions().await.unwrap());
    let lender = Lender { most, lent: Rc::default() };
    volume.read_ahead_in(Rc::new(lender.clone()));
    (volume, device, lender)
}

fn content(number: u64) -> Payload {
    bytes(low_byte(number), PIECE)
}

fn kept(start: u64, payload: Payload) -> Request {
    let extent = Extent { start: Lba(start), len: payload.len() };
    Request::Write { extent, payload, fua: true, hint: Hint::DurabilityOnly }
}

/// Writes the pieces of a file, each in a record of its own, in another order than that of the
/// file.
async fn write_file(volume: &Volume, start: u64) {
    for turn in 0..COUNT {
        let number = turn * 37 % COUNT;
        volume.submit(kept(start + PIECE * number, content(number))).await.unwrap();
    }
}

/// Reads some pieces of a file, one after the other.
async fn read_file(volume: &Volume, start: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        is_there(volume, start + PIECE * number, &content(number)).await;
    }
}

async fn is_there(volume: &Volume, start: u64, content: &Payload) {
    let found = volume.submit(read(start, content.len().0)).await.unwrap();
    assert!(found.to_bytes() == content.to_bytes(), "other content at {start}");
}

/// What was read since the device's list was cleared.
fn reads(device: &Rig) -> Vec<Extent> {
    device.extents_of(&[RequestKind::Read])
}

fn pieces_are_read_once_in_the_order_of_the_device() {
    in_virtual_time(|runtime| async move {
        let (volume, device, lender) = lending(&runtime, WINDOW).await;
        write_file(&volume, FILE).await;
        device.forget();
        read_file(&volume, FILE, 0..1).await;
        assert_eq!(reads(&device).len(), 1, "one request is no reader in order");
        read_file(&volume, FILE, 1..2).await;
        runtime.sleep(Nanos::from_millis(1)).await;
        let found = reads(&device);
        assert_eq!(found.len() as u64, COUNT);
        assert!(found[1..].is_sorted_by_key(|read| read.start), "{found:?}");
        assert_eq!(lender.lent.get(), WINDOW);
        device.forget();
        read_file(&volume, FILE, 2..COUNT).await;
        assert_eq!(reads(&device), []);
        assert_eq!(lender.lent.get(), 0, "all of it was asked for");
    });
}

fn a_newer_version_is_read_instead() {
    in_virtual_time(|runtime| async move {
        let (volume, _, _) = lending(&runtime, WINDOW).await;
        write_file(&volume, FILE).await;
        read_file(&volume, FILE, 0..2).await;
        let new = bytes(201, 3);
        volume.submit(kept(FILE + PIECE * 50, new.clone())).await.unwrap();
        volume.submit(write(FILE + PIECE * 60, &new, true)).await.unwrap();
        let extent = Extent::new(FILE + PIECE * 70, PIECE);
        volume.submit(Request::Discard { extent, fua: true }).await.unwrap();
        // Nor does it matter where a version is by now.
        assert!(volume.checkpoint().await.is_ok());
        read_file(&volume, FILE, 2..50).await;
        for number in [50, 60] {
            let rest = content(number).slice(Sectors(3), Sectors(PIECE - 3));
            is_there(&volume, FILE + PIECE * number, &new).await;
            is_there(&volume, FILE + PIECE * number + 3, &rest).await;
        }
        is_there(&volume, FILE + PIECE * 70, &Payload::zeroes(Sectors(PIECE))).await;
        read_file(&volume, FILE, 71..COUNT).await;
    });
}

fn what_nobody_asks_for_gives_its_memory_to_others() {
    in_virtual_time(|runtime| async move {
        let (volume, device, lender) = lending(&runtime, WINDOW).await;
        write_file(&volume, FILE).await;
        write_file(&volume, OTHER).await;
        read_file(&volume, FILE, 0..2).await;
        device.forget();
        read_file(&volume, OTHER, 0..4).await;
        assert_eq!(reads(&device).len(), 4, "the other file has the memory");
        runtime.sleep(Nanos::from_secs(6)).await;
        device.forget();
        read_file(&volume, OTHER, 4..5).await;
        runtime.sleep(Nanos::from_millis(1)).await;
        assert_eq!(reads(&device).len() as u64, COUNT - 4, "the rest was read ahead");
        read_file(&volume, OTHER, 5..COUNT).await;
        assert_eq!(lender.lent.get(), 0);
        read_file(&volume, FILE, 2..COUNT).await;
    });
}

#[test]
fn nothing_is_read_ahead_without_memory() {
    in_virtual_time(|runtime| async move {
        let (volume, device, _) = lending(&runtime, 0).await;
        write_file(&volume, FILE).await;
        device.forget();
        for number in 0..COUNT {
            read_file(&volume, FILE, number..number + 1).await;
            assert_eq!(reads(&device).len() as u64, number + 1);
        }
    });
}

#[test]
fn a_piece_that_cannot_be_read_fails_only_who_asks_for_it() {
    use crate::common::{ReadFault, RigOrders};

    in_virtual_time(|runtime| async move {
        let (volume, device, _) = lending(&runtime, WINDOW).await;
        write_file(&volume, FILE).await;
        device.forget();
        is_there(&volume, FILE + PIECE * 50, &content(50)).await;
        device.fail_reads(reads(&device)[0], ReadFault::Medium);
        read_file(&volume, FILE, 0..50).await;
        assert!(volume.submit(read(FILE + PIECE * 50, PIECE)).await.is_err());
        read_file(&volume, FILE, 51..COUNT).await;
    });
}

/// The cases, in the order of `manylogs_plant::READ_AHEAD`.
const CASES: [fn(); 3] = [
    a_newer_version_is_read_instead,
    pieces_are_read_once_in_the_order_of_the_device,
    what_nobody_asks_for_gives_its_memory_to_others,
];

#[test]
fn reading_ahead_changes_nothing_but_the_time() {
    CASES.iter().for_each(|case| case());
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_of_reading_ahead_are_noticed() {
    use manylogs_plant::{READ_AHEAD, plant};

    assert_eq!(READ_AHEAD.len(), CASES.len());
    for (bug, case) in READ_AHEAD.iter().zip(CASES) {
        plant(Some(*bug));
        let found = std::panic::catch_unwind(case);
        plant(None);
        assert!(found.is_err(), "{bug:?} was not noticed");
    }
}
