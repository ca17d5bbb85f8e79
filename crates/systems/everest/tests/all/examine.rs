//! A store that is not lent is judged without writing anything: what it holds, whose it is, and
//! what is damaged.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Payload, Request, Rng, Sectors};
use manylogs_everest::{
    CircularStore, ExaminedStore, Lender, Lending, OffloadOptions, Offloaded, Policy, StoreFinding,
    StoreLabel, StoreOptions,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

const DISK: CrashDiskConfig = CrashDiskConfig {
    capacity: Sectors(64 + 9 * 128 + 16),
    physical_sector: Sectors(8),
    volatile_cache: true,
    native_fua: true,
    latency_max: Nanos(1 << 14),
};

fn simulated<T: 'static, F: Future<Output = T> + 'static>(test: impl FnOnce(Handle) -> F) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)))
}

fn whole(disk: &CrashDisk) -> DiskImage {
    disk.after_power_cut(Survival::Everything, &mut Rng::new(1))
}

/// A store that two base volumes use, with 20 blocks of the first, and the disk that it is on.
async fn a_store(runtime: &Handle) -> (CrashDisk, [[u8; 16]; 2]) {
    let disk = CrashDisk::new(runtime.clone(), DISK, DiskImage::default());
    let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
    let made = CircularStore::create(runtime.clone(), vec![Rc::new(disk.clone())], options).await;
    let lending = Lending::open(made.unwrap(), None).await.unwrap();
    let mut bases = [[0; 16]; 2];
    for (number, base) in bases.iter_mut().enumerate() {
        let config = CrashDiskConfig { capacity: Sectors(256 + 800), ..DISK };
        let device: Rc<dyn BlockDevice> =
            Rc::new(CrashDisk::new(runtime.clone(), config, DiskImage::default()));
        Offloaded::create(runtime, Rc::clone(&device)).await.unwrap();
        let options = OffloadOptions {
            policy: Policy::Always,
            reclaim_every: Nanos(1 << 60),
            ..OffloadOptions::default()
        };
        let lenders: Vec<Rc<dyn Lender>> = vec![Rc::new(lending.clone())];
        let volume = Offloaded::open(runtime.clone(), device, lenders, options).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        *base = volume.id();
        for block in (0..20).filter(|_| number == 0) {
            let content = Payload::tags(100 + 8 * block, Sectors(8));
            let write = Request::write_fua(Extent::new(block * 16, 8), content);
            volume.submit(write).await.unwrap();
        }
        volume.close().await;
    }
    lending.store().close().await.unwrap();
    (disk, bases)
}

async fn examined(runtime: &Handle, image: DiskImage) -> (ExaminedStore, DiskImage) {
    let disk = CrashDisk::new(runtime.clone(), DISK, image);
    let devices: Vec<Rc<dyn BlockDevice>> = vec![Rc::new(disk.clone())];
    let examined = CircularStore::examine(runtime.clone(), devices).await.unwrap();
    (examined, whole(&disk))
}

/// The image with a place of it overwritten.
async fn damaged(runtime: &Handle, image: DiskImage, place: Extent) -> DiskImage {
    let disk = CrashDisk::new(runtime.clone(), DISK, image);
    let zeroes = Payload::zeroes(place.len);
    disk.submit(Request::write_fua(place, zeroes)).await.unwrap();
    whole(&disk)
}

#[test]
fn a_store_tells_what_it_holds_and_of_whom() {
    simulated(|runtime| async move {
        let (disk, [one, other]) = a_store(&runtime).await;
        let before = whole(&disk).fingerprint();
        let (found, after) = examined(&runtime, whole(&disk)).await;
        assert_eq!(after.fingerprint(), before, "nothing is written");
        assert_eq!(found.findings, []);
        assert!(found.logs.iter().map(|log| log.records).sum::<u64>() >= 20, "{found:?}");
        let held = |base| found.held.iter().find(|held| held.base == base).unwrap();
        assert_eq!(held(one).sectors(), Sectors(160));
        assert_eq!(held(one).ranges[3].extent, Extent::new(48, 8));
        assert_eq!((held(one).opening.incarnation, held(one).session), (1, 1));
        assert_eq!(held(other).ranges, []);
        let read = disk.submit(Request::Read { extent: Extent::new(0, 8) }).await.unwrap();
        let label = StoreLabel::decode(&read.to_bytes().unwrap()).unwrap().unwrap();
        assert_eq!((label.store, label.logs), (found.store, found.log_count));
    });
}

/// Everything in use is overwritten, a sector at a time: what counts is missed, and nothing else.
fn damage_is_found() -> bool {
    simulated(|runtime| async move {
        let (disk, [one, _]) = a_store(&runtime).await;
        let (whole_store, _) = examined(&runtime, whole(&disk)).await;
        let (mut of_data, mut contents) = (0, 0);
        let logs = &whole_store.logs;
        let places = logs.iter().flat_map(|log| {
            (0..log.used.0 / 8).map(|at| Extent::new(log.region.start.0 + at * 8, 8))
        });
        for place in places {
            let image = damaged(&runtime, whole(&disk), place).await;
            let device = CrashDisk::new(runtime.clone(), DISK, image);
            let devices: Vec<Rc<dyn BlockDevice>> = vec![Rc::new(device)];
            // The list of base volumes may be what is damaged, or the end of a log be torn.
            let Ok(found) = CircularStore::examine(runtime.clone(), devices).await else {
                continue;
            };
            of_data += u64::from(found.findings.iter().any(StoreFinding::is_of_data));
            let of_base = |one_of: &StoreFinding| matches!(one_of, StoreFinding::Content { base, .. } if *base == one);
            contents += u64::from(found.findings.iter().any(of_base));
        }
        // 20 blocks with a header each; the last record may count as torn.
        of_data >= 38 && contents >= 18
    })
}

#[test]
fn damage_of_content_and_of_records_is_found() {
    assert!(damage_is_found());
}

#[test]
fn damage_of_structures_loses_nothing() {
    simulated(|runtime| async move {
        let (disk, [one, _]) = a_store(&runtime).await;
        let [label, copy] = StoreLabel::places(DISK.capacity);
        for place in [label, copy, Extent::new(8, 24), Extent::new(32, 24)] {
            let image = damaged(&runtime, whole(&disk), place).await;
            let (found, _) = examined(&runtime, image).await;
            let [finding] = &found.findings[..] else { panic!("{place}: {found:?}") };
            assert!(!finding.is_of_data(), "{finding:?}");
            let held = found.held.iter().find(|held| held.base == one).unwrap();
            assert_eq!(held.sectors(), Sectors(160));
        }
    });
}

#[cfg(feature = "plant")]
#[test]
fn an_examination_that_compares_nothing_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::HeldNotCompared));
    let found = damage_is_found();
    plant(None);
    assert!(!found, "it is not noticed");
}
