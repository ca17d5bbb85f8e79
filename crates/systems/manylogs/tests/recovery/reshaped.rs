//! Volumes that follow their array to another shape, and crashes meanwhile.

use std::rc::Rc;

use manylogs::{
    CreateOptions, DrainOptions, GeometryReport, LogPlacement, OpenOptions, Unfit, Volume,
    VolumeConfig, VolumeError,
};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Geometry, Handle, MemoryDevice, Request, Sectors,
};

use crate::common::{Rig, RigOrders, bytes, config, in_virtual_time, low_byte, over, read, write};
use crate::logs::{Opened, assert_holds};
use crate::structures::many_logs;

/// Whole stripes of all arrays here.
const DEVICE: Sectors = Sectors(61_440);

/// A medium that says that it is an array of this shape.
struct Shaped(Rc<Rig>, Option<Geometry>);

impl BlockDevice for Shaped {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.0.submit(request)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.1
    }
}

async fn open(runtime: &Handle, device: &Rc<Shaped>) -> Opened {
    Volume::open(runtime.clone(), device.clone(), &OpenOptions::default()).await
}

fn array(columns: u16, chunk: u64, parity: u16) -> Geometry {
    Geometry { chunk: Sectors(chunk), columns, copies: 1, parity, first: Sectors(0) }
}

/// Log regions of 960 sectors, whole stripes of most arrays here, whatever the volume begins on.
fn long_logs() -> VolumeConfig {
    VolumeConfig { log: Sectors(960), ..config() }
}

const BLOCKS: u64 = 60;

async fn fill(volume: &Volume, seed: u8) {
    let step = volume.layout().capacity().0 / BLOCKS;
    for block in 0..BLOCKS {
        let content = bytes(seed.wrapping_add(low_byte(block)), 8);
        volume.submit(write(block * step, &content, true)).await.unwrap();
    }
}

async fn assert_filled(volume: &Volume, seed: u8) {
    let step = volume.layout().capacity().0 / BLOCKS;
    for block in 0..BLOCKS {
        let found = volume.submit(read(block * step, 8)).await.unwrap();
        let right = bytes(seed.wrapping_add(low_byte(block)), 8);
        assert!(found.to_bytes() == right.to_bytes(), "block {block}");
    }
}

/// A drained volume that was made on `array`.
async fn drained(runtime: &Handle, disk: &Rc<Rig>, array: Option<Geometry>, config: VolumeConfig) {
    let device = Rc::new(Shaped(Rc::clone(disk), array));
    let volume = Volume::create(runtime.clone(), device, &config).await.unwrap();
    fill(&volume, 1).await;
    volume.drain(&DrainOptions::default()).await.unwrap();
}

async fn follow(disk: &Rc<Rig>, array: Option<Geometry>) -> Result<GeometryReport, VolumeError> {
    Volume::set_geometry(Rc::new(Shaped(Rc::clone(disk), array))).await
}

/// Opens the volume on `array`, asserts that it holds what it held, and that its logs work and are
/// found again after a crash.
async fn assert_works(runtime: &Handle, disk: &Rc<Rig>, array: Option<Geometry>) -> bool {
    let device = Rc::new(Shaped(Rc::clone(disk), array));
    let (volume, report) = open(runtime, &device).await.unwrap();
    assert_filled(&volume, 1).await;
    let follows = !report.reshaped;
    for seed in [2, 3] {
        fill(&volume, seed).await;
        let (volume, report) = open(runtime, &device).await.unwrap();
        assert!(report.records > 0 && report.damage.is_empty(), "{report:?}");
        assert_filled(&volume, seed).await;
    }
    follows
}

fn disk() -> Rc<Rig> {
    over(Rc::new(MemoryDevice::new(DEVICE)))
}

#[test]
fn a_drained_volume_follows_its_array_and_a_crash_leaves_the_old_shape_or_the_new_one() {
    let shapes = [
        None,
        Some(array(2, 8, 0)),
        Some(array(4, 8, 0)),
        Some(array(4, 16, 0)),
        Some(array(3, 32, 1)),
        Some(array(6, 32, 2)),
    ];
    let pairs = shapes.iter().flat_map(|from| shapes.iter().map(move |to| (*from, *to)));
    let mut became = 0;
    for (from, to) in pairs.filter(|(from, to)| from != to) {
        for changes in [0, 1, 2, 3, u64::MAX] {
            in_virtual_time(move |runtime| async move {
                let disk = disk();
                drained(&runtime, &disk, from, long_logs()).await;
                disk.stop_after(changes);
                let done = follow(&disk, to).await;
                disk.stop_after(u64::MAX);
                let follows = assert_works(&runtime, &disk, to).await;
                if changes == u64::MAX {
                    let report = done.unwrap();
                    assert_eq!((report.before, follows), (from, true), "{from:?} {to:?}");
                    assert_eq!(report.now.is_none(), report.unfit.is_some() || to.is_none());
                }
            });
        }
        became += 1;
    }
    assert_eq!(became, 30);
}

#[test]
fn each_column_has_a_log_in_the_regions_of_a_single_drive() {
    in_virtual_time(|runtime| async move {
        let (disk, four) = (disk(), array(4, 16, 0));
        // Whole stripes by chance: groups and logs are multiples, and so is where they begin.
        drained(&runtime, &disk, Some(array(4, 8, 0)), long_logs()).await;
        let report = follow(&disk, None).await.unwrap();
        assert_eq!((report.now, report.unfit), (None, None));
        let one = report.logs;
        let report = follow(&disk, Some(array(4, 8, 0))).await.unwrap();
        assert_eq!((report.now, report.logs), (Some(array(4, 8, 0)), 4 * one));
        let again = follow(&disk, Some(array(4, 8, 0))).await.unwrap();
        assert_eq!(again.before, again.now);
        let coarse = follow(&disk, Some(Geometry { chunk: Sectors(256), ..four })).await.unwrap();
        assert_eq!(coarse.now, None);
        assert_eq!(coarse.unfit, Some(Unfit::PartOfStripe { stripe: Sectors(1024) }));
    });
}

#[test]
fn records_become_shorter_where_the_log_of_a_column_needs_it() {
    in_virtual_time(|runtime| async move {
        let disk = disk();
        let config = VolumeConfig { threshold: Sectors(160), record: Sectors(400), ..long_logs() };
        let four = array(4, 8, 0);
        drained(&runtime, &disk, Some(array(2, 16, 0)), config).await;
        let report = follow(&disk, Some(four)).await.unwrap();
        let now = report.settings.applied_to(&VolumeConfig::default());
        assert_eq!((report.now, now.record), (Some(four), Sectors(120)));
        assert_eq!(now.threshold, Sectors(52));
        assert!(assert_works(&runtime, &disk, Some(four)).await);
    });
}

#[test]
pub(crate) fn a_volume_with_full_logs_is_refused() {
    in_virtual_time(|runtime| async move {
        let (disk, before) = (disk(), array(4, 8, 0));
        let device = Rc::new(Shaped(Rc::clone(&disk), Some(before)));
        let volume = Volume::create(runtime.clone(), device.clone(), &long_logs()).await.unwrap();
        fill(&volume, 1).await;
        volume.close().await.unwrap();
        disk.forget();
        assert_eq!(follow(&disk, Some(array(4, 16, 0))).await, Err(VolumeError::NotDrained));
        assert!(disk.writes().is_empty());
        let (volume, _) = open(&runtime, &device).await.unwrap();
        assert_filled(&volume, 1).await;
    });
}

#[test]
pub(crate) fn roots_know_the_logs_of_both_shapes_before_the_superblock_tells_of_the_new_one() {
    // One log in each region, then two: more than a root has bits.
    let (one, two) = (None, Some(array(2, 8, 0)));
    let placement = LogPlacement::EveryGroup(Sectors(112));
    let config = VolumeConfig { log: Sectors(96), placement, ..many_logs() };
    for changes in [0, 1, 2, 3, u64::MAX] {
        in_virtual_time(move |runtime| async move {
            let disk = over(Rc::new(MemoryDevice::new(Sectors(112 * 20_000))));
            let device = Rc::new(Shaped(Rc::clone(&disk), one));
            let volume = Volume::create(runtime.clone(), device, &config).await.unwrap();
            volume.submit(write(72, &bytes(1, 8), true)).await.unwrap();
            volume.drain(&DrainOptions::default()).await.unwrap();
            disk.stop_after(changes);
            let done = follow(&disk, two).await;
            disk.stop_after(u64::MAX);
            assert!(done.is_err() || done.is_ok_and(|report| report.logs > 32_768));
            let device = Rc::new(Shaped(Rc::clone(&disk), two));
            let (volume, _) = open(&runtime, &device).await.unwrap();
            assert_holds(&volume, 72, 1).await;
        });
    }
}

#[test]
fn the_word_of_a_user_is_forgotten_and_a_crash_leaves_it_or_not() {
    let (four, rows) = (array(4, 16, 0), array(3, 32, 1));
    for (said, device) in [(four, None), (four, Some(four)), (rows, None)] {
        for changes in [0, 1, 2, 3, u64::MAX] {
            in_virtual_time(move |runtime| async move {
                let disk = disk();
                let options = CreateOptions { said: Some(said), ..CreateOptions::default() };
                let shaped = |array| Rc::new(Shaped(Rc::clone(&disk), array));
                let (plain, config) = (shaped(None), long_logs());
                let made = Volume::create_with(runtime.clone(), plain, &config, &options).await;
                let volume = made.unwrap();
                fill(&volume, 1).await;
                volume.drain(&DrainOptions::default()).await.unwrap();
                let kept = follow(&disk, None).await.unwrap();
                assert_eq!((kept.before, kept.now), (Some(said), Some(said)));
                disk.stop_after(changes);
                let done = Volume::forget_said_geometry(shaped(device)).await;
                disk.stop_after(u64::MAX);
                assert_works(&runtime, &disk, device).await;
                if changes == u64::MAX {
                    assert_eq!(done.unwrap().now, device);
                    let (volume, report) = open(&runtime, &shaped(device)).await.unwrap();
                    let layout = volume.layout();
                    assert_eq!((layout.columns(), layout.is_said()), (device, false));
                    assert!(!report.reshaped);
                }
            });
        }
    }
}
