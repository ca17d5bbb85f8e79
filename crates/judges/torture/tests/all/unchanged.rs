//! A refusal changes nothing: every byte of the disk stays the same.

use std::rc::Rc;

use manylogs_block::{Rng, Sectors};
use manylogs_ext4::{Copies, Corruption, Ext4, FileKind, Ino, Location, New};
use manylogs_mlfs::adopt::{Site, Volumes, adopt, open, release, repair};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{ImageSource, World, e2fsck, has_program, load, save};

use crate::used::{Logs, MIB, MIB_BLOCKS, PATIENCE, adopted, mount, mounting, site, within};

const LOGS: Logs = Logs { every: 2, blocks: 6 * MIB_BLOCKS, physical: Sectors(8) };

fn on<T: 'static, F: Future<Output = T> + 'static>(
    image: &DiskImage,
    work: impl FnOnce(Site) -> F,
) -> (T, DiskImage) {
    let world = World::with_sectors(5, MIB, image.clone(), LOGS.physical);
    let done = within(&world, PATIENCE, work(site(&world))).expect("it ends");
    (done, world.settled())
}

/// The image with the bit set to `bit` in every copy.
fn with_bit(image: &DiskImage, bit: bool) -> DiskImage {
    let work = async move |site: Site| {
        let mut copies = Copies::read(Rc::clone(&site.device)).await.unwrap();
        let pointer = copies.marks().pointer;
        copies.mark_backups(bit).await.unwrap();
        copies.mark_primary(pointer, bit).await.unwrap();
    };
    on(image, work).1
}

fn with_errors(image: &DiskImage) -> DiskImage {
    let work = async move |site: Site| {
        Copies::read(Rc::clone(&site.device)).await.unwrap().mark_errors().await.unwrap();
    };
    on(image, work).1
}

/// The kernel mounts it without the bit, and the machine dies.
fn crashed_under_the_kernel(image: &DiskImage) -> DiskImage {
    let world = World::with_sectors(6, MIB, with_bit(image, false), LOGS.physical);
    let made = world.run(async |fs: Ext4| {
        fs.create(Ino::ROOT, b"of the kernel", New::plain(FileKind::File, 0o600)).await.unwrap();
        fs.sync_all().await
    });
    made.unwrap().unwrap();
    world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1))
}

/// Checks that `work` is refused with these words, and leaves every byte as it is.
fn refused<T: 'static, F: Future<Output = Result<T, String>> + 'static>(
    image: &DiskImage,
    words: &str,
    work: impl FnOnce(Site) -> F,
) {
    let (result, after) = on(image, work);
    let said = result.err().unwrap_or_else(|| panic!("not refused: {words}"));
    assert!(said.contains(words), "{said}");
    let (mut before, mut after) = (image.clone(), after);
    before.settle();
    after.settle();
    assert_eq!(before.fingerprint(), after.fingerprint(), "{said}");
}

fn text<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn mount_is_refused(image: &DiskImage, words: &str) {
    refused(image, words, async |site| text(mounting(&site).await.map(drop)));
}

fn an_image() -> Option<DiskImage> {
    has_program("e2fsck").then(|| adopted(LOGS)).flatten()
}

fn after_an_emergency() {
    let Some(image) = an_image() else { return };
    let crashed = crashed_under_the_kernel(&image);
    mount_is_refused(&crashed, "run e2fsck -fp, and mount it again");
    refused(&crashed, "e2fsck -fp", async |site| text(open(&site, &Volumes).await));
    refused(&crashed, "e2fsck -fp", async |site| text(repair(&site).await.map(drop)));
    refused(&crashed, "e2fsck -fp", async |site| {
        text(adopt(&site, &manylogs_mlfs::adopt::LogLayout::default(), &Volumes).await)
    });
    mount_is_refused(&with_errors(&with_bit(&image, false)), "e2fsck");
}

#[test]
fn what_the_kernel_left_after_an_emergency_is_refused_as_it_is() {
    after_an_emergency();
}

#[test]
fn the_advice_helps() {
    let Some(image) = an_image() else { return };
    let crashed = crashed_under_the_kernel(&image);
    // As the text says: e2fsck accepts it, and a mount goes on.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    save(&crashed, MIB, &path).unwrap();
    let said = e2fsck(&["-fp"], &path);
    assert!([0, 1].contains(&said.code), "{said}");
    let (found, _) = on(&load(&path).unwrap(), async |site| {
        let near = mount(&site).await;
        let found = near.fs().lookup(Ino::ROOT, b"of the kernel").await.is_ok();
        near.unmount().await.unwrap();
        release(&site, &Volumes).await.unwrap();
        found
    });
    assert!(found);
    // Or it is released as it is. That also works if a program has set the bit again.
    mount_is_refused(&with_bit(&crashed, true), "manylogs fs release does that");
    for image in [with_bit(&crashed, true), crashed] {
        let (released, plain) = on(&image, async |site| release(&site, &Volumes).await);
        released.unwrap();
        let report = manylogs_ext4check::check(&ImageSource::new(&plain, MIB)).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

#[test]
fn errors_are_found_before_anything_is_written() {
    let Some(image) = an_image() else { return };
    let errors = with_errors(&image);
    mount_is_refused(&errors, "manylogs fs release, run e2fsck -f");
    // Marks that a crash left missing are not completed either.
    let partly = on(&errors, async |site| {
        let mut copies = Copies::read(Rc::clone(&site.device)).await.unwrap();
        copies.mark_backups(false).await.unwrap();
    });
    mount_is_refused(&partly.1, "errors were found");
    // The same if only the logs know of the errors.
    let world = World::with_sectors(6, MIB, image, LOGS.physical);
    let site = site(&world);
    let noting = async move {
        let near = mount(&site).await;
        let place = Location::Superblock;
        near.fs().note_damage(&Corruption { place, what: "noted by a test" });
        near.unmount().await.unwrap();
    };
    within(&world, PATIENCE, noting).unwrap();
    mount_is_refused(&world.settled(), "errors were found");
}

#[cfg(feature = "plant")]
#[test]
fn planted_marks_before_checks_are_noticed() {
    use manylogs_plant::{MLFS_UNCHANGED, plant};

    if an_image().is_none() {
        return;
    }
    for bug in MLFS_UNCHANGED {
        plant(Some(*bug));
        let noticed = std::panic::catch_unwind(after_an_emergency).is_err();
        plant(None);
        assert!(noticed, "{bug:?}");
    }
}
