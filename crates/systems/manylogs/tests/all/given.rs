//! Volumes with logs and structures at places that an owner gave, and the owner's batches.

use std::rc::Rc;

use crate::common::{
    DEVICE, RigOrders, bytes, cached, config, in_virtual_time, low_byte, read, write,
};
use manylogs::{
    Anchors, CreateOptions, DrainOptions, Layout, LeftAs, OpenOptions, Settings, Volume,
    VolumeConfig, VolumeError, identify, identify_at,
};
use manylogs_array::{Members, Parity, Stripe};
use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Payload, Request, RequestKind, Sectors,
};
use manylogs_logstore::store::{Batch, NewEntry, Stream};
use manylogs_logstore::{Class, EntryKind};

const ANCHORS: Anchors = Anchors { first: Extent::new(9000, 200), last: Extent::new(1200, 96) };
const OPEN: fn() -> OpenOptions =
    || OpenOptions { anchors: Some(ANCHORS), ..OpenOptions::default() };

fn layout() -> Layout {
    let regions = [(2000, 400), (20_000, 800)].map(|(at, len)| Extent::new(at, len));
    Layout::given(&regions, ANCHORS, DEVICE, Sectors(1), None).unwrap()
}

async fn format(runtime: Handle, device: Rc<dyn BlockDevice>) -> Volume {
    let config = VolumeConfig { log: Sectors(400), ..config() };
    // The option to zero is ignored, because the owner's data must stay.
    let options = CreateOptions { layout: Some(layout()), zero: true, ..CreateOptions::default() };
    Volume::create_with(runtime, device, &config, &options).await.unwrap()
}

fn data(at: u64, payload: &Payload) -> NewEntry {
    let extent = Extent { start: manylogs_block::Lba(at), len: payload.len() };
    let (kind, class) = (EntryKind::Data, Class::Metadata);
    NewEntry { extent, kind, class, version: 0, payload: Some(payload.clone()) }
}

fn supersede(at: u64, len: u64) -> NewEntry {
    let (extent, kind) = (Extent::new(at, len), EntryKind::Supersede);
    NewEntry { extent, kind, class: Class::Metadata, version: 0, payload: None }
}

fn batch(entries: impl IntoIterator<Item = NewEntry>) -> Batch {
    Batch { entries: entries.into_iter().collect(), after: Some(Stream(0)) }
}

#[test]
fn what_the_owner_had_stays_at_its_address_and_a_drained_device_is_plain() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        device.submit(write(0, &bytes(9, 8), true)).await.unwrap();
        let below = Rc::clone(&device) as Rc<dyn BlockDevice>;
        let volume = format(runtime.clone(), Rc::clone(&below)).await;
        assert_eq!(volume.capabilities().capacity, Sectors(DEVICE.0 / 8 * 8));
        let kept = volume.submit(read(0, 8)).await.unwrap();
        assert!(kept.to_bytes() == bytes(9, 8).to_bytes(), "the owner's data");
        for i in 0..40 {
            volume.submit(write(30_000 + 8 * i, &bytes(low_byte(i), 8), true)).await.unwrap();
        }
        volume.submit(write(10_000, &bytes(77, 640), false)).await.unwrap();
        let home = device.medium().submit(read(30_000, 8)).await.unwrap();
        assert!(home.is_zero(), "small writes are logged");
        assert_eq!(identify_at(&below, Some(ANCHORS)).await.unwrap().left, LeftAs::Open);
        // As after a crash.
        drop(volume);
        let (volume, _) = Volume::open(runtime.clone(), Rc::clone(&below), &OPEN()).await.unwrap();
        assert_eq!(volume.layout(), &layout());
        volume.drain(&DrainOptions::default()).await.unwrap();
        for i in 0..40 {
            let found = device.medium().submit(read(30_000 + 8 * i, 8)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 8).to_bytes(), "block {i}");
        }
        assert_eq!(identify_at(&below, Some(ANCHORS)).await.unwrap().left, LeftAs::Drained);
    });
}

#[test]
fn a_volume_is_found_at_its_anchors_only() {
    in_virtual_time(|runtime| async move {
        let device = cached() as Rc<dyn BlockDevice>;
        format(runtime.clone(), Rc::clone(&device)).await.close().await.unwrap();
        assert_eq!(identify(&device).await.unwrap_err(), VolumeError::NotAVolume);
        let last_only = Anchors { first: Extent::new(12_000, 200), ..ANCHORS };
        let turned = Anchors { first: ANCHORS.last, last: ANCHORS.first };
        let beyond = Anchors { first: Extent::new(DEVICE.0, 200), ..ANCHORS };
        for anchors in [last_only, turned, beyond] {
            let found = identify_at(&device, Some(anchors)).await;
            assert_eq!(found.unwrap_err(), VolumeError::NotAVolume, "{anchors:?}");
        }
        // One copy is enough.
        for anchor in ANCHORS.both() {
            device.submit(write(anchor.start.0, &bytes(1, 8), true)).await.unwrap();
            let (volume, report) =
                Volume::open(runtime.clone(), Rc::clone(&device), &OPEN()).await.unwrap();
            assert!(report.from_backup_superblock || report.backup_superblock_damaged);
            // This writes both copies.
            volume.set(&Settings::of(&volume.config())).await.unwrap();
            volume.close().await.unwrap();
        }
    });
}

#[test]
fn the_owner_keeps_out_of_the_holes() {
    in_virtual_time(|runtime| async move {
        let volume = format(runtime, cached()).await;
        for at in [1200, 1295, 2000, 2399, 9199, 20_799] {
            let refused = Err(IoError::Unsupported);
            assert_eq!(volume.submit(write(at, &bytes(1, 1), true)).await.map(drop), refused);
            assert_eq!(volume.submit(read(at, 1)).await.map(drop), refused);
            let append = volume.append(batch([data(at, &bytes(1, 1))]));
            assert_eq!(append.await.map(drop), refused);
        }
        for at in [1199, 1296, 1999, 2400] {
            volume.submit(write(at, &bytes(1, 1), true)).await.unwrap();
        }
    });
}

#[test]
fn a_batch_is_one_record_without_a_flush_and_supersedes_what_it_frees() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let below = Rc::clone(&device) as Rc<dyn BlockDevice>;
        let volume = format(runtime.clone(), Rc::clone(&below)).await;
        let first = [data(100, &bytes(1, 8)), data(5000, &bytes(2, 8)), data(300, &bytes(3, 1))];
        volume.append(batch(first)).await.unwrap();
        let counts =
            || [RequestKind::Write, RequestKind::Flush].map(|kind| device.count(kind).requests);
        let (records, [writes, flushes]) = (volume.stats().records, counts());
        volume.append(batch([data(100, &bytes(4, 8)), supersede(5000, 8)])).await.unwrap();
        assert_eq!(volume.stats().records, records + 1);
        assert_eq!(counts(), [writes + 1, flushes]);
        assert_eq!(volume.logged(Extent::new(0, 6000)).len(), 2);
        let long = bytes(5, VolumeConfig::default().record.0 + 8);
        let refused = volume.append(batch([data(0, &long)])).await;
        assert_eq!(refused.map(drop), Err(IoError::Unsupported));
        drop(volume);
        let (volume, report) = Volume::open(runtime, below, &OPEN()).await.unwrap();
        assert_eq!(report.records, 2);
        for (at, len, seed) in [(100, 8, 4), (300, 1, 3)] {
            let found = volume.submit(read(at, len)).await.unwrap();
            assert!(found.to_bytes() == bytes(seed, len).to_bytes(), "{at}");
        }
        assert!(volume.submit(read(5000, 8)).await.unwrap().is_zero(), "what is at home");
    });
}

#[test]
fn full_logs_make_the_owner_wait_and_not_fail() {
    in_virtual_time(|runtime| async move {
        let volume = format(runtime, cached()).await;
        let most = volume.config().record;
        for i in 0..200 {
            if !volume.has_room(2, most) {
                volume.make_room(2, most).await.unwrap();
            }
            let half = bytes(low_byte(i), most.0 / 2);
            let at = 30_000 + i % 7 * most.0;
            let entries = [data(at, &half), data(at + most.0 / 2, &half)];
            volume.append(batch(entries)).await.unwrap();
        }
        assert!(volume.stats().checkpoints > 3);
        let found = volume.submit(read(30_000 + 199 % 7 * most.0, 1)).await.unwrap();
        assert!(found.to_bytes() == bytes(199, 1).to_bytes());
        volume.submit(Request::Flush).await.unwrap();
    });
}

/// An array of four drives; the drives outlive it.
fn array(runtime: &Handle, drives: &[Rc<MemoryDevice>]) -> Rc<dyn BlockDevice> {
    let drives = drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
    Rc::new(Stripe::new(runtime.clone(), drives, Sectors(16), 1))
}

#[test]
fn on_an_array_logs_lie_on_one_drive_each_and_homes_where_they_were() {
    in_virtual_time(|runtime| async move {
        let drives: Vec<_> = (0..4).map(|_| Rc::new(MemoryDevice::new(Sectors(10_000)))).collect();
        let below = array(&runtime, &drives);
        let regions = [Extent::new(1600, 6400), Extent::new(20_032, 6400)];
        let columns = below.geometry();
        let layout = Layout::given(&regions, ANCHORS, DEVICE, Sectors(1), columns);
        let config = VolumeConfig { log: Sectors(1600), ..config() };
        let options = CreateOptions { layout: Some(layout.unwrap()), ..CreateOptions::default() };
        let made = Volume::create_with(runtime.clone(), Rc::clone(&below), &config, &options);
        let volume = made.await.unwrap();
        for i in 0..40 {
            volume.submit(write(30_000 + 16 * i, &bytes(low_byte(i), 16), true)).await.unwrap();
        }
        volume.submit(write(28_000, &bytes(77, 640), true)).await.unwrap();
        let plain = below.submit(read(28_000, 640)).await.unwrap();
        assert!(plain.to_bytes() == bytes(77, 640).to_bytes(), "homes are where they were");
        // Each record lies whole on one drive, although it is longer than a chunk.
        let on_one = |drive: &MemoryDevice, record: u8| {
            let wanted = bytes(record, 16).to_bytes().unwrap();
            let held = drive.media().read(Extent::new(0, 10_000)).to_bytes().unwrap();
            held.windows(wanted.len()).any(|found| found == &*wanted)
        };
        for record in 0..40 {
            assert!(drives.iter().any(|drive| on_one(drive, record)), "record {record}");
        }
        // As after a crash.
        drop(volume);
        let opened = Volume::open(runtime.clone(), Rc::clone(&below), &OPEN()).await;
        let (volume, report) = opened.unwrap();
        assert!(report.records > 0);
        for i in 0..40 {
            let found = volume.submit(read(30_000 + 16 * i, 16)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 16).to_bytes(), "block {i}");
        }
        volume.drain(&DrainOptions::default()).await.unwrap();
        for i in 0..40 {
            let found = below.submit(read(30_000 + 16 * i, 16)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 16).to_bytes(), "drained block {i}");
        }
    });
}

/// RAID-5 of four drives without those that are `lost`; the drives outlive it.
fn raid5(runtime: &Handle, drives: &[Rc<MemoryDevice>], lost: &[bool]) -> Parity {
    let drives = drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
    let known = Members::with_parity(lost, 1, false);
    Parity::new(runtime.clone(), drives, 1, Sectors(32), known)
}

#[test]
fn on_an_array_with_parity_records_fill_rows_and_no_drive_is_read_for_them() {
    in_virtual_time(|runtime| async move {
        let drives: Vec<_> = (0..4).map(|_| Rc::new(MemoryDevice::new(Sectors(13_440)))).collect();
        let array = raid5(&runtime, &drives, &[false; 4]);
        let below: Rc<dyn BlockDevice> = Rc::new(array.clone());
        let regions = [Extent::new(1920, 6336), Extent::new(20_064, 6336)];
        let capacity = below.capabilities().capacity;
        let layout = Layout::given(&regions, ANCHORS, capacity, Sectors(1), below.geometry());
        let config = VolumeConfig { log: Sectors(6336), ..config() };
        let options = CreateOptions { layout: Some(layout.unwrap()), ..CreateOptions::default() };
        let made = Volume::create_with(runtime.clone(), Rc::clone(&below), &config, &options);
        let volume = made.await.unwrap();
        assert_eq!(volume.layout().regions(), regions, "each is one log");
        for i in 0..40 {
            volume.submit(write(30_000 + 16 * i, &bytes(low_byte(i), 16), true)).await.unwrap();
        }
        let read_first = array.read_first();
        let in_logs = |page: &&Extent| regions.iter().any(|region| region.overlaps(**page));
        assert_eq!(read_first.iter().find(in_logs), None, "a record fills its rows");
        assert!(!read_first.is_empty(), "structures share rows with others");
        // As after a crash, and with a drive missing.
        drop(volume);
        let lost = [false, true, false, false];
        let degraded: Rc<dyn BlockDevice> = Rc::new(raid5(&runtime, &drives, &lost));
        let opened = Volume::open(runtime.clone(), Rc::clone(&degraded), &OPEN()).await;
        let (volume, report) = opened.unwrap();
        assert!(report.records > 0 && !report.reshaped);
        for i in 0..40 {
            let found = volume.submit(read(30_000 + 16 * i, 16)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 16).to_bytes(), "block {i}");
        }
        volume.drain(&DrainOptions::default()).await.unwrap();
        for i in 0..40 {
            let found = degraded.submit(read(30_000 + 16 * i, 16)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 16).to_bytes(), "drained block {i}");
        }
    });
}
