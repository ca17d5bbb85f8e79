//! Growing, and crashes while a volume grows.

use std::rc::Rc;

use manylogs::{Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Handle, MemoryDevice, Payload, Sectors};

use crate::common::{
    DEVICE, ReadFault, Rig, RigOrders, bytes, config, in_virtual_time, over, part_of, read, write,
};
use crate::logs::{assert_holds, open};
use crate::structures::many_logs;

/// A volume on the beginning of a device, with a block in a log and another in its last home.
async fn small(runtime: &Handle, config: &VolumeConfig, sizes: [u64; 2]) -> Rc<Rig> {
    let disk = Rc::new(MemoryDevice::new(Sectors(sizes[1])));
    let part = part_of(disk.clone(), Sectors(sizes[0]));
    let volume = Volume::create(runtime.clone(), part, config).await.unwrap();
    volume.submit(write(72, &bytes(1, 8), true)).await.unwrap();
    let last = volume.layout().capacity().0 - 64;
    volume.submit(write(last, &bytes(2, 64), true)).await.unwrap();
    over(disk)
}

/// Asserts that none of the volume's own structures shows in its data.
async fn assert_nothing_shows(volume: &Volume, from: u64) {
    let len = volume.layout().capacity().0 - from;
    let found = volume.submit(read(from, len.min(3000))).await.unwrap();
    assert!(found.is_zero(), "something shows behind {from}");
    for magic in [&b"MLOGROOT"[..], b"MANYLOGS"] {
        let bytes = found.to_bytes().unwrap();
        assert!(!bytes.windows(8).any(|window| window == magic));
    }
}

#[test]
pub(crate) fn nothing_of_the_old_end_shows_in_a_volume_that_grew() {
    for changes in 0..11 {
        in_virtual_time(move |runtime| async move {
            let disk = small(&runtime, &config(), [DEVICE.0, 2 * DEVICE.0]).await;
            let part = Rc::new(MemoryDevice::new(DEVICE));
            let before = Volume::create(runtime.clone(), part, &config()).await.unwrap();
            let before = before.layout().capacity();
            disk.stop_after(changes);
            let grown = Volume::grow(disk.clone()).await;
            disk.stop_after(u64::MAX);
            assert_eq!(grown.is_ok(), changes >= 8, "{changes} changes: {grown:?}");
            let (volume, _) = open(&runtime, &disk).await.unwrap();
            assert_holds(&volume, 72, 1).await;
            let last = volume.submit(read(before.0 - 64, 64)).await.unwrap();
            assert_eq!(last.to_bytes(), bytes(2, 64).to_bytes());
            if volume.layout().capacity() > before {
                assert_nothing_shows(&volume, before.0).await;
            } else {
                assert!(changes < 3, "{changes} changes");
            }
        });
    }
}

#[test]
fn nothing_of_the_old_end_shows_in_a_volume_that_grew_by_little() {
    in_virtual_time(|runtime| async move {
        for more in [8, 16, 24, 32, 40, 4000] {
            let disk = small(&runtime, &config(), [DEVICE.0, DEVICE.0 + more]).await;
            let grown = Volume::grow(disk.clone()).await.unwrap();
            assert!(grown.after > grown.before);
            let (volume, report) = open(&runtime, &disk).await.unwrap();
            assert_eq!(report.roots_damaged, 0);
            assert_nothing_shows(&volume, grown.before.0).await;
            assert_holds(&volume, 72, 1).await;
        }
    });
}

#[test]
pub(crate) fn growth_that_was_used_is_not_forgotten_with_one_copy() {
    in_virtual_time(|runtime| async move {
        for changes in 3..6 {
            let disk = small(&runtime, &config(), [DEVICE.0, 2 * DEVICE.0]).await;
            disk.stop_after(changes);
            let _ = Volume::grow(disk.clone()).await;
            disk.stop_after(u64::MAX);
            let (volume, _) = open(&runtime, &disk).await.unwrap();
            let far = volume.layout().capacity().0 - 8;
            volume.submit(write(far, &bytes(3, 8), true)).await.unwrap();
            for copy in volume.layout().superblocks() {
                disk.fail_reads(copy, ReadFault::Medium);
                let (volume, _) = open(&runtime, &disk).await.unwrap();
                assert_holds(&volume, far, 3).await;
                disk.faults().clear();
            }
        }
    });
}

#[test]
pub(crate) fn a_root_that_gets_coarser_sets_is_there_before_the_superblock() {
    for changes in 0..6 {
        in_virtual_time(move |runtime| async move {
            let sizes = [64 * 32_000, 64 * 34_000];
            let disk = small(&runtime, &many_logs(), sizes).await;
            disk.stop_after(changes);
            let _ = Volume::grow(disk.clone()).await;
            disk.stop_after(u64::MAX);
            let (volume, _) = open(&runtime, &disk).await.unwrap();
            assert_holds(&volume, 72, 1).await;
            volume.submit(write(72, &bytes(4, 8), true)).await.unwrap();
            let (volume, _) = open(&runtime, &disk).await.unwrap();
            assert_holds(&volume, 72, 4).await;
        });
    }
}

#[test]
fn what_the_device_holds_behind_its_old_end_stays() {
    in_virtual_time(|runtime| async move {
        let disk = small(&runtime, &config(), [DEVICE.0, 2 * DEVICE.0]).await;
        let held = bytes(5, 64);
        disk.submit(write(DEVICE.0, &held, true)).await.unwrap();
        let grown = Volume::grow(disk.clone()).await.unwrap();
        let (volume, _) = open(&runtime, &disk).await.unwrap();
        let behind = volume.submit(read(grown.before.0, 32)).await.unwrap();
        assert_eq!(behind, Payload::zeroes(Sectors(32)), "root and superblock were there");
        let found = volume.submit(read(grown.before.0 + 32, 64)).await.unwrap();
        assert_eq!(found.to_bytes(), held.to_bytes());
    });
}
