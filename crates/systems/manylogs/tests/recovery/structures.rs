//! Superblocks and roots that cannot be read, or are older than they should be.

use std::rc::Rc;

use manylogs::{CreateOptions, OpenOptions, Volume, VolumeError};
use manylogs_block::{BlockDevice, Extent, IoError, MemoryDevice, Request, Sectors};

use crate::common::{
    DEVICE, ReadFault, RigOrders, bytes, config, in_virtual_time, low_byte, over, read, uncached,
    write,
};
use crate::logs::{assert_holds, open};

/// Both copies of superblock and root.
fn copies(volume: &Volume) -> [Extent; 4] {
    let ([first, last], [root, last_root]) =
        (volume.layout().superblocks(), volume.layout().roots());
    [first, root, last_root, last]
}

#[test]
pub(crate) fn a_copy_that_cannot_be_read_is_only_damaged_if_the_medium_is() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
        for copy in copies(&volume) {
            device.fail_reads(copy, ReadFault::Passing(u32::MAX));
            let refused = open(&runtime, &device).await.unwrap_err();
            assert!(matches!(refused, VolumeError::NotRead { .. }), "{copy}: {refused}");
            device.faults().clear();
            device.fail_reads(Extent::new(copy.start.0, 1), ReadFault::Passing(6));
            open(&runtime, &device).await.unwrap();
            device.fail_reads(copy, ReadFault::Medium);
            let (volume, report) = open(&runtime, &device).await.unwrap();
            let damaged = report.roots_damaged
                + u32::from(report.from_backup_superblock)
                + u32::from(report.backup_superblock_damaged);
            assert_eq!(damaged, 1, "{copy}: {report:?}");
            assert_holds(&volume, 70, 1).await;
            drop(volume);
            // A repair gives up a copy that cannot be read for another reason, too.
            device.faults().clear();
            device.fail_reads(copy, ReadFault::Passing(u32::MAX));
            Volume::repair(runtime.clone(), device.clone()).await.unwrap();
            let (volume, report) = open(&runtime, &device).await.unwrap();
            assert_eq!(report.roots_damaged, 0);
            assert!(!report.from_backup_superblock && !report.backup_superblock_damaged);
            assert_holds(&volume, 70, 1).await;
        }
    });
}

#[test]
pub(crate) fn a_root_that_is_older_than_records_is_not_believed() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
        let roots = volume.layout().roots();
        let mut older = Vec::new();
        for root in roots {
            older.push(device.submit(read(root.start.0, root.len.0)).await.unwrap());
        }
        drop(volume);
        let (volume, _) = open(&runtime, &device).await.unwrap();
        volume.submit(write(70, &bytes(2, 8), true)).await.unwrap();
        for (root, older) in roots.iter().zip(&older) {
            device.submit(write(root.start.0, older, true)).await.unwrap();
        }
        let refused = open(&runtime, &device).await;
        assert!(matches!(refused, Err(VolumeError::StaleRoot)), "{refused:?}");
    });
}

#[test]
fn an_unfinished_change_of_settings_is_finished_by_the_next_opening() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        let last = copies(&volume)[3];
        volume.close().await.unwrap();
        let mut settings = volume.settings();
        settings.assign("swap=0.3").unwrap();
        device.stop_after(1);
        let stopped = Volume::set_closed(device.clone(), &settings, &OpenOptions::default()).await;
        assert!(matches!(stopped, Err(VolumeError::Io(IoError::Gone))), "{stopped:?}");
        device.stop_after(u64::MAX);
        let (_, report) = open(&runtime, &device).await.unwrap();
        assert!(report.superblock_change_unfinished);
        device.fail_reads(last, ReadFault::Medium);
        let (volume, report) = open(&runtime, &device).await.unwrap();
        assert!(!report.superblock_change_unfinished && report.backup_superblock_damaged);
        assert!((volume.config().swap - 0.3).abs() < 1e-9, "what counted once counts");
    });
}

#[test]
fn a_new_volume_shows_what_the_device_held_or_zeroes() {
    in_virtual_time(|runtime| async move {
        for zero in [false, true] {
            let device = Rc::new(MemoryDevice::new(DEVICE));
            for at in (0..DEVICE.0).step_by(1000) {
                device.submit(write(at, &bytes(low_byte(at / 1000), 1000), true)).await.unwrap();
            }
            let options = CreateOptions { zero, ..CreateOptions::default() };
            let created =
                Volume::create_with(runtime.clone(), device.clone(), &config(), &options).await;
            let volume = created.unwrap();
            let capacity = volume.layout().capacity();
            let found = volume.submit(read(0, capacity.0)).await.unwrap();
            assert_eq!(found.is_zero(), zero);
            if !zero {
                let home = volume.layout().home(Extent::new(2000, 8)).next().unwrap();
                let held = device.submit(Request::Read { extent: home }).await.unwrap();
                let found = volume.submit(read(2000, 8)).await.unwrap();
                assert_eq!(found.to_bytes(), held.to_bytes());
            }
        }
    });
}

/// A log in each group of 64 sectors: more logs than a root has bits.
pub(crate) fn many_logs() -> manylogs::VolumeConfig {
    manylogs::VolumeConfig {
        threshold: Sectors(1),
        record: Sectors(8),
        log: Sectors(40),
        placement: manylogs::LogPlacement::EveryGroup(Sectors(64)),
        ..config()
    }
}

#[test]
pub(crate) fn a_volume_of_more_logs_than_a_root_has_bits() {
    in_virtual_time(|runtime| async move {
        let device = over(Rc::new(MemoryDevice::new(Sectors(64 * 34_000))));
        let volume = Volume::create(runtime.clone(), device.clone(), &many_logs()).await.unwrap();
        assert!(volume.layout().regions().len() > 32_768);
        let capacity = volume.layout().capacity().0;
        for snapshot in [false, true] {
            let (volume, _) = open(&runtime, &device).await.unwrap();
            if snapshot {
                volume.snapshot().await.unwrap();
            }
            // The log nearest to the head takes the record: one of the first, or one of the last.
            for at in [8, capacity - 64] {
                volume.submit(write(at, &bytes(7, 32), true)).await.unwrap();
                volume.submit(write(at + 3, &bytes(9, 1), true)).await.unwrap();
            }
            drop(volume);
            let (volume, _) = open(&runtime, &device).await.unwrap();
            for at in [8, capacity - 64] {
                let found = volume.submit(read(at + 3, 1)).await.unwrap();
                assert_eq!(found.to_bytes(), bytes(9, 1).to_bytes(), "at {at}");
            }
        }
        let options = OpenOptions { ignore_snapshot: true, ..OpenOptions::default() };
        let (volume, _) = Volume::open(runtime, device, &options).await.unwrap();
        let found = volume.submit(read(capacity - 61, 1)).await.unwrap();
        assert_eq!(found.to_bytes(), bytes(9, 1).to_bytes());
    });
}
