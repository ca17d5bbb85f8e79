//! A volume on a shingled drive: home writes by bands, and one log until it is full.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::common::{
    ReadFault, Rig, RigOrders, bytes, cached, config, in_virtual_time, read, write,
};
use manylogs::{Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Extent, Handle, Lba, Payload, Sectors};

/// Length of a band.
const BAND: Sectors = Sectors(1024);
/// Places in the band that are overwritten after the whole band, and the seeds of their content.
const CHANGED: [(u64, u8); 2] = [(96, 11), (700, 12)];

async fn volume(runtime: Handle, device: &Rc<Rig>) -> Volume {
    let config = VolumeConfig { band: BAND, ..config() };
    Volume::create(runtime, device.clone(), &config).await.unwrap()
}

/// The home of `extent` on the device.
fn home(volume: &Volume, extent: Extent) -> Extent {
    let parts: Vec<Extent> = volume.layout().home(extent).collect();
    assert_eq!(parts.len(), 1, "{parts:?}");
    parts[0]
}

/// Writes the band behind the first past the logs, and then changes it in two places.
async fn changed_band(volume: &Volume) -> (Extent, Payload) {
    let (exported, first) = volume.layout().homes()[0];
    let start = first.start.0.next_multiple_of(BAND.0) + BAND.0;
    let band = Extent::new(exported.0 + start - first.start.0, BAND.0);
    volume.submit(write(band.start.0, &bytes(7, BAND.0), true)).await.unwrap();
    for (offset, tag) in CHANGED {
        volume.submit(write(band.start.0 + offset, &bytes(tag, 8), true)).await.unwrap();
    }
    let content = content(volume, band).await;
    (band, content)
}

async fn content(volume: &Volume, extent: Extent) -> Payload {
    volume.submit(read(extent.start.0, extent.len.0)).await.unwrap()
}

#[test]
fn a_band_is_written_in_one_to_its_end() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = volume(runtime, &device).await;
        let (band, expected) = changed_band(&volume).await;
        device.forget();
        let report = volume.checkpoint().await.unwrap();
        let homes = volume.layout().homes().to_vec();
        let is_home = |extent: &&Extent| homes.iter().any(|(_, home)| home.overlaps(**extent));
        let writes = device.writes();
        let writes: Vec<&Extent> = writes.iter().filter(is_home).collect();
        // A band of this length is too short for a stream, so its beginning is written, too.
        let (whole, last) = (home(&volume, band), writes[writes.len() - 1]);
        assert_eq!((writes[0].start, last.end()), (whole.start, whole.end()), "{writes:?}");
        assert!(writes.windows(2).all(|pair| pair[0].end() == pair[1].start), "{writes:?}");
        assert_eq!(report.home_write_sectors, BAND);
        assert!(volume.table().is_empty());
        assert_eq!(content(&volume, band).await.to_bytes(), expected.to_bytes());
    });
}

#[test]
fn what_a_failed_write_of_a_band_may_have_damaged_is_logged() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = volume(runtime, &device).await;
        let (band, expected) = changed_band(&volume).await;
        let whole = home(&volume, band);
        device.fail_writes(whole);
        let report = volume.checkpoint().await.unwrap();
        assert_eq!(report.kept_extents, 2);
        device.faults().clear();
        // The drive has lost the sectors that it was told to write.
        device.medium().submit(write(whole.start.0, &bytes(99, BAND.0), true)).await.unwrap();
        assert_eq!(content(&volume, band).await.to_bytes(), expected.to_bytes());
        volume.checkpoint().await.unwrap();
        assert!(volume.table().is_empty(), "the next pass brings all of it home");
        assert_eq!(content(&volume, band).await.to_bytes(), expected.to_bytes());
    });
}

#[test]
fn where_a_band_cannot_be_read_only_what_changed_is_written() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = volume(runtime, &device).await;
        let (band, expected) = changed_band(&volume).await;
        let bad = home(&volume, Extent { start: band.start + Sectors(300), len: Sectors(8) });
        device.fail_reads(bad, ReadFault::Medium);
        let report = volume.checkpoint().await.unwrap();
        assert_eq!((report.home_writes, report.home_write_sectors), (2, Sectors(16)));
        assert!(volume.table().is_empty());
        device.faults().clear();
        assert_eq!(content(&volume, band).await.to_bytes(), expected.to_bytes());
    });
}

#[test]
fn versions_of_many_bands_go_home() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = volume(runtime, &device).await;
        let last = volume.layout().capacity().0 - 8;
        let places: Vec<u64> = (0..60).map(|i| (i * 631 + 3) % last).chain([0, last]).collect();
        for round in 0..3 {
            let payload = |at: u64| Payload::tags(at + 1000 * round, Sectors(8));
            for at in &places {
                volume.submit(write(*at, &payload(*at), true)).await.unwrap();
            }
            volume.checkpoint().await.unwrap();
            assert!(volume.table().is_empty());
            for at in &places {
                let found = volume.submit(read(*at, 8)).await.unwrap();
                assert_eq!(found, payload(*at), "{at} in round {round}");
            }
        }
    });
}

/// Number of logs that take records while clients read all over the disk.
async fn logs_in_use(runtime: Handle, band: Sectors) -> usize {
    let device = cached();
    let config = VolumeConfig { band, ..config() };
    let volume = Volume::create(runtime, device.clone(), &config).await.unwrap();
    device.forget();
    for i in 0..20u64 {
        volume.submit(read(i * 3571 % 30_000, 8)).await.unwrap();
        volume.submit(write(8 * i, &bytes(1, 8), true)).await.unwrap();
    }
    let regions = volume.layout().regions();
    let log_of = |at: Lba| regions.iter().position(|log| log.range().contains(&at.0));
    device.writes().iter().filter_map(|write| log_of(write.start)).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_log_is_filled_before_the_next_one_is_begun() {
    in_virtual_time(|runtime| async move {
        assert!(logs_in_use(runtime.clone(), Sectors(0)).await > 3, "near the head");
        assert_eq!(logs_in_use(runtime, BAND).await, 1, "on a shingled drive");
    });
}

#[test]
fn what_has_no_space_on_the_device_gets_none() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let config = VolumeConfig { band: Sectors(8192), ..config() };
        let volume = Volume::create(runtime, device.clone(), &config).await.unwrap();
        // The home is written in two pieces. Only the first changes, and the other is a hole.
        let (exported, home) = volume.layout().homes()[1];
        assert!(home.len > Sectors(3000), "{home}");
        volume.submit(write(exported.0 + 8, &bytes(1, 8), true)).await.unwrap();
        let report = volume.checkpoint().await.unwrap();
        assert_eq!((report.home_writes, report.home_write_sectors), (1, Sectors(2048)));
        volume.submit(write(exported.0 + 2100, &bytes(2, 8), true)).await.unwrap();
        let report = volume.checkpoint().await.unwrap();
        assert_eq!((report.home_writes, report.home_write_sectors), (2, home.len));
    });
}
