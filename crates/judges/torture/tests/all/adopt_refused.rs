//! What is refused on the way to MLFS and back, the state that a refusal leaves, and repairs.

use std::rc::Rc;

use manylogs_block::Lba;
use manylogs_ext4::{
    Copies, Ext4, FileKind, Ino, LOG_FILE_NAME, LogFile, New, Pointer, Stage, Wanted,
};
use manylogs_mlfs::adopt::{
    AdoptError, Adopted, LogLayout, LogState, Site, Spacing, adopt, look, open, release,
};
use manylogs_sim::DiskImage;
use manylogs_torture::Roots;
use manylogs_torture::ext4::{SMALL_MIB, SMALL_OPTIONS, World, has_program, mkfs};

/// One log of at most 64 blocks in each group.
const LAYOUT: LogLayout =
    LogLayout { spacing: Spacing::Groups(1), wanted: Wanted { most: 64, least: 16 } };

/// A new file system; `None` if mkfs.ext4 is missing, which is reported.
fn image() -> Option<DiskImage> {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return None;
    }
    Some(mkfs(SMALL_MIB, &[SMALL_OPTIONS, &["-G", "4"]].concat()).unwrap())
}

/// Calls `work` with a disk that holds `image`. Returns its result and the disk's content.
fn on<T: 'static, F: Future<Output = T> + 'static>(
    image: &DiskImage,
    work: impl FnOnce(Site) -> F,
) -> (T, DiskImage) {
    let world = World::new(7, SMALL_MIB, image.clone());
    let site = Site::new(Rc::new(world.disk.clone()), world.runtime());
    let result = world.sim.block_on(world.user, work(site));
    let mut image = world.settled();
    image.settle();
    (result, image)
}

async fn copies(site: &Site) -> Copies {
    Copies::read(Rc::clone(&site.device)).await.unwrap()
}

fn adopted(image: &DiskImage) -> (Adopted, DiskImage) {
    let (adopted, image) = on(image, async |site| adopt(&site, &LAYOUT, &Roots).await);
    (adopted.unwrap(), image)
}

/// The reason why the file system cannot be opened.
fn refusal(image: &DiskImage) -> AdoptError {
    on(image, async |site| open(&site, &Roots).await).0.unwrap_err()
}

fn released(image: &DiskImage) -> DiskImage {
    let (released, image) = on(image, async |site| release(&site, &Roots).await);
    released.unwrap();
    image
}

/// Checks that it is ext4 without marks and without a log file.
fn assert_plain(image: &DiskImage) {
    let world = World::new(8, SMALL_MIB, image.clone());
    let found = world.run(async |fs: Ext4| fs.log_file().await).unwrap();
    assert_eq!(found, Ok(None));
    let (marks, _) = on(image, async |site| copies(&site).await.marks());
    assert_eq!((marks.pointer, marks.primary, marks.torn), (None, false, false));
    assert!(marks.backups_with.is_empty());
}

/// The image after other programs have changed it in spite of the bit.
fn changed_by_others(image: &DiskImage, change: impl AsyncFnOnce(Ext4) + 'static) -> DiskImage {
    let (pointer, image) = on(image, async |site| {
        let mut copies = copies(&site).await;
        let pointer = copies.marks().pointer;
        copies.mark_primary(pointer, false).await.unwrap();
        pointer
    });
    let world = World::new(9, SMALL_MIB, image);
    let changed = world.run(async move |fs: Ext4| {
        change(fs.clone()).await;
        fs.unmount().await
    });
    changed.unwrap().unwrap();
    on(&world.settled(), async move |site| {
        copies(&site).await.mark_primary(pointer, true).await.unwrap();
    })
    .1
}

#[test]
fn a_log_file_is_immutable_unwritten_and_where_its_pointer_says() {
    let Some(image) = image() else { return };
    let (adopted, image) = adopted(&image);
    // One of the six groups is the journal's.
    assert_eq!(adopted.logs.runs.len(), 5);
    assert!(adopted.logs.runs.iter().all(|run| run.blocks == 64) && !adopted.went_on);
    // These are the last 64 blocks of each group of 1024, where they are free.
    assert!(adopted.logs.runs.iter().filter(|run| run.range().end % 1024 == 0).count() >= 4);
    let (read, image) = on(&image, async |site| {
        let pointer = copies(&site).await.marks().pointer.unwrap();
        LogFile::read(&site.device, &site.runtime, pointer.ino.unwrap()).await
    });
    let file = read.unwrap();
    assert!(file.is_immutable && file.runs == adopted.logs.runs);
    assert_eq!(refused_mount(&image), manylogs_ext4::Refusal::Adopted.into());
    let (again, image) = on(&image, async |site| adopt(&site, &LAYOUT, &Roots).await);
    assert_eq!(again, Err(AdoptError::AlreadyAdopted));
    assert_plain(&released(&image));
}

fn refused_mount(image: &DiskImage) -> manylogs_ext4::Error {
    World::new(1, SMALL_MIB, image.clone()).run(async |_| ()).unwrap_err()
}

#[test]
fn plain_ext4_has_nothing_to_give_back_and_is_not_opened() {
    let Some(image) = image() else { return };
    let (plain, after) = on(&image, async |site| release(&site, &Roots).await);
    assert_eq!(plain, Err(AdoptError::NotAdopted));
    assert_eq!(after.fingerprint(), image.fingerprint());
    assert_eq!(refusal(&image), AdoptError::NotAdopted);
}

#[test]
fn without_room_or_name_it_stays_the_ext4_that_it_was() {
    let Some(image) = image() else { return };
    let layout = LogLayout { wanted: Wanted { most: 4000, least: 2000 }, ..LAYOUT };
    let (refused, after) = on(&image, async move |site| adopt(&site, &layout, &Roots).await);
    let said = refused.unwrap_err().to_string();
    for words in ["a free run of 7.8 MiB", "the longest is", "MiB, blocks ", "remove or move"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(after.fingerprint(), image.fingerprint());

    let world = World::new(2, SMALL_MIB, image);
    let made = world.run(async |fs: Ext4| {
        let new = New::plain(FileKind::File, 0o600);
        let made = fs.create(Ino::ROOT, LOG_FILE_NAME, new).await.unwrap();
        fs.write(made.ino, 0, vec![7; 5000]).await.unwrap();
        fs.unmount().await
    });
    made.unwrap().unwrap();
    let mut image = world.settled();
    image.settle();
    let (refused, after) = on(&image, async |site| adopt(&site, &LAYOUT, &Roots).await);
    assert_eq!(refused, Err(AdoptError::NameTaken));
    assert_eq!(after.fingerprint(), image.fingerprint());
}

#[test]
fn a_file_system_that_was_not_unmounted_is_refused() {
    let Some(image) = image() else { return };
    let world = World::new(3, SMALL_MIB, image);
    world.run(async |fs: Ext4| fs.sync_all().await).unwrap().unwrap();
    let (refused, _) = on(&world.settled(), async |site| adopt(&site, &LAYOUT, &Roots).await);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("e2fsck -p"), "{said}");
}

#[test]
fn logs_that_others_moved_changed_or_removed_are_not_opened() {
    let Some(image) = image() else { return };
    let (adopted, image) = adopted(&image);
    // As after a shrink by resize2fs: the file exists, but its blocks are others.
    let (ino, image) = on(&image, async |site| {
        let mut copies = copies(&site).await;
        let pointer = copies.marks().pointer.unwrap();
        let moved = Pointer { map_sum: pointer.map_sum ^ 1, ..pointer };
        copies.mark_primary(Some(moved), true).await.unwrap();
        pointer.ino.unwrap()
    });
    assert!(matches!(refusal(&image), AdoptError::LogsMoved("its blocks are others")));
    let (kept, _) = on(&image, async |site| release(&site, &Roots).await);
    assert!(matches!(kept, Err(AdoptError::LogsMoved(_))), "what the logs hold must not get lost");
    let (again, _) = on(&image, async |site| adopt(&site, &LAYOUT, &Roots).await);
    assert_eq!(again, Err(AdoptError::AlreadyAdopted));

    let loose = changed_by_others(&image, async move |fs: Ext4| {
        let flags = fs.inode_flags(ino).await.unwrap();
        fs.set_inode_flags(ino, flags & !0x10).await.unwrap();
    });
    assert!(matches!(refusal(&loose), AdoptError::LogsMoved("its inode is no log file")));
    let gone = changed_by_others(&image, async |fs: Ext4| fs.remove_log_file().await.unwrap());
    assert!(matches!(refusal(&gone), AdoptError::LogsMoved(_)));
    let (seen, _) = on(&gone, async |site| look(&site, &Roots).await);
    assert!(matches!(seen.unwrap().logs, LogState::Unusable(AdoptError::LogsMoved(_))));

    // Without the bit, others have used it as ext4: the remaining marks are cleared.
    let (_, used) = on(&gone, async |site| {
        let mut copies = copies(&site).await;
        let pointer = copies.marks().pointer;
        copies.mark_primary(pointer, false).await.unwrap();
    });
    assert_eq!(refusal(&used), AdoptError::UsedSince);
    assert_plain(&released(&used));
    assert!(adopted.logs.blocks() > 0);
}

#[test]
fn a_bit_that_was_taken_away_from_logs_in_use_is_noticed() {
    let Some(image) = image() else { return };
    let (adopted, image) = adopted(&image);
    let logs = adopted.logs;
    let (_, image) = on(&image, async move |site| {
        Roots.note(&site, &logs, false).await.unwrap();
        let mut copies = copies(&site).await;
        let pointer = copies.marks().pointer;
        copies.mark_primary(pointer, false).await.unwrap();
    });
    assert_eq!(refusal(&image), AdoptError::BitTakenAway);
    let (refused, _) = on(&image, async |site| release(&site, &Roots).await);
    assert_eq!(refused, Err(AdoptError::BitTakenAway));
}

#[test]
fn bits_in_some_copies_only_are_completed_or_cleared() {
    let Some(image) = image() else { return };
    let (_, image) = on(&image, async |site| copies(&site).await.mark_backups(true).await.unwrap());
    assert_plain(&released(&image));
    let (again, whole) = on(&image, async |site| adopt(&site, &LAYOUT, &Roots).await);
    assert!(again.is_ok());
    let (_, partly) = on(&whole, async |site| {
        copies(&site).await.mark_backups(false).await.unwrap();
    });
    let (marks, _) = on(&partly, async |site| copies(&site).await.marks());
    assert!(!marks.are_complete() && !marks.backups_without.is_empty());
    let (opened, image) = on(&partly, async |site| open(&site, &Roots).await);
    opened.unwrap();
    let (marks, _) = on(&image, async |site| copies(&site).await.marks());
    assert!(marks.are_complete());
}

#[test]
fn a_torn_superblock_is_mended_and_a_damaged_one_is_not() {
    let Some(image) = image() else { return };
    let (_, image) = adopted(&image);
    let sector = |lba| match image.durable(Lba(lba)) {
        manylogs_block::Sector::Bytes(bytes) => bytes.to_vec(),
        _ => vec![0; 512],
    };
    // The first sector of the superblock is from another time: it has other free inodes.
    let with = |at: usize| {
        let mut bytes = sector(2);
        bytes[at] ^= 1;
        let mut torn = image.clone();
        torn.corrupt(Lba(2), manylogs_block::Sector::Bytes(bytes.into()));
        torn
    };
    let torn = with(0x10);
    let (seen, _) = on(&torn, async |site| look(&site, &Roots).await);
    assert!(seen.unwrap().marks.torn);
    let (opened, mended) = on(&torn, async |site| open(&site, &Roots).await);
    opened.unwrap();
    let (marks, _) = on(&mended, async |site| copies(&site).await.marks());
    assert!(!marks.torn && marks.are_complete());
    // Another number of blocks is not a tear.
    let (damaged, _) = on(&with(0x4), async |site| open(&site, &Roots).await);
    assert!(matches!(damaged, Err(AdoptError::FileSystem(_))), "{damaged:?}");
}

#[test]
fn an_interrupted_take_over_goes_on_with_another_layout() {
    let Some(image) = image() else { return };
    let world = World::new(11, SMALL_MIB, image);
    let site = Site::new(Rc::new(world.disk.clone()), world.runtime());
    world.sim.handle(world.user).spawn(async move { drop(adopt(&site, &LAYOUT, &Roots).await) });
    world.sim.run_until(|| world.disk.events() >= 60);
    let image = world.disk.after_kill(&mut manylogs_block::Rng::new(5));
    let (marks, image) = on(&image, async |site| copies(&site).await.marks());
    assert_eq!(marks.pointer.map(|pointer| pointer.stage), Some(Stage::TakingOver));
    assert!(matches!(refusal(&image), AdoptError::Interrupted(..)));
    let layout = LogLayout { spacing: Spacing::Groups(3), ..LAYOUT };
    let (went_on, image) = on(&image, async move |site| adopt(&site, &layout, &Roots).await);
    let went_on = went_on.unwrap();
    assert!(went_on.went_on);
    // One log in every third of the six groups; the journal takes one of these.
    assert_eq!(went_on.logs.runs.len(), 1);
    assert_eq!((went_on.logs.runs[0].start.0 / 1024 + 1) % 3, 0);
    assert_plain(&released(&image));
}
