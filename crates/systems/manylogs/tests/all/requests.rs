//! Single requests to a volume, byte by byte.

use std::rc::Rc;

use crate::common::{
    DEVICE, RigOrders, bytes, cached, config, in_virtual_time, low_byte, read, write,
};
use manylogs::{CheckpointPolicy, OpenOptions, Opening, Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Extent, IoError, MemoryDevice, Nanos, Request, Sectors};

#[test]
fn the_threshold_is_obeyed_exactly() {
    in_virtual_time(|runtime| async move {
        let volume =
            Volume::create(runtime, Rc::new(MemoryDevice::new(DEVICE)), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 16), true)).await.unwrap();
        volume.submit(write(100, &bytes(2, 17), true)).await.unwrap();
        let stats = volume.stats();
        assert_eq!((stats.logged_writes, stats.bypassed_writes), (1, 1));
    });
}

#[test]
fn small_writes_go_to_the_log_nearest_to_the_last_large_one() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        // The first use of a log also writes the root; this is done before the test.
        for at in [30_000, 1_000, 17_500] {
            volume.submit(write(at, &bytes(1, 500), true)).await.unwrap();
            volume.submit(write(7, &bytes(2, 8), true)).await.unwrap();
        }
        for (large_at, home_group) in [(30_000, 8), (1_000, 0), (17_500, 4)] {
            volume.submit(write(large_at, &bytes(1, 500), true)).await.unwrap();
            device.forget();
            volume.submit(write(7, &bytes(2, 8), true)).await.unwrap();
            let record = device.writes()[0];
            assert!(volume.layout().is_log(record.start));
            let log = volume.layout().regions().iter().position(|r| r.contains(record));
            assert_eq!(log, Some(home_group), "large write at {large_at}");
        }
    });
}

#[test]
fn writes_that_wait_together_share_a_record() {
    in_virtual_time(|runtime| async move {
        let volume =
            Volume::create(runtime, Rc::new(MemoryDevice::new(DEVICE)), &config()).await.unwrap();
        let together: Vec<_> =
            (0..8).map(|i| volume.submit(write(i * 50, &bytes(1, 4), true))).collect();
        for one in together {
            one.await.unwrap();
        }
        assert_eq!((volume.stats().logged_writes, volume.stats().records), (8, 1));
    });
}

#[test]
fn a_read_is_put_together_from_home_log_buffer_and_zeroes() {
    in_virtual_time(|runtime| async move {
        let volume =
            Volume::create(runtime, Rc::new(MemoryDevice::new(DEVICE)), &config()).await.unwrap();
        let (home, logged, buffered) = (bytes(1, 200), bytes(2, 10), bytes(3, 5));
        volume.submit(write(3500, &home, true)).await.unwrap();
        volume.submit(write(3553, &logged, true)).await.unwrap();
        volume
            .submit(Request::Discard { extent: Extent::new(3600, 20), fua: false })
            .await
            .unwrap();
        volume.submit(write(3604, &buffered, false)).await.unwrap();
        let mut expected = home.to_bytes().unwrap().to_vec();
        expected[53 * 512..63 * 512].copy_from_slice(&logged.to_bytes().unwrap());
        expected[100 * 512..120 * 512].fill(0);
        expected[104 * 512..109 * 512].copy_from_slice(&buffered.to_bytes().unwrap());
        for round in ["mixed", "all logged", "all home"] {
            let found = volume.submit(read(3500, 200)).await.unwrap().to_bytes().unwrap();
            assert!(found[..] == expected[..], "{round}");
            match round {
                "mixed" => drop(volume.submit(Request::Flush).await.unwrap()),
                _ => drop(volume.checkpoint().await.unwrap()),
            }
        }
        assert_eq!(volume.table(), []);
    });
}

#[test]
fn the_buffer_is_bounded_in_bytes_and_in_time() {
    in_virtual_time(|runtime| async move {
        let small = VolumeConfig { buffer: Sectors(64), ..config() };
        let volume = Volume::create(runtime.clone(), cached(), &small).await.unwrap();
        for i in 0..100 {
            volume.submit(write(i * 20, &bytes(1, 10), false)).await.unwrap();
            assert!(volume.stats().volatile_bytes <= 64 * 512);
        }
        runtime.sleep(Nanos::from_secs(2)).await;
        assert_eq!(volume.stats().volatile_bytes, 0);
    });
}

#[test]
fn a_full_log_is_swapped_for_an_empty_one_when_idle() {
    in_virtual_time(|runtime| async move {
        let volume = Volume::create(runtime.clone(), Rc::new(MemoryDevice::new(DEVICE)), &config())
            .await
            .unwrap();
        for i in 0..22 {
            volume.submit(write(i * 40, &bytes(low_byte(i), 15), true)).await.unwrap();
        }
        let full = volume.log_occupancy()[0];
        assert!(full.used.0 > 320, "{full:?}");
        runtime.sleep(Nanos::from_secs(1)).await;
        assert_eq!(volume.stats().log_swaps, 1);
        let after = volume.log_occupancy();
        let of = |region: Extent| after.iter().find(|log| log.region == region).unwrap();
        assert_eq!(of(full.region).used, Sectors(0), "the hot log is empty");
        for i in 0..22 {
            let found = volume.submit(read(i * 40, 15)).await.unwrap();
            assert_eq!(found.to_bytes(), bytes(low_byte(i), 15).to_bytes());
        }
    });
}

#[test]
fn off_hours_are_kept() {
    in_virtual_time(|runtime| async move {
        let config = VolumeConfig {
            checkpoint: CheckpointPolicy::OffHours { from_s: 22 * 3600, until_s: 6 * 3600 },
            ..config()
        };
        // Time zero is midnight: begin at seven in the morning.
        runtime.sleep(Nanos::from_secs(7 * 3600)).await;
        let device = Rc::new(MemoryDevice::new(DEVICE));
        let volume = Volume::create(runtime.clone(), device, &config).await.unwrap();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        runtime.sleep(Nanos::from_secs(14 * 3600)).await;
        assert_eq!(volume.stats().checkpoints, 0, "21:00");
        runtime.sleep(Nanos::from_secs(2 * 3600)).await;
        assert_eq!((volume.stats().checkpoints, volume.table().len()), (1, 0), "23:00");
    });
}

#[test]
fn a_log_that_cannot_be_written_is_retired_and_nothing_is_lost() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        device.fail_writes(volume.layout().regions()[0]);
        for i in 0..10 {
            volume.submit(write(i * 30, &bytes(low_byte(i), 8), true)).await.unwrap();
        }
        for i in 0..10 {
            let found = volume.submit(read(i * 30, 8)).await.unwrap();
            assert_eq!(found.to_bytes(), bytes(low_byte(i), 8).to_bytes());
        }
    });
}

#[test]
fn after_a_failed_flush_the_volume_only_reads() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 100), false)).await.unwrap();
        device.fail_flushes();
        assert!(volume.submit(Request::Flush).await.is_err());
        device.faults().clear();
        let refused = volume.submit(write(0, &bytes(2, 8), true)).await;
        assert!(matches!(refused, Err(IoError::ReadOnly { .. })));
        let kept = volume.submit(read(0, 100)).await.unwrap();
        assert_eq!(kept.to_bytes(), bytes(1, 100).to_bytes());
    });
}

#[test]
fn a_damaged_logged_copy_is_an_error_and_never_data() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        device.forget();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        let record = *device.writes().last().unwrap();
        let damaged = write(record.end().0 - 3, &bytes(99, 1), true);
        device.medium().submit(damaged).await.unwrap();
        let found = volume.submit(read(2, 1)).await;
        assert!(matches!(found, Err(IoError::Checksum { .. })), "{found:?}");
    });
}

#[test]
fn an_orderly_close_makes_the_next_opening_quick() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(10_000, &bytes(1, 8), false)).await.unwrap();
        let table = volume.table();
        volume.close().await.unwrap();
        assert_eq!(volume.submit(read(0, 1)).await, Err(IoError::Gone));
        let options = OpenOptions::default();
        let (volume, report) = Volume::open(runtime, device, &options).await.unwrap();
        assert!(report.from_snapshot && report.scanned_logs <= 3, "{report:?}");
        assert_eq!(volume.table(), table);
        let found = volume.submit(read(10_000, 8)).await.unwrap();
        assert_eq!(found.to_bytes(), bytes(1, 8).to_bytes());
    });
}

#[test]
fn a_damaged_superblock_is_replaced_by_its_backup() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(5, &bytes(1, 8), true)).await.unwrap();
        device.medium().submit(write(0, &bytes(0, 8), true)).await.unwrap();
        let options = OpenOptions::default();
        let (again, report) = Volume::open(runtime, device, &options).await.unwrap();
        assert!(report.from_backup_superblock);
        let found = again.submit(read(5, 8)).await.unwrap();
        assert_eq!(found.to_bytes(), bytes(1, 8).to_bytes());
    });
}

/// Nobody answers requests of a volume whose tasks do not run, but for reads.
#[test]
fn an_opening_that_has_not_begun_answers_what_it_can() {
    in_virtual_time(|runtime| async move {
        let device = Rc::new(MemoryDevice::new(DEVICE));
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.close().await.unwrap();
        let opening = Opening::read(runtime, device, &OpenOptions::default()).await.unwrap();
        let content = opening.content();
        let found = content.submit(read(0, 8)).await.unwrap();
        assert!(found.to_bytes() == bytes(1, 8).to_bytes(), "another content");
        assert!(content.submit(Request::Flush).await.is_ok());
        let written = content.submit(write(0, &bytes(2, 8), false)).await;
        assert!(matches!(written, Err(IoError::ReadOnly { .. })), "{written:?}");
    });
}
