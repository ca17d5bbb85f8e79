//! Checkpoints when the device fails at times, when the logs are full, and when requests wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{DEVICE, config, in_virtual_time, read, write};
use manylogs::{CheckpointPolicy, DrainOptions, Health, LogPlacement, Volume, VolumeConfig};
use manylogs_block::{
    BlockDevice, Capabilities, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request,
    RequestKind, Sectors, Time,
};
use manylogs_filters::{Faults, Reported, Rule, Stop, Trace};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage};

/// Longer than any pause of a checkpoint, and than the time to confirm a medium error.
const LONG: Nanos = Nanos::from_secs(400);

fn disk(runtime: &Handle, capacity: u64, physical: u64) -> CrashDisk {
    let config = CrashDiskConfig {
        native_fua: true,
        capacity: Sectors(capacity),
        physical_sector: Sectors(physical),
        volatile_cache: true,
        latency_max: Nanos::from_millis(1),
    };
    CrashDisk::new(runtime.clone(), config, DiskImage::default())
}

async fn volume(runtime: &Handle, disk: &CrashDisk, config: &VolumeConfig) -> Volume {
    Volume::create(runtime.clone(), Rc::new(disk.clone()), config).await.unwrap()
}

fn tagged(start: u64, tag: u64, len: u64) -> Request {
    write(start, &Payload::tags(tag, Sectors(len)), true)
}

/// Makes reads from the logs fail with the error that `error` returns, if it returns one.
fn fail_log_reads(
    disk: &CrashDisk,
    volume: &Volume,
    mut error: impl FnMut(Extent) -> Option<IoError> + 'static,
) {
    let layout = volume.layout().clone();
    disk.fail_requests(Box::new(move |request| match request {
        Request::Read { extent } if layout.is_log(extent.start) => error(*extent),
        _ => None,
    }));
}

async fn holds(volume: &Volume, writes: u64) -> bool {
    for i in 0..writes {
        let content = volume.submit(read(100 * i, 8)).await;
        if content.ok() != Some(Payload::tags(1000 + 100 * i, Sectors(8))) {
            return false;
        }
    }
    true
}

/// Writes twenty blocks durably; then the device fails reads until some time.
fn passing_errors(of: fn(Extent) -> IoError, heals_after: Nanos) {
    in_virtual_time(move |runtime| async move {
        let disk = disk(&runtime, 40_000, 1);
        let volume = volume(&runtime, &disk, &config()).await;
        for i in 0..20 {
            volume.submit(tagged(100 * i, 1000 + 100 * i, 8)).await.unwrap();
        }
        let (clock, heals_at) = (runtime.clone(), runtime.now() + heals_after);
        fail_log_reads(&disk, &volume, move |extent| (clock.now() < heals_at).then(|| of(extent)));
        let report = volume.checkpoint().await.unwrap();
        assert_eq!((report.lost_extents, report.unread_extents), (0, 20));
        assert_eq!(volume.health(), Health::Degraded);
        runtime.sleep(LONG).await;
        let stats = volume.stats();
        assert_eq!((stats.lost_extents, stats.unread_extents, stats.mapped_extents), (0, 0, 0));
        assert!(holds(&volume, 20).await);
        volume.drain(&DrainOptions::default()).await.unwrap();
    });
}

#[test]
fn a_medium_error_that_passes_loses_nothing() {
    passing_errors(|extent| IoError::Medium { extent }, Nanos::from_secs(30));
}

#[test]
fn a_transient_error_loses_nothing_however_long_it_stays() {
    passing_errors(|extent| IoError::Transient { extent }, Nanos::from_secs(300));
}

#[test]
fn of_a_long_extent_only_what_is_damaged_is_lost() {
    in_virtual_time(|runtime| async move {
        let disk = disk(&runtime, 40_000, 1);
        let config = VolumeConfig { threshold: Sectors(64), ..config() };
        let volume = volume(&runtime, &disk, &config).await;
        volume.submit(tagged(0, 500, 64)).await.unwrap();
        let bad = Rc::new(Cell::new(None));
        let place = Rc::clone(&bad);
        fail_log_reads(&disk, &volume, move |extent| {
            let bad = place.get().unwrap_or(extent.end().0 - 20);
            place.set(Some(bad));
            extent.range().contains(&bad).then_some(IoError::Medium { extent })
        });
        volume.checkpoint().await.unwrap();
        runtime.sleep(LONG).await;
        assert_eq!(volume.stats().lost_extents, 1);
        let mut unread = 0;
        for lba in 0..64 {
            match volume.submit(read(lba, 1)).await {
                Ok(content) => assert_eq!(content, Payload::tags(500 + lba, Sectors(1))),
                Err(error) => {
                    assert!(matches!(error, IoError::Checksum { .. }), "{error}");
                    unread += 1;
                }
            }
        }
        assert_eq!(unread, 8, "what one checksum covers");
    });
}

#[test]
fn writes_that_find_no_room_are_refused_after_a_while() {
    in_virtual_time(|runtime| async move {
        let disk = disk(&runtime, 4000, 1);
        let config = VolumeConfig {
            log: Sectors(100),
            placement: LogPlacement::EveryGroup(Sectors(1000)),
            record: Sectors(32),
            ..config()
        };
        let volume = volume(&runtime, &disk, &config).await;
        fail_log_reads(&disk, &volume, |extent| Some(IoError::Transient { extent }));
        let (mut refused, started) = (None, runtime.now());
        for i in 0..200 {
            if let Err(error) = volume.submit(tagged(8 * (i % 60), 9000 + 8 * i, 8)).await {
                refused = Some(error);
                break;
            }
        }
        assert!(matches!(refused, Some(IoError::ReadOnly { .. })), "{refused:?}");
        let waited = runtime.now().since(started);
        assert!(waited <= Nanos::from_secs(140), "{waited:?}");
        assert_eq!(volume.stats().lost_extents, 0);
    });
}

/// One of two writes of a pass fails, and the device delays the other. A client's later write to
/// the same place must land last.
fn a_pass_that_fails_waits_for_its_writes() {
    in_virtual_time(|runtime| async move {
        let device = Rc::new(Faults::new(Stop::new(MemoryDevice::new(DEVICE))));
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        let newer = Payload::tags(900, Sectors(32));
        for start in [0, 1000] {
            volume.submit(tagged(start, start + 1, 8)).await.unwrap();
        }
        let failing = volume.layout().home(Extent::new(0, 8)).next().unwrap();
        let gone = Rule::new(&[RequestKind::Write], |_| IoError::Gone);
        device.add(gone.within(failing));
        device.below().hold(&[RequestKind::Write]);
        let (passing, failed) = (volume.clone(), Rc::new(Cell::new(false)));
        let told = Rc::clone(&failed);
        runtime.spawn(async move { told.set(passing.checkpoint().await.is_err()) });
        runtime.sleep(Nanos::from_millis(1)).await;
        assert_eq!(device.below().held(), 1, "the write that does not fail");
        device.below().hold(&[]);
        let written = volume.submit(write(1000, &newer, false));
        runtime.sleep(Nanos::from_millis(1)).await;
        device.below().release().await;
        written.await.unwrap();
        assert!(failed.get());
        assert_eq!(volume.submit(read(1000, 32)).await.unwrap(), newer);
    });
}

#[test]
fn nothing_of_a_failed_pass_lands_on_newer_data() {
    a_pass_that_fails_waits_for_its_writes();
}

#[cfg(feature = "plant")]
#[test]
fn that_a_failed_pass_leaves_writes_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::PassLeavesWrites));
    let noticed = std::panic::catch_unwind(a_pass_that_fails_waits_for_its_writes).is_err();
    plant(None);
    assert!(noticed);
}

/// A volume of a few logs, which are soon full.
fn small() -> VolumeConfig {
    VolumeConfig {
        log: Sectors(4096),
        placement: LogPlacement::EveryGroup(Sectors(100_000)),
        threshold: Sectors(128),
        record: Sectors(512),
        ..config()
    }
}

#[test]
fn a_rate_limit_does_not_hold_up_writes_that_wait_for_room() {
    in_virtual_time(|runtime| async move {
        let disk = disk(&runtime, 220_000, 1);
        let checkpoint = CheckpointPolicy::Every(Nanos::from_millis(500));
        // Two logs of 2 MiB, and 10 kB a second.
        let config =
            VolumeConfig { checkpoint, checkpoint_rate: 10_000, watermark: 1.0, ..small() };
        let volume = volume(&runtime, &disk, &config).await;
        let mut worst = Nanos(0);
        for i in 0..400 {
            let submitted = runtime.now();
            volume.submit(tagged(400 * i, 1_000_000 + 128 * i, 128)).await.unwrap();
            worst = worst.max(runtime.now().since(submitted));
        }
        assert!(volume.stats().starved_writes > 0, "the logs were full");
        assert!(worst < Nanos::from_secs(2), "one write took {worst:?}");
    });
}

#[test]
fn a_rate_limited_pass_ends_when_the_volume_is_closed() {
    in_virtual_time(|runtime| async move {
        let disk = disk(&runtime, 220_000, 1);
        let checkpoint = CheckpointPolicy::Every(Nanos::from_millis(500));
        let config = VolumeConfig { checkpoint, checkpoint_rate: 1, ..small() };
        let volume = volume(&runtime, &disk, &config).await;
        volume.submit(tagged(0, 1, 128)).await.unwrap();
        runtime.sleep(Nanos::from_secs(3)).await;
        let asked = runtime.now();
        volume.close().await.unwrap();
        assert!(runtime.now().since(asked) < Nanos::from_secs(1));
    });
}

#[test]
fn an_order_to_checkpoint_does_not_wait_for_idleness() {
    in_virtual_time(|runtime| async move {
        let disk = disk(&runtime, 220_000, 1);
        let config = VolumeConfig {
            checkpoint: CheckpointPolicy::Idle,
            idle: Nanos::from_millis(50),
            ..small()
        };
        let volume = volume(&runtime, &disk, &config).await;
        for i in 0..40 {
            volume.submit(tagged(1000 * i, 1_000_000 + 128 * i, 128)).await.unwrap();
        }
        runtime.sleep(Nanos::from_millis(51)).await;
        let (busy, ended) = (volume.clone(), Rc::new(Cell::new(false)));
        let (clock, stop) = (runtime.clone(), Rc::clone(&ended));
        runtime.spawn(async move {
            while !stop.get() {
                busy.submit(read(190_000, 1)).await.unwrap();
                clock.sleep(Nanos::from_millis(10)).await;
            }
        });
        let asked = runtime.now();
        volume.checkpoint().await.unwrap();
        ended.set(true);
        assert!(runtime.now().since(asked) < Nanos::from_secs(3), "at {:?}", runtime.now());
    });
}

/// Requests that reached the homes of a device.
#[derive(Default)]
struct Traffic {
    /// Most sectors of content on their way home within a millisecond.
    burst: Cell<u64>,
    zeroed: Cell<u64>,
    unaligned: RefCell<Vec<Extent>>,
}

fn observe(disk: &CrashDisk, volume: &Volume, clock: Handle, physical: u64) -> Rc<Traffic> {
    let (traffic, layout) = (Rc::new(Traffic::default()), volume.layout().clone());
    let (seen, recent) = (Rc::clone(&traffic), RefCell::new(Vec::<(Time, u64)>::new()));
    disk.fail_requests(Box::new(move |request| {
        let (extent, content) = match request {
            Request::Write { extent, .. } => (*extent, extent.len.0),
            Request::WriteZeroes { extent, .. } => {
                seen.zeroed.set(seen.zeroed.get() + extent.len.0);
                (*extent, 0)
            }
            _ => return None,
        };
        if layout.is_log(extent.start) {
            return None;
        }
        if extent.start.0 % physical != 0 || extent.len.0 % physical != 0 {
            seen.unaligned.borrow_mut().push(extent);
        }
        // A request takes a millisecond at most.
        let now = clock.now();
        let mut recent = recent.borrow_mut();
        recent.retain(|(at, _)| now.since(*at) <= Nanos::from_millis(1));
        recent.push((now, content));
        seen.burst.set(seen.burst.get().max(recent.iter().map(|(_, len)| len).sum()));
        None
    }));
    traffic
}

#[test]
fn a_long_zeroed_range_that_full_logs_cannot_keep_costs_no_memory() {
    in_virtual_time(|runtime| async move {
        let capacity = 8_000_000;
        let disk = disk(&runtime, capacity, 8);
        let config = VolumeConfig {
            log: Sectors(512),
            placement: LogPlacement::EveryGroup(Sectors(capacity / 2)),
            threshold: Sectors(64),
            record: Sectors(128),
            ..config()
        };
        let volume = volume(&runtime, &disk, &config).await;
        let traffic = observe(&disk, &volume, runtime.clone(), 8);
        let exported = volume.layout().capacity().0;
        // Homes that hold data, because homes that read as zeroes are left alone.
        for i in 0..300 {
            volume.submit(tagged(20_000 * i + 4000, 5_000_000 + 1000 * i, 128)).await.unwrap();
        }
        // Unaligned at both ends.
        let zeroes = Extent::new(3, exported - 10);
        volume.submit(Request::write_zeroes(zeroes, true)).await.unwrap();
        // Writes over the zeroes leave long parts of them, more than the logs can keep.
        for i in 0..300 {
            volume.submit(tagged(20_000 * i + 1000, 1000 * i, 64)).await.unwrap();
        }
        volume.checkpoint().await.unwrap();
        assert!(traffic.zeroed.get() > 0, "some went home as zeroes");
        assert!(traffic.burst.get() <= 16_384, "{} sectors at once", traffic.burst.get());
        assert_eq!(*traffic.unaligned.borrow(), [], "parts of physical sectors");
        for (start, len) in [(2, 1), (3, 200), (exported - 8, 8)] {
            let content = volume.submit(read(start, len)).await.unwrap();
            assert_eq!(content, Payload::zeroes(Sectors(len)));
        }
        volume.drain(&DrainOptions::default()).await.unwrap();
        assert_eq!(*traffic.unaligned.borrow(), [], "parts of physical sectors");
        assert!(traffic.burst.get() <= 16_384, "{} sectors at once", traffic.burst.get());
    });
}

/// Zeroes most of a volume on a device in memory, where only some homes hold data, and drains it.
/// Returns the number of sectors that were zeroed at home.
async fn zeroed_by_a_drain(runtime: Handle, told: fn(Capabilities) -> Capabilities) -> u64 {
    let medium = Rc::new(MemoryDevice::new(Sectors(1_000_000)));
    let device = Rc::new(Trace::new(Reported::new(Rc::clone(&medium), told)));
    let volume = Volume::create(runtime, Rc::clone(&device) as _, &small()).await.unwrap();
    // Goes home, because it is too long to be logged.
    volume.submit(tagged(300_000, 5, 4096)).await.unwrap();
    volume.submit(Request::write_zeroes(Extent::new(0, 700_000), true)).await.unwrap();
    let estimate = volume.drain_estimate().time;
    volume.drain(&DrainOptions::default()).await.unwrap();
    let layout = volume.layout().clone();
    for home in layout.home(Extent::new(300_000, 4096)) {
        let content = medium.submit(Request::Read { extent: home }).await.unwrap();
        assert_eq!(content, Payload::zeroes(home.len), "what was data reads as zeroes");
    }
    let kinds = &[RequestKind::WriteZeroes, RequestKind::Discard];
    let zeroed = device.extents_of(kinds).into_iter();
    let zeroed = zeroed.filter(|extent| !layout.is_log(extent.start)).map(|extent| extent.len.0);
    let fast = told(medium.capabilities()).fast_zero || told(medium.capabilities()).discard;
    // At 1 GB/s all zeroes would take more than a third of a second.
    assert_eq!(estimate < Nanos::from_millis(100), fast, "{estimate:?}");
    zeroed.sum()
}

#[test]
fn a_drain_zeroes_only_what_does_not_read_as_zeroes() {
    in_virtual_time(|runtime| async move {
        assert_eq!(zeroed_by_a_drain(runtime.clone(), |told| told).await, 4096);
        // A device that would write zeroes to the medium gets discards if it supports them.
        let slow = |told| Capabilities { fast_zero: false, ..told };
        assert_eq!(zeroed_by_a_drain(runtime.clone(), slow).await, 4096);
        let slowest = |told| Capabilities { fast_zero: false, discard: false, ..told };
        assert_eq!(zeroed_by_a_drain(runtime, slowest).await, 4096);
    });
}

#[cfg(feature = "plant")]
#[test]
fn a_drain_that_takes_zeroes_for_granted_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::ZeroesTakenForGranted));
    let noticed = std::panic::catch_unwind(a_drain_zeroes_only_what_does_not_read_as_zeroes);
    plant(None);
    assert!(noticed.is_err());
}
