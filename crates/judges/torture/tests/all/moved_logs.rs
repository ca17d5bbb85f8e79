//! A disk that was adopted with sectors of 512 bytes is copied to one that writes 4096 as a whole.

use std::rc::Rc;

use manylogs::Severity;
use manylogs_block::{Extent, Nanos, Rng, Sectors};
use manylogs_ext4::{Ext4, Ino};
use manylogs_mlfs::MountError;
use manylogs_mlfs::adopt::{
    AdoptError, LogState, Site, Volumes, adopt, check_logs, look, open, release, repair,
};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{ImageSource, World};

use crate::used::{Logs, MIB, MIB_BLOCKS, PATIENCE, User, adopted, mount, mounting, site, within};

const OLD: Logs = Logs { every: 2, blocks: 6 * MIB_BLOCKS, physical: Sectors(1) };
const FILES: u8 = 9;

fn name(number: u8) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn content(number: u8) -> Vec<u8> {
    vec![number + 1; 700 * (1 + usize::from(number))]
}

/// A disk whose power was cut, with synced files in its logs.
fn used() -> Option<DiskImage> {
    let world = World::with_sectors(4, MIB, adopted(OLD)?, OLD.physical);
    let site = site(&world);
    let work = async move {
        let near = mount(&site).await;
        let user = User { site, near, rng: Rng::new(1) };
        for number in 0..FILES {
            let ino = user.file(&String::from_utf8(name(number)).unwrap()).await;
            // Twice, so that parts of blocks are logged too.
            for byte in [0, number + 1] {
                let bytes = vec![byte; content(number).len()];
                user.near.fs().write(ino, 0, bytes).await.unwrap();
                user.near.fs().sync(ino).await.unwrap();
            }
        }
    };
    within(&world, Nanos::from_secs(600), work).unwrap();
    Some(world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1)))
}

/// Calls `work` on the disk that writes larger sectors. Returns its result and the disk's content.
fn on_large<T: 'static, F: Future<Output = T> + 'static>(
    image: &DiskImage,
    work: impl FnOnce(Site) -> F,
) -> (T, DiskImage) {
    let world = World::with_sectors(5, MIB, image.clone(), Sectors(8));
    let done = within(&world, PATIENCE, work(site(&world))).expect("it ends");
    (done, world.settled())
}

fn fingerprint(image: &DiskImage) -> u64 {
    let mut image = image.clone();
    image.settle();
    image.fingerprint()
}

fn assert_plain_with_all_files(image: &DiskImage) {
    let report = manylogs_ext4check::check(&ImageSource::new(image, MIB)).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    let world = World::with_sectors(6, MIB, image.clone(), Sectors(8));
    let wrong = world.run(async |fs: Ext4| {
        let mut wrong = Vec::new();
        for number in 0..FILES {
            let ino = fs.lookup(Ino::ROOT, &name(number)).await.unwrap().ino;
            if fs.read(ino, 0, 100_000).await.unwrap() != content(number) {
                wrong.push(number);
            }
        }
        wrong
    });
    assert_eq!(wrong.unwrap(), [0_u8; 0]);
}

#[test]
fn it_is_not_damaged_and_says_what_it_is() {
    let Some(image) = used() else { return };
    let (looked, after) = on_large(&image, async |site| look(&site, &Volumes).await.unwrap());
    let LogState::InUse(logs) = looked.logs else { panic!("{looked:?}") };
    let (findings, _) = on_large(&image, async move |site| check_logs(&site, &logs).await.unwrap());
    // The volume was not closed.
    assert!(findings.iter().all(|found| found.severity == Severity::Note), "{findings:?}");
    let why = looked.refused.unwrap().to_string();
    assert!(why.contains("512 bytes") && why.contains("manylogs fs release"), "{why}");
    assert_eq!(fingerprint(&after), fingerprint(&image));
    let (refused, after) = on_large(&image, async |site| mounting(&site).await.map(drop));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, MountError::Marks(_)) && !refused.is_damage());
    let said = refused.to_string();
    for words in ["512 bytes", "4096", "Nothing is damaged", "manylogs fs release"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(fingerprint(&after), fingerprint(&image));
    for refused in [
        on_large(&image, async |site| open(&site, &Volumes).await.map(drop)),
        on_large(&image, async |site| repair(&site).await.map(drop)),
    ] {
        assert!(matches!(refused.0, Err(AdoptError::ShortSectors(_))), "{:?}", refused.0);
        assert_eq!(fingerprint(&refused.1), fingerprint(&image));
    }
}

#[test]
fn a_release_brings_everything_home_and_logs_can_be_made_anew() {
    let Some(image) = used() else { return };
    let (released, plain) = on_large(&image, async |site| release(&site, &Volumes).await);
    released.unwrap();
    assert_plain_with_all_files(&plain);
    let (mounted, _) = on_large(&plain, async |site| {
        adopt(&site, &manylogs_mlfs::adopt::LogLayout::default(), &Volumes).await.unwrap();
        mount(&site).await.unmount().await
    });
    mounted.unwrap();
}

/// The release is cut at each event of the disk, which tears nothing smaller than its sectors. Then
/// it is repeated.
#[test]
fn a_crash_in_that_release_loses_nothing() {
    let Some(image) = used() else { return };
    let mut events = 0;
    for event in (1..).step_by(3) {
        let world = World::with_sectors(event, MIB, image.clone(), Sectors(8));
        let ended = Rc::new(std::cell::Cell::new(false));
        let (done, site) = (Rc::clone(&ended), site(&world));
        world.sim.handle(world.user).spawn(async move {
            release(&site, &Volumes).await.unwrap();
            done.set(true);
        });
        world.sim.run_until(|| world.disk.events() >= event || ended.get());
        let left = world.disk.after_power_cut(Survival::Random, &mut Rng::new(event));
        let (again, plain) = on_large(&left, async |site| release(&site, &Volumes).await);
        assert!(matches!(again, Ok(()) | Err(AdoptError::NotAdopted)), "{event}: {again:?}");
        assert_plain_with_all_files(&plain);
        if ended.get() {
            break;
        }
        events += 1;
    }
    assert!(events > 20, "{events} states");
}

/// A disk that writes sectors larger than blocks gets no logs.
#[test]
fn sectors_larger_than_blocks_are_refused_and_nothing_is_changed() {
    let plain = manylogs_torture::ext4::has_program("mkfs.ext4")
        .then(|| manylogs_torture::ext4::mkfs(MIB, crate::used::OPTIONS).unwrap());
    let Some(image) = plain else { return };
    let world = World::with_sectors(5, MIB, image.clone(), Sectors(32));
    let site = site(&world);
    let layout = manylogs_mlfs::adopt::LogLayout::default();
    let adopting = async move { adopt(&site, &layout, &Volumes).await.map(drop) };
    let refused = within(&world, PATIENCE, adopting).unwrap();
    assert_eq!(refused, Err(AdoptError::LargeSectors { bytes: 16_384 }));
    assert_eq!(fingerprint(&world.settled()), fingerprint(&image));
    assert!(!image.read(Extent::new(2, 2)).is_empty());
}
