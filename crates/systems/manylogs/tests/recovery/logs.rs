//! Logs with sectors that cannot be read.

use std::rc::Rc;

use manylogs::{DrainOptions, OpenOptions, RecoveryReport, Volume, VolumeError, check};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, Handle, IoError, Nanos, Request,
    RequestKind, Sectors,
};

use crate::common::{
    ReadFault, Rig, RigOrders, bytes, config, in_virtual_time, read, uncached, write,
};

pub(crate) type Opened = Result<(Volume, RecoveryReport), VolumeError>;

pub(crate) async fn open(runtime: &Handle, device: &Rc<Rig>) -> Opened {
    Volume::open(runtime.clone(), device.clone(), &OpenOptions::default()).await
}

/// Asserts that a block reads as `bytes(seed, 8)`.
pub(crate) async fn assert_holds(volume: &Volume, at: u64, seed: u8) {
    let found = volume.submit(read(at, 8)).await.unwrap();
    assert_eq!(found.to_bytes(), bytes(seed, 8).to_bytes(), "block at {at}");
}

/// Writes forty blocks home, each with a newer version in a log; then the machine stops. Returns
/// the places of the records.
async fn forty_logged(runtime: &Handle, device: &Rc<Rig>) -> Vec<Extent> {
    let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
    for i in 0..40 {
        volume.submit(write(100 * i, &bytes(1, 8), true)).await.unwrap();
    }
    volume.checkpoint().await.unwrap();
    device.forget();
    for i in 0..40 {
        volume.submit(write(100 * i, &bytes(2, 8), true)).await.unwrap();
    }
    let is_record = |extent: &&Extent| volume.layout().is_log(extent.start) && extent.len.0 > 8;
    device.extents_of(RequestKind::CHANGES).iter().filter(is_record).copied().collect()
}

async fn assert_all_hold(volume: &Volume, seed: u8) {
    for i in 0..40 {
        assert_holds(volume, 100 * i, seed).await;
    }
}

#[test]
pub(crate) fn a_log_that_cannot_be_read_for_a_while_is_waited_for() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let records = forty_logged(&runtime, &device).await;
        device.fail_reads(Extent::new(records[20].start.0, 1), ReadFault::Passing(5));
        let (volume, _) = open(&runtime, &device).await.unwrap();
        assert_all_hold(&volume, 2).await;
        assert!(device.faults().failed() == 5, "{} reads failed", device.faults().failed());
    });
}

#[test]
pub(crate) fn a_log_that_cannot_be_read_is_refused_and_nothing_older_is_taken() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let records = forty_logged(&runtime, &device).await;
        for bad in [0, 20, 39] {
            device.fail_reads(records[bad], ReadFault::Passing(u32::MAX));
            let before = runtime.now();
            let refused = open(&runtime, &device).await.unwrap_err();
            assert!(matches!(refused, VolumeError::NotRead { .. }), "{refused}");
            assert!(refused.to_string().contains("check --repair"), "{refused}");
            let waited = runtime.now().since(before);
            assert!(waited > Nanos::from_secs(6) && waited < Nanos::from_secs(8), "{waited:?}");
            device.faults().clear();
        }
        let (volume, _) = open(&runtime, &device).await.unwrap();
        assert_all_hold(&volume, 2).await;
    });
}

#[test]
pub(crate) fn a_payload_that_cannot_be_read_is_lost_and_reads_say_so() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let records = forty_logged(&runtime, &device).await;
        for bad in [7, 39] {
            device.fail_reads(Extent::new(records[bad].end().0 - 2, 1), ReadFault::Medium);
            let (volume, report) = open(&runtime, &device).await.unwrap();
            assert!(report.damage.iter().all(|found| found.damage.known), "{report:?}");
            let lost = volume.submit(read(100 * bad as u64, 8)).await;
            let said = matches!(lost, Err(IoError::Medium { .. } | IoError::Checksum { .. }));
            assert!(said, "the older version of block {bad}, or nothing: {lost:?}");
            assert_holds(&volume, 100 * (bad as u64 - 1), 2).await;
        }
    });
}

#[test]
pub(crate) fn a_header_that_cannot_be_read_is_not_the_end_of_the_log() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let records = forty_logged(&runtime, &device).await;
        for bad in [0, 7, 39] {
            device.fail_reads(Extent::new(records[bad].start.0, 1), ReadFault::Medium);
            let refused = open(&runtime, &device).await.unwrap_err();
            assert!(matches!(refused, VolumeError::Damaged { .. }), "record {bad}: {refused}");
            assert!(refused.to_string().contains("check --repair"), "{refused}");
            device.faults().clear();
        }
        // The owner may do without that record: all others are there.
        device.fail_reads(Extent::new(records[39].start.0, 1), ReadFault::Medium);
        let options = OpenOptions { accept_damage: true, ..OpenOptions::default() };
        let (volume, report) = Volume::open(runtime, device.clone(), &options).await.unwrap();
        assert_eq!(report.damage.len(), 1);
        assert_eq!(report.unreadable.len(), 1);
        assert_holds(&volume, 3800, 2).await;
        assert_holds(&volume, 3900, 1).await;
    });
}

#[test]
pub(crate) fn a_repair_gives_up_what_cannot_be_read_and_lets_the_drive_replace_it() {
    in_virtual_time(|runtime| async move {
        for fault in [ReadFault::Medium, ReadFault::Passing(u32::MAX)] {
            let device = uncached();
            let records = forty_logged(&runtime, &device).await;
            device.fail_reads(Extent::new(records[7].start.0, 1), fault);
            device.fail_reads(Extent::new(records[9].end().0 - 2, 1), ReadFault::Medium);
            let repaired = Volume::repair(runtime.clone(), device.clone()).await.unwrap();
            assert!(repaired.overwritten.0 >= 2, "{repaired:?}");
            let (_, findings) = check(&(device.clone() as Rc<dyn BlockDevice>)).await.unwrap();
            // Unreadable data is marked as lost, and nothing else is wrong.
            let problems: Vec<&str> = findings.iter().map(|found| &*found.problem).collect();
            assert_eq!(problems, ["exported sectors 900+8 are marked as lost: reads of them fail"]);
            // From now on the volume opens after a crash, too.
            let (volume, _) = open(&runtime, &device).await.unwrap();
            volume.submit(write(5000, &bytes(3, 8), true)).await.unwrap();
            drop(volume);
            let (volume, report) = open(&runtime, &device).await.unwrap();
            assert_eq!(report.damage, []);
            assert_holds(&volume, 5000, 3).await;
            assert_holds(&volume, 3900, 2).await;
            assert!(volume.submit(read(900, 8)).await.is_err(), "it is marked as lost");
        }
    });
}

/// A device on an array of four drives.
struct Striped(Rc<Rig>);

impl BlockDevice for Striped {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn geometry(&self) -> Option<Geometry> {
        let (chunk, first) = (Sectors(16), Sectors(0));
        Some(Geometry { chunk, columns: 4, copies: 1, parity: 0, first })
    }

    fn submit(&self, request: Request) -> Completion {
        self.0.submit(request)
    }
}

#[test]
pub(crate) fn a_repair_on_an_array_overwrites_the_sectors_that_cannot_be_read() {
    in_virtual_time(|runtime| async move {
        let rig = uncached();
        let device: Rc<dyn BlockDevice> = Rc::new(Striped(rig.clone()));
        let volume = Volume::create(runtime.clone(), Rc::clone(&device), &config()).await.unwrap();
        assert!(volume.layout().columns().is_some());
        rig.forget();
        for i in 0..40 {
            volume.submit(write(100 * i, &bytes(2, 8), true)).await.unwrap();
        }
        let is_record = |extent: &&Extent| volume.layout().is_log(extent.start);
        let changes = rig.extents_of(RequestKind::CHANGES);
        let bad = changes.iter().filter(is_record).nth(20).unwrap().start;
        drop(volume);
        rig.fail_reads(Extent::new(bad.0, 1), ReadFault::Medium);
        let repaired = Volume::repair(runtime, device).await.unwrap();
        assert!(repaired.overwritten.0 >= 1, "{repaired:?}");
        rig.submit(read(bad.0, 1)).await.unwrap();
    });
}

#[test]
pub(crate) fn the_logs_of_a_drained_volume_need_not_be_readable() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        forty_logged(&runtime, &device).await;
        let (volume, _) = open(&runtime, &device).await.unwrap();
        volume.drain(&DrainOptions::default()).await.unwrap();
        for region in volume.layout().regions() {
            device.fail_reads(*region, ReadFault::Medium);
        }
        for fault in [ReadFault::Medium, ReadFault::Passing(u32::MAX)] {
            device.fail_reads(volume.layout().regions()[0], fault);
            let options = OpenOptions { ignore_snapshot: true, ..OpenOptions::default() };
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            assert_all_hold(&opened.unwrap().0, 2).await;
            let (volume, _) = open(&runtime, &device).await.unwrap();
            volume.drain(&DrainOptions::default()).await.unwrap();
        }
    });
}

#[test]
pub(crate) fn a_snapshot_that_cannot_be_read_is_not_needed() {
    in_virtual_time(|runtime| async move {
        for fault in [ReadFault::Medium, ReadFault::Passing(u32::MAX), ReadFault::Passing(3)] {
            let device = uncached();
            forty_logged(&runtime, &device).await;
            let (volume, _) = open(&runtime, &device).await.unwrap();
            assert!(volume.snapshot().await.unwrap());
            volume.submit(write(0, &bytes(3, 8), true)).await.unwrap();
            // The first sector behind the first root.
            device.fail_reads(Extent::new(32, 128), fault);
            let (volume, report) = open(&runtime, &device).await.unwrap();
            let passed = fault == ReadFault::Passing(3);
            assert_eq!((report.from_snapshot, report.snapshot_damaged), (passed, !passed));
            assert_holds(&volume, 0, 3).await;
            assert_holds(&volume, 3900, 2).await;
        }
    });
}

#[test]
pub(crate) fn of_a_moved_version_the_whole_copy_counts() {
    in_virtual_time(|runtime| async move {
        let device = uncached();
        let config = manylogs::VolumeConfig { swap: 0.5, ..config() };
        let volume = Volume::create(runtime.clone(), device.clone(), &config).await.unwrap();
        for i in 0..30 {
            volume.submit(write(100 * i, &bytes(2, 8), true)).await.unwrap();
        }
        device.forget();
        runtime.sleep(Nanos::from_secs(3)).await;
        assert_eq!(volume.stats().log_swaps, 1, "a log was moved");
        // Makes the moved copies unreadable; the originals are still there.
        let is_moved = |extent: &&Extent| volume.layout().is_log(extent.start) && extent.len.0 > 8;
        let writes = device.extents_of(RequestKind::CHANGES);
        for moved in writes.iter().filter(is_moved) {
            device.fail_reads(Extent::new(moved.end().0 - 2, 1), ReadFault::Medium);
        }
        let (volume, report) = open(&runtime, &device).await.unwrap();
        assert!(report.damage.iter().any(|found| found.damage.known), "{report:?}");
        for i in 0..30 {
            assert_holds(&volume, 100 * i, 2).await;
        }
    });
}

#[test]
pub(crate) fn a_log_that_failed_stays_out_of_use() {
    in_virtual_time(|runtime| async move {
        let device = crate::common::cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        let regions = volume.layout().regions().to_vec();
        let used = *device.writes().last().unwrap();
        let bad = *regions.iter().find(|region| region.overlaps(used)).unwrap();
        device.fail_writes(bad);
        volume.submit(write(100, &bytes(2, 8), true)).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        for _ in 0..2 {
            let options = OpenOptions::default();
            let opened = Volume::open(runtime.clone(), device.clone(), &options).await;
            let (volume, _) = opened.unwrap();
            device.forget();
            for i in 2..20 {
                volume.submit(write(100 * i, &bytes(2, 8), true)).await.unwrap();
            }
            let again = device.writes().iter().any(|extent| extent.overlaps(bad));
            assert!(!again, "the log that failed is written again");
            assert_holds(&volume, 100, 2).await;
            volume.submit(Request::Flush).await.unwrap();
        }
    });
}
