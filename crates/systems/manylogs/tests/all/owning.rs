//! Owning a volume: leaving it, growing it, and damage on its disk.

use std::rc::Rc;

use crate::common::{
    DEVICE, RigOrders, bytes, cached, config, in_virtual_time, part_of, read, stopping, write,
};
use manylogs::{DrainOptions, Health, OpenOptions, Volume, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, IoError, MemoryDevice, Nanos, Payload, Request, Sectors,
};

/// The content that a plain reader of the disk finds through the linear table.
async fn through_the_table(volume: &Volume, device: &dyn BlockDevice) -> Payload {
    let mut content = Payload::default();
    for (_, home) in volume.layout().homes() {
        content.append(device.submit(Request::Read { extent: *home }).await.unwrap());
    }
    content
}

#[test]
fn a_drained_disk_is_readable_without_us() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(5000, &bytes(2, 500), false)).await.unwrap();
        volume.submit(write(5100, &bytes(3, 3), false)).await.unwrap();
        let zeroes = Request::Discard { extent: Extent::new(5200, 20_000), fua: false };
        volume.submit(zeroes).await.unwrap();
        let capacity = volume.layout().capacity();
        let whole = Request::Read { extent: Extent::new(0, capacity.0) };
        let expected = volume.submit(whole).await.unwrap().to_bytes();
        let options = DrainOptions { wipe: true };
        let report = volume.drain(&options).await.unwrap();
        assert!(report.extents >= 3 && report.wiped_bytes > 0, "{report:?}");
        assert_eq!(through_the_table(&volume, &*device).await.to_bytes(), expected);
        for log in volume.layout().regions() {
            let content = device.submit(Request::Read { extent: *log }).await.unwrap();
            assert_eq!(content, Payload::zeroes(log.len), "old copies in {log}");
        }
    });
}

#[test]
fn a_drained_volume_opens_again_and_closed_ones_read_no_log() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.drain(&DrainOptions::default()).await.unwrap();
        assert!(matches!(volume.submit(read(0, 1)).await, Err(IoError::Gone)));
        for round in 2..4 {
            let options = OpenOptions::default();
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            let (volume, report) = opened.unwrap();
            assert!(report.was_closed && report.scanned_logs == 0, "{report:?}");
            let kept = volume.submit(read(0, 8)).await.unwrap();
            assert_eq!(kept.to_bytes(), bytes(round - 1, 8).to_bytes());
            volume.submit(write(0, &bytes(round, 8), false)).await.unwrap();
            volume.close().await.unwrap();
        }
    });
}

#[test]
fn a_home_that_cannot_be_written_keeps_its_version_logged() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(50, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(900, &bytes(2, 8), true)).await.unwrap();
        let bad = volume.layout().home(Extent::new(50, 8)).next().unwrap();
        device.fail_writes(bad);
        let report = volume.checkpoint().await.unwrap();
        assert_eq!(report.kept_extents, 1);
        assert_eq!(volume.health(), Health::Degraded);
        assert_eq!(volume.table().len(), 1, "the other one went home");
        let drained = volume.drain(&DrainOptions::default()).await;
        assert_eq!(drained, Err(VolumeError::NotHome { extents: 1 }), "it cannot be drained");
        device.faults().clear();
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime, device, &options).await.unwrap();
        let kept = volume.submit(read(50, 8)).await.unwrap();
        assert_eq!(kept.to_bytes(), bytes(1, 8).to_bytes());
        volume.checkpoint().await.unwrap();
        assert!(volume.table().is_empty(), "the next pass tries again");
    });
}

#[test]
fn a_damaged_logged_copy_becomes_a_lost_extent_until_it_is_overwritten() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(2000, &bytes(9, 8), true)).await.unwrap();
        device.forget();
        volume.submit(write(50, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(900, &bytes(2, 8), true)).await.unwrap();
        let record = device.writes()[0];
        device.medium().submit(write(record.end().0 - 3, &bytes(99, 1), true)).await.unwrap();
        let report = volume.scrub(|_, _| ()).await.unwrap();
        assert_eq!((report.extents, report.damaged.len()), (3, 1));
        let first = volume.checkpoint().await.unwrap();
        assert_eq!((first.unread_extents, first.lost_extents), (1, 0), "not at the first look");
        runtime.sleep(Nanos::from_secs(150)).await;
        let stats = volume.stats();
        assert_eq!((stats.unread_extents, stats.lost_extents), (0, 1), "it is still damaged");
        let lost = |result| matches!(result, Err(IoError::Checksum { .. }));
        assert!(lost(volume.submit(read(50, 8)).await));
        volume.close().await.unwrap();
        for ignore_snapshot in [false, true] {
            let options = OpenOptions { ignore_snapshot, ..OpenOptions::default() };
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            let (volume, _) = opened.unwrap();
            assert!(lost(volume.submit(read(57, 1)).await));
            assert_eq!(volume.scrub(|_, _| ()).await.unwrap().lost.len(), 1);
        }
        let (volume, _) = Volume::open(runtime, device, &OpenOptions::default()).await.unwrap();
        volume.submit(write(50, &bytes(7, 8), true)).await.unwrap();
        assert_eq!(volume.submit(read(50, 8)).await.unwrap().to_bytes(), bytes(7, 8).to_bytes());
        volume.drain(&DrainOptions::default()).await.unwrap();
    });
}

#[test]
fn a_damaged_record_header_is_not_taken_for_the_end_of_the_log() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(2000, &bytes(9, 8), true)).await.unwrap();
        let first = *device.writes().last().unwrap();
        device.forget();
        for i in 0..4u64 {
            volume.submit(write(100 * i, &bytes(1, 8), true)).await.unwrap();
        }
        let records = device.writes();
        for (damaged, record) in records.iter().enumerate() {
            let at = record.start.0;
            let whole = device.medium().submit(read(at, 1)).await.unwrap();
            device.medium().submit(write(at, &bytes(99, 1), true)).await.unwrap();
            let options = OpenOptions::default();
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            match opened {
                // No record follows the last one that could prove that it was there.
                Ok((volume, _)) => assert!(damaged == 3 && volume.table().len() == 4),
                Err(VolumeError::Damaged { offset, .. }) => {
                    assert_eq!(u64::from(offset.0), at - first.start.0);
                    let options = OpenOptions { accept_damage: true, ..options };
                    let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
                    let (volume, report) = opened.unwrap();
                    assert_eq!((volume.table().len(), report.damage.len()), (4, 1));
                }
                Err(error) => panic!("{error}"),
            }
            device.medium().submit(write(at, &whole, true)).await.unwrap();
        }
    });
}

#[test]
fn a_volume_grows_with_its_device_and_never_shrinks() {
    in_virtual_time(|runtime| async move {
        let disk = Rc::new(MemoryDevice::new(Sectors(DEVICE.0 * 2)));
        let small = part_of(disk.clone(), DEVICE);
        let volume = Volume::create(runtime.clone(), small.clone(), &config()).await.unwrap();
        volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(20_000, &bytes(2, 100), true)).await.unwrap();
        volume.close().await.unwrap();
        let refused = Volume::grow(small).await;
        assert!(matches!(refused, Err(VolumeError::CannotGrow { .. })));
        let report = Volume::grow(disk.clone()).await.unwrap();
        assert!(report.after.0 > report.before.0 + 30_000, "{report:?}");
        assert_eq!(report.logs_after, report.logs_before + 10, "{report:?}");
        let options = OpenOptions::default();
        let opened = Volume::open(runtime.clone(), disk.clone(), &options).await;
        let (volume, _) = opened.unwrap();
        assert_eq!(volume.submit(read(70, 8)).await.unwrap().to_bytes(), bytes(1, 8).to_bytes());
        let far = volume.submit(read(20_000, 100)).await.unwrap();
        assert_eq!(far.to_bytes(), bytes(2, 100).to_bytes());
        let last = volume.layout().capacity().0 - 8;
        volume.submit(write(last, &bytes(3, 8), true)).await.unwrap();
        let shrunk = Volume::open(runtime, part_of(disk, DEVICE), &options).await;
        assert!(matches!(shrunk, Err(VolumeError::Shrunk { .. })));
    });
}

#[test]
fn either_end_of_the_disk_may_be_lost() {
    in_virtual_time(|runtime| async move {
        for (start, len) in [(0, 24), (DEVICE.0 - 24, 24)] {
            let device = cached();
            let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
            volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
            device.medium().submit(write(start, &bytes(9, len), true)).await.unwrap();
            let options = OpenOptions::default();
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            let (volume, report) = opened.unwrap();
            assert_eq!(report.from_backup_superblock, start == 0);
            assert_eq!(report.backup_superblock_damaged, start > 0);
            assert_eq!(report.roots_damaged, 1);
            let kept = volume.submit(read(70, 8)).await.unwrap();
            assert_eq!(kept.to_bytes(), bytes(1, 8).to_bytes());
        }
    });
}

#[test]
fn growing_and_renewing_the_id_may_stop_after_any_change() {
    for changes in 0..11 {
        for renew in [false, true] {
            in_virtual_time(move |runtime| async move {
                let disk = Rc::new(MemoryDevice::new(Sectors(DEVICE.0 * 2)));
                let len = if renew { Sectors(DEVICE.0 * 2) } else { DEVICE };
                let small = part_of(disk.clone(), len);
                let volume = Volume::create(runtime.clone(), small, &config()).await.unwrap();
                volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
                if renew {
                    volume.drain(&DrainOptions::default()).await.unwrap();
                } else {
                    volume.submit(write(90, &bytes(2, 8), true)).await.unwrap();
                }
                let stopping = stopping(disk.clone(), changes);
                let result = if renew {
                    Volume::renew_id(runtime.clone(), stopping).await.map(drop)
                } else {
                    Volume::grow(stopping).await.map(drop)
                };
                // Growing also zeroes the structures at the old end.
                let needed = if renew { 4 } else { 8 };
                assert_eq!(result.is_ok(), changes >= needed, "{changes} changes: {result:?}");
                let options = OpenOptions::default();
                let (volume, _) = Volume::open(runtime, disk, &options).await.unwrap();
                let kept = volume.submit(read(70, 8)).await.unwrap();
                assert_eq!(kept.to_bytes(), bytes(1, 8).to_bytes());
                volume.submit(write(70, &bytes(3, 8), true)).await.unwrap();
            });
        }
    }
}
