//! Versions that are kept in the logs, because they need durability but no place.

use std::rc::Rc;

use crate::common::{
    Rig, RigOrders, bytes, cached, config, in_virtual_time, low_byte, read, write,
};
use manylogs::{DrainOptions, OpenOptions, Settings, Volume, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, Lba, MemoryDevice, Payload, Request, Sectors,
};

async fn opened(runtime: &Handle, device: &Rc<Rig>) -> Volume {
    let options = OpenOptions::default();
    Volume::open(runtime.clone(), device.clone(), &options).await.unwrap().0
}

async fn keeping(runtime: &Handle, device: &Rc<Rig>) -> Volume {
    let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
    assert!(volume.keep_versions().await.unwrap());
    volume
}

/// A write with FUA that needs durability but no place.
fn kept(start: u64, payload: &Payload) -> Request {
    let extent = Extent { start: Lba(start), len: payload.len() };
    let payload = payload.clone();
    Request::Write { extent, payload, fua: true, hint: Hint::DurabilityOnly }
}

async fn is_there(volume: &Volume, start: u64, content: &Payload) {
    let found = volume.submit(read(start, content.len().0)).await.unwrap();
    assert!(found.to_bytes() == content.to_bytes(), "other content at {start}");
}

/// The writes to homes since the device's list was cleared.
fn home_writes(volume: &Volume, device: &Rig) -> Vec<Extent> {
    let homes: Vec<Extent> = volume.layout().homes().iter().map(|(_, home)| *home).collect();
    let mut writes = device.writes();
    writes.retain(|write| homes.iter().any(|home| home.overlaps(*write)));
    writes
}

fn features(device: &Rig) -> u8 {
    let head = Request::Read { extent: Extent::new(0, 8) };
    let medium: &MemoryDevice = device.medium();
    let mut answer = Box::pin(medium.submit(head));
    let waker = std::task::Waker::noop();
    match answer.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
        std::task::Poll::Ready(found) => found.unwrap().to_bytes().unwrap()[48],
        std::task::Poll::Pending => panic!("a device in memory answers at once"),
    }
}

#[test]
fn passes_neither_read_nor_write_what_is_kept() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = keeping(&runtime, &device).await;
        // Longer than any record.
        let (long, other) = (bytes(3, 300), bytes(5, 8));
        volume.submit(kept(1000, &long)).await.unwrap();
        volume.submit(write(5000, &other, true)).await.unwrap();
        device.forget();
        let report = volume.checkpoint().await.unwrap();
        assert_eq!(report.home_write_sectors, Sectors(8), "only what is not kept");
        assert_eq!(report.log_read_sectors, Sectors(8));
        assert_eq!(home_writes(&volume, &device).len(), 1);
        let stats = volume.stats();
        assert_eq!((stats.o_dur_live_bytes, stats.o_dur_home_bytes), (300 * 512, 0));
        is_there(&volume, 1000, &long).await;
        // From the logs alone, and from a snapshot.
        let volume = opened(&runtime, &device).await;
        is_there(&volume, 1000, &long).await;
        assert_eq!(volume.stats().o_dur_live_bytes, 300 * 512);
        volume.close().await.unwrap();
        let volume = opened(&runtime, &device).await;
        is_there(&volume, 1000, &long).await;
        is_there(&volume, 5000, &other).await;
        let report = volume.drain(&DrainOptions::default()).await.unwrap();
        assert_eq!(report.home_bytes, 300 * 512);
        let volume = opened(&runtime, &device).await;
        assert!(volume.table().is_empty());
        is_there(&volume, 1000, &long).await;
    });
}

#[test]
fn a_range_of_the_volume_needs_no_hint() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        assert_eq!(features(&device) & 8, 0, "older programs may open it");
        let mut wanted: Settings = volume.settings();
        wanted.assign("durable-only=64K+64K").unwrap();
        volume.set(&wanted).await.unwrap();
        assert_eq!(features(&device) & 8, 8, "they would take kept versions for dead");
        let (within, across) = (bytes(1, 128), bytes(2, 128));
        device.forget();
        volume.submit(write(128, &within, true)).await.unwrap();
        assert_eq!(home_writes(&volume, &device), []);
        volume.submit(write(255, &across, true)).await.unwrap();
        assert_eq!(volume.stats().o_dur_live_bytes, 127 * 512, "one sector was overwritten");
        let volume = opened(&runtime, &device).await;
        assert_eq!(volume.settings(), wanted);
        is_there(&volume, 255, &across).await;
        wanted.assign("durable-only=none").unwrap();
        volume.set(&wanted).await.unwrap();
        volume.submit(write(128, &within, true)).await.unwrap();
        assert_eq!(volume.stats().o_dur_live_bytes, 0, "it is large and went home");
        is_there(&volume, 255, &bytes(1, 128).slice(Sectors(127), Sectors(1))).await;
        wanted.assign("durable-only=1G+4K").unwrap();
        let refused = volume.set(&wanted).await.unwrap_err();
        assert!(matches!(refused, VolumeError::Config(_)), "{refused}");
        assert!(refused.to_string().contains("ends beyond the volume"), "{refused}");
    });
}

#[test]
fn beyond_the_budget_the_oldest_goes_home() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = keeping(&runtime, &device).await;
        let all: u64 = volume.layout().log_sectors().0;
        let mut wanted = volume.settings();
        wanted.assign("durable-budget=25%").unwrap();
        volume.set(&wanted).await.unwrap();
        // A third of the log space.
        let count = all / 3 / 50;
        for n in 0..count {
            volume.submit(kept(100 * n, &bytes(low_byte(n), 50))).await.unwrap();
        }
        volume.checkpoint().await.unwrap();
        let stats = volume.stats();
        assert!(stats.o_dur_live_bytes <= all / 4 * 512, "{stats:?}");
        assert!(stats.o_dur_live_bytes > all / 5 * 512, "{stats:?}");
        assert_eq!(stats.o_dur_live_bytes + stats.o_dur_home_bytes, count * 50 * 512);
        let still: Vec<Extent> = volume.table().iter().map(|mapped| mapped.extent).collect();
        assert!(still[0].start.0 > 0 && still.last().unwrap().end().0 > 100 * (count - 1));
        let volume = opened(&runtime, &device).await;
        for n in 0..count {
            is_there(&volume, 100 * n, &bytes(low_byte(n), 50)).await;
        }
    });
}

#[test]
fn logs_of_which_little_is_kept_are_emptied_for_those_who_need_room() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = keeping(&runtime, &device).await;
        let (all, longest) = (volume.layout().log_sectors().0, 400 * 512);
        // A tenth of each log is kept.
        let mut n = 0;
        let used = || volume.log_occupancy().iter().map(|log| log.used.0).sum::<u64>();
        let mut most = all * 4 / 10;
        while used() < most {
            let (place, seed) = (n % 300, low_byte(n));
            let fits = n % 10 == 0;
            let request = if fits {
                kept(100 * place, &bytes(seed, 16))
            } else {
                write(100 * place + 50, &bytes(seed, 16), true)
            };
            volume.submit(request).await.unwrap();
            n += 1;
            if used() >= most && most < all / 2 {
                most = all * 8 / 10;
                volume.checkpoint().await.unwrap();
                let plain = volume.stats();
                assert_eq!(plain.o_dur_moved_bytes, 0, "there is no need yet");
            }
        }
        let before = volume.stats();
        assert!(before.o_dur_pinned_bytes > 3 * before.o_dur_live_bytes, "{before:?}");
        // Now other writes fill the rest of the logs, and wait.
        for more in 0..900 {
            let request = write(30_000 + 16 * (more % 300), &bytes(9, 16), true);
            volume.submit(request).await.unwrap();
        }
        let after = volume.stats();
        assert!(after.o_dur_moved_bytes > 0, "{after:?}");
        assert_eq!((after.o_dur_home_bytes, after.o_dur_live_bytes), (0, before.o_dur_live_bytes));
        let most = after.o_dur_live_bytes * 3 / 2 + 2 * longest;
        assert!(after.o_dur_pinned_bytes <= most, "{after:?}");
        let volume = opened(&runtime, &device).await;
        for n in (0..n).rev().take(300).filter(|n| n % 10 == 0) {
            is_there(&volume, 100 * (n % 300), &bytes(low_byte(n), 16)).await;
        }
    });
}

#[test]
fn without_the_feature_the_hint_only_logs() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(kept(1000, &bytes(3, 100))).await.unwrap();
        assert_eq!(volume.stats().o_dur_live_bytes, 0);
        let report = volume.checkpoint().await.unwrap();
        assert_eq!(report.home_write_sectors, Sectors(100));
    });
}
