//! Logs of an adopted file system that can no longer be written or read, case by case.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use std::rc::Rc;

use manylogs::{Health, Severity};
use manylogs_block::{Extent, Handle, IoError, Lba, Nanos, Request, Rng};
use manylogs_ext4::{Error, FileKind, Ino, New, Wanted};
use manylogs_mlfs::adopt::{
    AdoptError, LogLayout, Logs, Repaired, Site, Spacing, Volumes, adopt, check_logs, open,
    release, repair,
};
use manylogs_near::{Near, NearError, NearOptions};
use manylogs_sim::{CrashDisk, DiskImage, Survival};
use manylogs_torture::ext4::{
    ImageSource, SMALL_MIB, SMALL_OPTIONS, World, content, e2fsck, has_program, load, mkfs,
    options, save,
};

/// One log of about 3 MiB in each group that has room for it.
const LAYOUT: LogLayout =
    LogLayout { spacing: Spacing::Groups(1), wanted: Wanted { most: 900, least: 780 } };
/// Number of files, each synced after it was made.
const FILES: u64 = 12;
/// Length of each file: runs of this length are logged.
const LEN: usize = 8192;
/// Sectors of a block.
const BLOCK: u64 = 8;
/// Longer than any pause of a checkpoint and the time in which a medium error is confirmed.
const LONG: Nanos = Nanos::from_secs(400);

/// An adopted file system that is still unused.
fn adopted() -> Option<DiskImage> {
    if !["mkfs.ext4", "e2fsck"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return None;
    }
    let image = mkfs(SMALL_MIB, &[SMALL_OPTIONS, &["-G", "4"]].concat()).unwrap();
    let world = World::new(1, SMALL_MIB, image);
    at(&world, async |site| adopt(&site, &LAYOUT, &Volumes).await).unwrap();
    Some(world.settled())
}

fn at<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    work: impl FnOnce(Site) -> F,
) -> T {
    let site = Site::new(Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, work(site))
}

async fn mount(site: &Site) -> Result<Near, String> {
    let opened = open(site, &Volumes).await.map_err(|error| error.to_string())?;
    let open = Volumes::open_options(&opened.logs).unwrap();
    let (near, device) = (NearOptions { open, ..NearOptions::default() }, Rc::clone(&site.device));
    let mounted = Near::mount(site.runtime.clone(), device, &near, options(site.runtime.clone()));
    mounted.await.map(|(near, _)| near).map_err(|error: NearError| error.to_string())
}

fn name(number: u64) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

async fn make(near: &Near, number: u64) -> Result<(), Error> {
    let new = New::plain(FileKind::File, 0o644);
    let ino = near.fs().create(Ino::ROOT, &name(number), new).await?.ino;
    near.fs().write(ino, 0, content(number, LEN)).await?;
    near.fs().sync(ino).await
}

async fn read(near: &Near, number: u64) -> Result<bool, Error> {
    let ino = near.fs().lookup(Ino::ROOT, &name(number)).await?.ino;
    Ok(near.fs().read(ino, 0, LEN + 1).await? == content(number, LEN))
}

/// The files whose content differs from the one synced.
async fn wrong(near: &Near) -> Vec<u64> {
    let mut wrong = Vec::new();
    for number in 0..FILES {
        if read(near, number).await != Ok(true) {
            wrong.push(number);
        }
    }
    wrong
}

/// Makes the files, and cuts the power.
fn crashed(image: &DiskImage) -> (DiskImage, Vec<Extent>) {
    let world = World::new(2, SMALL_MIB, image.clone());
    let logs = at(&world, async |site| {
        let near = mount(&site).await.unwrap();
        for number in 0..FILES {
            make(&near, number).await.unwrap();
        }
        near.volume().layout().regions().to_vec()
    });
    (world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1)), logs)
}

/// The files whose content on a plain ext4 differs from the one synced.
fn wrong_in_plain(image: &DiskImage) -> Vec<u64> {
    let world = World::new(5, SMALL_MIB, image.clone());
    let found = world.run(async |fs| {
        let mut wrong = Vec::new();
        for number in 0..FILES {
            let found = match fs.lookup(Ino::ROOT, &name(number)).await {
                Ok(found) => fs.read(found.ino, 0, LEN + 1).await,
                Err(error) => Err(error),
            };
            if found.is_ok_and(|found| found != content(number, LEN)) {
                wrong.push(number);
            }
        }
        wrong
    });
    found.unwrap()
}

/// Sectors of the logs that begin with `wanted`.
fn places(image: &DiskImage, logs: &[Extent], wanted: &[u8]) -> Vec<Lba> {
    let holds = |lba: &u64| {
        let found = image.read(Extent::new(*lba, 1)).to_bytes();
        found.is_some_and(|found| found.starts_with(wanted))
    };
    logs.iter().flat_map(|log| log.range()).filter(holds).map(Lba).collect()
}

/// Makes the first physical sector that begins at or after `at` unreadable.
fn make_unreadable(image: &mut DiskImage, at: Lba) {
    let start = at.0.next_multiple_of(BLOCK);
    (start..start + BLOCK).for_each(|lba| image.make_unreadable(Lba(lba)));
}

/// Makes a part of a file's only copy unreadable.
fn lose_content(image: &mut DiskImage, logs: &[Extent], number: u64) {
    let [only] = places(image, logs, &content(number, LEN)[..512])[..] else { panic!("one copy") };
    make_unreadable(image, only);
}

/// Leaves MLFS as a user would: releases, lets e2fsck repair, releases again.
fn left_for_ext4(image: &DiskImage) -> DiskImage {
    let world = World::new(6, SMALL_MIB, image.clone());
    let refused = at(&world, async |site| release(&site, &Volumes).await);
    assert_eq!(refused, Err(AdoptError::HasErrors));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    save(&world.settled(), SMALL_MIB, &path).unwrap();
    let said = e2fsck(&["-fy"], &path);
    assert!([0, 1].contains(&said.code), "{said}");
    let world = World::new(7, SMALL_MIB, load(&path).unwrap());
    at(&world, async |site| release(&site, &Volumes).await).unwrap();
    let settled = world.settled();
    let report = manylogs_ext4check::check(&ImageSource::new(&settled, SMALL_MIB)).unwrap();
    assert!(report.is_spotless(), "{:?}", report.findings);
    settled
}

/// Makes writes to the logs fail from now on.
fn fail_writes(disk: &CrashDisk, logs: Vec<Extent>) {
    disk.fail_requests(Box::new(move |request| match request {
        Request::Write { extent, .. } if logs.iter().any(|log| log.overlaps(*extent)) => {
            Some(IoError::Medium { extent: *extent })
        }
        _ => None,
    }));
}

/// The log to which records go.
fn log_in_use(near: &Near) -> Extent {
    let logs = near.volume().log_occupancy();
    logs.iter().max_by_key(|log| log.used).unwrap().region
}

#[test]
fn a_log_that_cannot_be_written_is_given_up_and_nothing_is_lost() {
    let Some(image) = adopted() else { return };
    let world = World::new(3, SMALL_MIB, image);
    let disk = world.disk.clone();
    at(&world, async move |site| {
        let near = mount(&site).await.unwrap();
        make(&near, 0).await.unwrap();
        let bad = log_in_use(&near);
        fail_writes(&disk, vec![bad]);
        let flushes = near.fs().journal_stats().flushes;
        for number in 1..FILES {
            make(&near, number).await.unwrap();
        }
        assert_eq!(near.volume().stats().retired_logs, 1);
        assert_eq!(near.volume().health(), Health::Degraded);
        assert_eq!(near.fs().journal_stats().flushes, flushes, "no sync costs a flush");
    });
    let image = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    let world = World::new(4, SMALL_MIB, image);
    at(&world, async |site| {
        let near = mount(&site).await.unwrap();
        assert_eq!(near.volume().stats().retired_logs, 1);
        assert_eq!(wrong(&near).await, [0_u64; 0]);
        near.unmount().await.unwrap();
        release(&site, &Volumes).await.unwrap();
    });
    assert_eq!(wrong_in_plain(&world.settled()), [0_u64; 0]);
}

#[test]
fn without_any_log_nothing_is_changed_and_what_was_synced_goes_home() {
    let Some(image) = adopted() else { return };
    let world = World::new(3, SMALL_MIB, image);
    let disk = world.disk.clone();
    at(&world, async move |site| {
        let near = mount(&site).await.unwrap();
        for number in 0..FILES {
            make(&near, number).await.unwrap();
        }
        let logs = near.volume().layout().regions().to_vec();
        fail_writes(&disk, logs);
        assert!(matches!(make(&near, FILES).await, Err(Error::Io(_) | Error::Aborted(_))));
        assert!(matches!(make(&near, FILES + 1).await, Err(Error::Aborted(_))));
        assert_eq!(wrong(&near).await, [0_u64; 0]);
    });
    let image = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    let world = World::new(4, SMALL_MIB, image);
    at(&world, async |site| release(&site, &Volumes).await).unwrap();
    assert_eq!(wrong_in_plain(&world.settled()), [0_u64; 0]);
}

/// Checks logs that cannot be read for a while, not even by a checkpoint.
fn passing(of: fn(Extent) -> IoError, heals_after: Nanos) {
    let Some(image) = adopted() else { return };
    let (image, logs) = crashed(&image);
    let world = World::new(3, SMALL_MIB, image);
    let disk = world.disk.clone();
    at(&world, async move |site| {
        let near = mount(&site).await.unwrap();
        let clock: Handle = site.runtime.clone();
        let heals_at = clock.now() + heals_after;
        disk.fail_requests(Box::new(move |request| match request {
            Request::Read { extent } if logs.iter().any(|log| log.overlaps(*extent)) => {
                (clock.now() < heals_at).then(|| of(*extent))
            }
            _ => None,
        }));
        let report = near.volume().checkpoint().await.unwrap();
        assert!(report.unread_extents > 0, "{report:?}");
        // Reads may fail, but never return older content.
        for number in 0..FILES {
            assert!(matches!(read(&near, number).await, Ok(true) | Err(Error::Io(_))));
        }
        site.runtime.sleep(LONG).await;
        let stats = near.volume().stats();
        assert_eq!((stats.lost_extents, stats.unread_extents), (0, 0));
        assert_eq!(wrong(&near).await, [0_u64; 0]);
        near.unmount().await.unwrap();
        release(&site, &Volumes).await.unwrap();
    });
    assert_eq!(wrong_in_plain(&world.settled()), [0_u64; 0]);
}

#[test]
fn a_log_that_cannot_be_read_for_a_while_loses_nothing() {
    passing(|extent| IoError::Medium { extent }, Nanos::from_secs(30));
    passing(|extent| IoError::Transient { extent }, Nanos::from_secs(300));
}

#[test]
fn content_whose_only_copy_is_on_a_bad_medium_fails_to_read_and_nothing_else() {
    let Some(image) = adopted() else { return };
    let (mut image, logs) = crashed(&image);
    lose_content(&mut image, &logs, 5);
    let world = World::new(3, SMALL_MIB, image);
    let lost = at(&world, async |site| {
        let near = mount(&site).await.unwrap();
        assert_eq!(wrong(&near).await, [5]);
        assert!(matches!(read(&near, 5).await, Err(Error::Io(_))));
        near.volume().checkpoint().await.unwrap();
        site.runtime.sleep(LONG).await;
        // The range of one checksum, and its neighbour.
        assert!((1..=2).contains(&near.volume().stats().lost_extents));
        // The loss stays, and does not turn into older content.
        assert!(matches!(read(&near, 5).await, Err(Error::Io(_))));
        near.unmount().await.unwrap();
        let refused = release(&site, &Volumes).await;
        assert!(matches!(refused, Err(AdoptError::Damaged(_))), "{refused:?}");
        let repaired = repair(&site).await.unwrap();
        assert!(repaired.has_errors);
        repaired.lost
    });
    let lost: u64 = lost.iter().map(|extent| extent.len.0).sum();
    assert!((1..=LEN as u64 / 512).contains(&lost), "{lost} sectors");
    assert_eq!(wrong_in_plain(&left_for_ext4(&world.settled())), [5]);
}

#[test]
fn content_that_is_lost_can_be_written_again() {
    let Some(image) = adopted() else { return };
    let (mut image, logs) = crashed(&image);
    lose_content(&mut image, &logs, 5);
    let world = World::new(3, SMALL_MIB, image);
    at(&world, async |site| {
        let near = mount(&site).await.unwrap();
        let ino = near.fs().lookup(Ino::ROOT, &name(5)).await.unwrap().ino;
        near.fs().write(ino, 0, content(5, LEN)).await.unwrap();
        near.fs().sync(ino).await.unwrap();
        assert_eq!(wrong(&near).await, [0_u64; 0]);
        near.unmount().await.unwrap();
        release(&site, &Volumes).await.unwrap();
    });
    assert_eq!(wrong_in_plain(&world.settled()), [0_u64; 0]);
}

/// An image with a record that cannot be found any more, because its header is bad.
fn headless(image: &DiskImage) -> DiskImage {
    let (mut image, logs) = crashed(image);
    let headers = places(&image, &logs, b"MLOGREC1");
    assert!(headers.len() as u64 >= FILES, "{} records", headers.len());
    make_unreadable(&mut image, headers[headers.len() / 2]);
    image
}

async fn logs_of(site: &Site) -> Logs {
    open(site, &Volumes).await.unwrap().logs
}

#[test]
fn where_a_record_began_on_a_bad_medium_mounts_are_refused_until_a_repair() {
    let Some(image) = adopted() else { return };
    let world = World::new(3, SMALL_MIB, headless(&image));
    at(&world, async |site| {
        let refused = mount(&site).await.unwrap_err();
        assert!(refused.contains("fs check"), "{refused}");
        assert!(matches!(release(&site, &Volumes).await, Err(AdoptError::Damaged(_))));
        let findings = check_logs(&site, &logs_of(&site).await).await.unwrap();
        assert!(findings.iter().any(|finding| finding.severity == Severity::Loss));
        let Repaired { has_errors, findings, .. } = repair(&site).await.unwrap();
        assert!(has_errors && findings.iter().any(|found| found.severity == Severity::Loss));
        let refused = mount(&site).await.unwrap_err();
        assert!(refused.contains("errors were found"), "{refused}");
        // A second repair has nothing to do.
        let again = repair(&site).await.unwrap();
        assert!(!again.has_errors && again.lost.is_empty());
    });
    let wrong = wrong_in_plain(&left_for_ext4(&world.settled()));
    assert!(wrong.len() <= 1, "{wrong:?}");
}

/// Repairs, and crashes at each event of the disk. Returns the events after which the file system
/// can be mounted as if nothing had been lost.
fn mountable_after_a_crash_in_a_repair(image: &DiskImage) -> Vec<u64> {
    let mut mountable = Vec::new();
    for event in 1.. {
        let world = World::new(event, SMALL_MIB, image.clone());
        let site = Site::new(Rc::new(world.disk.clone()), world.runtime());
        let ended = Rc::new(std::cell::Cell::new(false));
        let done = Rc::clone(&ended);
        world.sim.handle(world.user).spawn(async move {
            repair(&site).await.unwrap();
            done.set(true);
        });
        world.sim.run_until(|| world.disk.events() >= event || ended.get());
        let survival = [Survival::Nothing, Survival::Random][usize::from(event % 2 == 0)];
        let left = world.disk.after_power_cut(survival, &mut Rng::new(event));
        let world = World::new(event, SMALL_MIB, left);
        let refused = at(&world, async |site| mount(&site).await.map(drop));
        if refused.is_ok() {
            mountable.push(event);
        } else {
            // A second repair goes on, and must also leave no file system that can be mounted.
            let world = World::new(event, SMALL_MIB, world.settled());
            at(&world, async |site| {
                repair(&site).await.unwrap();
                mount(&site).await.unwrap_err();
            });
        }
        if ended.get() {
            println!("{event} events");
            return mountable;
        }
    }
    mountable
}

#[test]
fn a_crash_in_a_repair_never_hides_a_loss() {
    let Some(image) = adopted() else { return };
    assert_eq!(mountable_after_a_crash_in_a_repair(&headless(&image)), [0_u64; 0]);
}

#[cfg(feature = "plant")]
#[test]
fn planted_a_repair_that_notes_no_loss_is_noticed() {
    use manylogs_plant::{MLFS_REPAIR, plant};

    let Some(image) = adopted() else { return };
    let image = headless(&image);
    for bug in MLFS_REPAIR {
        plant(Some(*bug));
        let noticed = std::panic::catch_unwind(|| mountable_after_a_crash_in_a_repair(&image));
        plant(None);
        assert!(noticed.is_err() || noticed.is_ok_and(|found| !found.is_empty()), "{bug:?}");
    }
}
