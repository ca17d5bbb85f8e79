//! Small writes that continue a run go home together, and no older version reappears over them.

use std::rc::Rc;

use crate::common::{DEVICE, RigOrders, bytes, cached, config, in_virtual_time, read, write};
use manylogs::{Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Extent, Handle, MemoryDevice, Nanos, Request, Sectors};

/// A run begins after 64 sectors.
fn with_runs() -> VolumeConfig {
    VolumeConfig { run: Sectors(64), buffer_age: Nanos::from_millis(100), ..config() }
}

/// Writes `count` times 8 sectors one behind the other.
async fn write_run(volume: &Volume, start: u64, count: u64) {
    for index in 0..count {
        let content = bytes(crate::common::low_byte(index), 8);
        volume.submit(write(start + 8 * index, &content, false)).await.unwrap();
    }
}

async fn expect_run(volume: &Volume, start: u64, count: u64) {
    for index in 0..count {
        let found = volume.submit(read(start + 8 * index, 8)).await.unwrap();
        let expected = bytes(crate::common::low_byte(index), 8);
        assert!(found.to_bytes().unwrap() == expected.to_bytes().unwrap(), "write {index}");
    }
}

async fn in_memory(runtime: Handle) -> Volume {
    Volume::create(runtime, Rc::new(MemoryDevice::new(DEVICE)), &with_runs()).await.unwrap()
}

#[test]
fn the_beginning_of_a_run_is_logged_and_the_rest_goes_home_together() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &with_runs()).await.unwrap();
        device.forget();
        write_run(&volume, 8000, 8 + 16).await;
        runtime.sleep(Nanos::from_secs(2)).await;
        let homes: Vec<Extent> = device
            .writes()
            .into_iter()
            .filter(|write| !volume.layout().is_log(write.start))
            .collect();
        let expected = [Extent::new(8064, 64), Extent::new(8128, 64)];
        let home: Vec<Extent> =
            expected.iter().flat_map(|extent| volume.layout().home(*extent)).collect();
        assert!(home.iter().all(|extent| homes.contains(extent)), "{homes:?}");
        assert_eq!((volume.stats().logged_writes, volume.stats().bypassed_writes), (8, 16));
        expect_run(&volume, 8000, 24).await;
    });
}

#[test]
fn what_is_too_little_for_a_request_goes_home_when_it_has_waited() {
    in_virtual_time(|runtime| async move {
        let volume = in_memory(runtime.clone()).await;
        write_run(&volume, 8000, 8 + 3).await;
        assert_eq!(volume.stats().volatile_bytes, 11 * 4096);
        runtime.sleep(Nanos::from_secs(1)).await;
        assert_eq!((volume.stats().volatile_bytes, volume.stats().bypassed_writes), (0, 3));
        expect_run(&volume, 8000, 11).await;
    });
}

#[test]
fn a_flush_has_what_waits_logged() {
    in_virtual_time(|runtime| async move {
        let volume = in_memory(runtime).await;
        write_run(&volume, 8000, 8 + 3).await;
        volume.submit(Request::Flush).await.unwrap();
        assert_eq!((volume.stats().logged_writes, volume.stats().bypassed_writes), (11, 0));
        expect_run(&volume, 8000, 11).await;
    });
}

#[test]
fn durable_writes_and_what_is_mapped_already_are_logged() {
    in_virtual_time(|runtime| async move {
        let volume = in_memory(runtime.clone()).await;
        for start in [8000, 12_000] {
            for index in 0..24 {
                let content = bytes(crate::common::low_byte(index), 8);
                let fua = start == 8000;
                volume.submit(write(start + 8 * index, &content, fua)).await.unwrap();
            }
            volume.submit(Request::Flush).await.unwrap();
        }
        let before = volume.stats();
        write_run(&volume, 8000, 24).await;
        runtime.sleep(Nanos::from_secs(1)).await;
        let after = volume.stats();
        assert_eq!(after.bypassed_writes, before.bypassed_writes, "over what is logged");
        assert_eq!(after.logged_writes, before.logged_writes + 24);
        expect_run(&volume, 8000, 24).await;
    });
}

#[test]
fn the_buffer_bounds_what_waits() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(
            runtime.clone(),
            device,
            &VolumeConfig { buffer: Sectors(128), ..with_runs() },
        )
        .await
        .unwrap();
        for index in 0..200 {
            volume.submit(write(8000 + 8 * index, &bytes(1, 8), false)).await.unwrap();
            assert!(volume.stats().volatile_bytes <= 128 * 512, "{:?}", volume.stats());
        }
        runtime.sleep(Nanos::from_secs(1)).await;
        assert_eq!(volume.stats().volatile_bytes, 0);
        assert!(volume.stats().bypassed_writes > 100, "{:?}", volume.stats());
    });
}

#[test]
fn what_cannot_be_written_home_is_logged() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &with_runs()).await.unwrap();
        write_run(&volume, 8000, 8).await;
        volume.submit(Request::Flush).await.unwrap();
        let home = volume.layout().home(Extent::new(8064, 64)).next().unwrap();
        device.fail_writes(home);
        for index in 8..16 {
            let content = bytes(crate::common::low_byte(index), 8);
            volume.submit(write(8000 + 8 * index, &content, false)).await.unwrap();
        }
        runtime.sleep(Nanos::from_secs(1)).await;
        assert_eq!(volume.stats().volatile_bytes, 0);
        assert_eq!(volume.stats().logged_writes, 16, "{:?}", volume.stats());
        expect_run(&volume, 8000, 16).await;
    });
}
