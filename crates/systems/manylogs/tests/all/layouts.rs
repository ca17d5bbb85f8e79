//! Volumes with logs at places that another owner gave.

use std::rc::Rc;

use crate::common::{DEVICE, bytes, config, in_virtual_time, low_byte, read, write};
use manylogs::{CreateOptions, Layout, OpenOptions, Volume, VolumeError};
use manylogs_block::{BlockDevice, Extent, MemoryDevice, Sectors};

/// Logs of different lengths at different distances.
fn irregular() -> Layout {
    let regions = [(2000, 200), (2200, 400), (9001, 333), (30_000, 1500)];
    let regions = regions.map(|(at, len)| Extent::new(at, len));
    Layout::with_logs(&regions, DEVICE, Sectors(1)).unwrap()
}

#[test]
fn a_volume_with_irregular_logs_keeps_what_was_written() {
    in_virtual_time(|runtime| async move {
        let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(DEVICE));
        let options = CreateOptions { layout: Some(irregular()), ..CreateOptions::default() };
        let made =
            Volume::create_with(runtime.clone(), Rc::clone(&device), &config(), &options).await;
        let volume = made.unwrap();
        let (step, count) = (volume.layout().capacity().0 / 150, 150);
        for i in 0..count {
            volume.submit(write(i * step, &bytes(low_byte(i), 8), true)).await.unwrap();
        }
        let used = volume.log_occupancy().iter().filter(|log| log.used.0 > 0).count();
        assert_eq!(used, 4, "each log takes records");
        // As after a crash.
        drop(volume);
        let opened = Volume::open(runtime, Rc::clone(&device), &OpenOptions::default()).await;
        let (volume, report) = opened.unwrap();
        assert!(report.records > 0);
        assert_eq!(volume.layout(), &irregular());
        volume.checkpoint().await.unwrap();
        for i in 0..count {
            let found = volume.submit(read(i * step, 8)).await.unwrap();
            assert!(found.to_bytes() == bytes(low_byte(i), 8).to_bytes(), "block {i}");
        }
    });
}

#[test]
fn a_layout_for_another_device_is_refused() {
    in_virtual_time(|runtime| async move {
        let device = Rc::new(MemoryDevice::new(DEVICE + Sectors(8)));
        let options = CreateOptions { layout: Some(irregular()), ..CreateOptions::default() };
        let made = Volume::create_with(runtime, device, &config(), &options).await;
        assert!(matches!(made.err(), Some(VolumeError::OtherDevice { .. })));
    });
}
