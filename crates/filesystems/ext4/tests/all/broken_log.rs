//! A journal with a damaged block: nothing of it is lost silently.

use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, e2fsck, image_dir, load, mkfs, mount_in, save};
use crate::lazy::{check_tree, left_full, make_tree, run_in};
use manylogs_block::{Extent, Lba, Nanos, Rng, Sector};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, JournalLoss, JournalRepaired, Mode, New};
use manylogs_ext4check::{BLOCK_BYTES, BlockNo, Source, Target};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{
    ImageSource, RawBlock, RawKind, RawLog, SMALL_OPTIONS, flipped, options,
};

/// The log that [`left_full`] leaves, without its saved map; `None` without mkfs.
fn full() -> Option<(DiskImage, RawLog)> {
    let (mut image, log) = full_with_map()?;
    set_note(&mut image, &log, &[0; NOTE.end - NOTE.start]);
    Some((image, log))
}

/// The log that [`left_full`] leaves; `None` without mkfs.
pub(crate) fn full_with_map() -> Option<(DiskImage, RawLog)> {
    let image = left_full()?.settled();
    let log = RawLog::of(&image, SMALL_MIB).unwrap();
    assert!(log.blocks.len() > 100, "{}", log.blocks.len());
    Some((image, log))
}

/// The note of a saved map, in bytes of the third sector of the journal.
const NOTE: std::ops::Range<usize> = 8..48;

/// The note of a saved map.
pub(crate) fn note(image: &DiskImage, log: &RawLog) -> Vec<u8> {
    let sector = Extent::new(log.superblock * 8 + 2, 1);
    image.read(sector).to_bytes().unwrap()[NOTE].to_vec()
}

/// Writes the note of a saved map.
pub(crate) fn set_note(image: &mut DiskImage, log: &RawLog, note: &[u8]) {
    let at = log.superblock * 8 + 2;
    let mut bytes = image.read(Extent::new(at, 1)).to_bytes().unwrap().to_vec();
    bytes[NOTE].copy_from_slice(note);
    image.corrupt(Lba(at), Sector::Bytes(bytes.into()));
}

pub(crate) fn with_flipped(image: &DiskImage, block: &RawBlock) -> DiskImage {
    flipped(image, SMALL_MIB, block.place, &mut Rng::new(u64::from(block.at)))
}

/// A block of a transaction in the middle of the log.
pub(crate) fn middle(log: &RawLog, kind: impl Fn(RawKind) -> bool) -> RawBlock {
    let half = log.blocks.iter().skip(log.blocks.len() / 2);
    *half.into_iter().find(|block| kind(block.kind)).unwrap()
}

/// Whether the tree is whole; what a mount says if it fails.
pub(crate) fn used(mode: Mode, image: &DiskImage) -> Result<Result<(), Error>, Error> {
    let world = World::new(7, SMALL_MIB, image.clone());
    let mounting = mount_in(mode, Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move {
        let fs = mounting.await?;
        let found = check_tree(&fs).await;
        fs.unmount().await?;
        Ok(found)
    })
}

fn lost(mode: Mode, image: &DiskImage) -> JournalLoss {
    match used(mode, image) {
        Err(Error::JournalLost(loss)) => *loss,
        other => panic!("{mode:?}: {other:?}"),
    }
}

fn repaired(image: &DiskImage) -> (JournalRepaired, DiskImage) {
    let world = World::new(8, SMALL_MIB, image.clone());
    let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    let options = options(runtime.clone());
    let repaired = Ext4::repair_journal(device, runtime, options);
    let repaired = world.sim.block_on(world.user, repaired).unwrap();
    (repaired, world.settled())
}

/// A damaged descriptor in the middle is told of by a mount in any mode; a repair replays all
/// others, and e2fsck makes the rest fit.
fn a_descriptor_that_is_damaged_is_told() {
    let Some((image, log)) = full() else { return };
    let block = middle(&log, |kind| kind == RawKind::Descriptor);
    let image = with_flipped(&image, &block);
    for mode in [Mode::Lazy, Mode::Ordered] {
        let loss = lost(mode, &image);
        assert_eq!(loss.unknown, [block.at]);
        assert!(loss.later > 10 && loss.homes.is_empty(), "{loss:?}");
        let said = Error::JournalLost(Box::new(loss)).to_string();
        let named = format!("at block {} of the journal is lost", block.at);
        assert!(said.contains(&named) && said.contains("fs check --repair"), "{said}");
    }
    let (found, image) = repaired(&image);
    assert!(matches!(found, JournalRepaired::Lossy(loss) if loss.unknown == [block.at]));
    let refused = used(Mode::Lazy, &image).unwrap_err().to_string();
    assert!(refused.contains("errors were found"), "{refused}");
    let (again, image) = repaired(&image);
    assert_eq!(
        again,
        JournalRepaired::ErrorsNoted,
        "a second repair does not say that all is well"
    );
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let (code, said) = e2fsck(&["-fy"], &path);
    assert!(code <= 1, "{said}");
    let world = World::new(9, SMALL_MIB, load(&path));
    let last =
        run_in(Mode::Ordered, &world, async |fs: Ext4| fs.lookup(Ino::ROOT, b"file").await.is_ok());
    assert!(last, "it is of the last transaction");
}

#[test]
fn what_a_damaged_descriptor_held_is_told() {
    a_descriptor_that_is_damaged_is_told();
}

#[test]
fn a_damaged_commit_block_loses_nothing() {
    let Some((image, log)) = full() else { return };
    let block = middle(&log, |kind| kind == RawKind::Commit);
    let image = with_flipped(&image, &block);
    for mode in [Mode::Lazy, Mode::Ordered] {
        assert_eq!(used(mode, &image), Ok(Ok(())), "{mode:?}");
    }
    assert_eq!(repaired(&image).0, JournalRepaired::Whole);
}

/// Copies of which there are newer ones are not missed; others are.
fn copies_are_missed_only_if_they_are_the_newest() {
    let Some((image, log)) = full() else { return };
    let copies = |wanted: bool| {
        let is_newest = |block: &&RawBlock| {
            let later = log.blocks.iter().filter(|other| other.kind == block.kind);
            later.map(|other| other.at).max() == Some(block.at)
        };
        let copies = log.blocks.iter().filter(|block| matches!(block.kind, RawKind::Copy(_)));
        let found: Vec<_> = copies.filter(|block| is_newest(block) == wanted).collect();
        *found[found.len() / 2]
    };
    let old = with_flipped(&image, &copies(false));
    for mode in [Mode::Lazy, Mode::Ordered] {
        assert_eq!(used(mode, &old), Ok(Ok(())), "{mode:?}");
    }
    let newest = copies(true);
    let RawKind::Copy(home) = newest.kind else { unreachable!() };
    let damaged = with_flipped(&image, &newest);
    let loss = lost(Mode::Ordered, &damaged);
    assert_eq!(loss.homes.iter().map(|home| home.0).collect::<Vec<_>>(), [home]);
    assert!(loss.unknown.is_empty());
}

#[test]
fn a_damaged_copy_is_missed_only_if_it_is_the_newest() {
    copies_are_missed_only_if_they_are_the_newest();
}

/// A copy that nobody compared when the journal was opened.
fn a_damaged_target_is_not_read() {
    let Some((image, log)) = full() else { return };
    let mut told = 0;
    for block in &log.blocks {
        let source = manylogs_torture::ext4::ImageSource::new(&image, SMALL_MIB);
        let mut bytes = [0; 4096];
        let place = manylogs_ext4check::BlockNo(block.place);
        manylogs_ext4check::Source::read(&source, place, &mut bytes).unwrap();
        // A target's copy: nothing but its checksum in the log protects it.
        let is_target = matches!(block.kind, RawKind::Copy(_)) && bytes[4..900] == [bytes[4]; 896];
        if !is_target || bytes[4] == 0 || told == 3 {
            continue;
        }
        let found = used(Mode::Lazy, &with_flipped(&image, block));
        let is_gone = found == Ok(Ok(()));
        told += u32::from(!is_gone);
        let is_told = matches!(found, Ok(Err(Error::Io(_))) | Err(Error::JournalLost(_)));
        assert!(is_gone || is_told, "{block:?}: {found:?}");
    }
    assert!(told > 0);
}

#[test]
fn a_damaged_copy_is_not_read() {
    a_damaged_target_is_not_read();
}

/// The last transaction's damage is told as well if its commit block is whole.
#[test]
fn the_last_transaction_is_known_by_its_commit_block() {
    let Some((image, log)) = full() else { return };
    let last = log.blocks.last().unwrap();
    assert_eq!(last.kind, RawKind::Commit);
    let own = log.blocks.iter().rev().skip(1).find(|block| block.kind == RawKind::Descriptor);
    let block = own.unwrap();
    assert_eq!(block.tid, last.tid);
    assert_eq!(lost(Mode::Lazy, &with_flipped(&image, block)).unknown, [block.at]);
    // Without the commit block it is a transaction that a crash tore.
    let torn = with_flipped(&image, last);
    assert!(used(Mode::Lazy, &torn).is_ok());
}

/// A disk that was used and crashed after a replay of e2fsck that ended at damage, and a file with
/// the disk. If `numbers_go_on`, the log was used as by programs that go on with its numbers.
fn used_after_a_replay_that_ended(numbers_go_on: bool) -> Option<(DiskImage, tempfile::TempDir)> {
    let (image, log) = full()?;
    let block = *log.blocks.iter().find(|block| block.kind == RawKind::Descriptor).unwrap();
    let image = with_flipped(&image, &block);
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let (code, said) = e2fsck(&["-fy"], &path);
    assert!(code <= 1, "{said}");
    let mut image = load(&path);
    if numbers_go_on {
        // A log is used from its next number on if it says that this crate left it empty.
        let superblock = Extent::new(log.superblock * 8, 3);
        let mut bytes = image.read(superblock).to_bytes().unwrap().to_vec();
        let number = bytes[0x18..0x1C].to_vec();
        bytes[1024..1028].copy_from_slice(b"MLFS");
        bytes[1028..1032].copy_from_slice(&number);
        image.corrupt(Lba(log.superblock * 8 + 2), Sector::Bytes(bytes[1024..].to_vec().into()));
    }
    let world = World::new(4, SMALL_MIB, image);
    let mounting = mount_in(Mode::Ordered, Rc::new(world.disk.clone()), world.runtime());
    let runtime = world.runtime();
    world.sim.block_on(world.user, async move {
        // Later than all that was written before.
        runtime.sleep(Nanos::from_secs(100_000)).await;
        let fs = mounting.await.unwrap();
        fs.create(Ino::ROOT, b"new", New::plain(FileKind::File, 0o644)).await.unwrap();
        fs.sync_all().await.unwrap();
    });
    Some((world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(4)), dir))
}

/// Checks that the disk of a world is sound, and has what was made last.
fn check_new(world: &World) {
    world.check();
    run_in(Mode::Ordered, world, async |fs: Ext4| {
        assert!(fs.lookup(Ino::ROOT, b"new").await.is_ok());
        fs.unmount().await.unwrap();
    });
}

/// A replay of other software ended at damage, and such software used the file system since: what
/// lies behind is older, and must not come back.
fn what_an_earlier_replay_left_stays_behind() {
    let Some((image, dir)) = used_after_a_replay_that_ended(true) else { return };
    match used(Mode::Ordered, &image) {
        Err(Error::JournalLost(loss)) => assert!(loss.is_older, "{loss:?}"),
        other => panic!("{other:?}"),
    }
    let (found, image) = repaired(&image);
    assert!(matches!(found, JournalRepaired::Lossy(_)), "{found:?}");
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let (code, said) = e2fsck(&["-fy"], &path);
    assert!(code <= 1, "{said}");
    check_new(&World::new(5, SMALL_MIB, load(&path)));
}

#[test]
fn older_transactions_behind_damage_are_not_replayed() {
    what_an_earlier_replay_left_stays_behind();
}

/// CRC-32C without the last inversion, as jbd2 has it.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| sum >> 1 ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 };
    bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

/// The journal's superblock is whole, and has another UUID: so no checksum of the log matches.
fn another_uuid_is_told() {
    let Some((mut image, log)) = full() else { return };
    let mut block = [0; BLOCK_BYTES];
    let mut target = ImageSource::new(&mut image, SMALL_MIB);
    target.read(BlockNo(log.superblock), &mut block).unwrap();
    block[0x30] ^= 0xFF;
    block[0xFC..0x100].fill(0);
    let sum = crc32c(&block[..1024]);
    block[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
    target.write(BlockNo(log.superblock), &block).unwrap();
    for mode in [Mode::Lazy, Mode::Ordered] {
        assert_eq!(lost(mode, &image).unknown, [log.blocks[0].at], "{mode:?}");
    }
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let (_, said) = e2fsck(&["-fy"], &path);
    assert!(said.contains("Journal checksum error"), "{said}");
}

#[test]
fn a_log_of_another_uuid_is_told() {
    another_uuid_is_told();
}

/// A mount after a replay of other software that ended at damage: what that left in the log is
/// proof of nothing, and no later mount is refused. It would be if numbers went on, as
/// [`what_an_earlier_replay_left_stays_behind`] shows.
#[test]
fn what_an_earlier_replay_left_proves_nothing() {
    let Some((image, _dir)) = used_after_a_replay_that_ended(false) else { return };
    for mode in [Mode::Ordered, Mode::Lazy] {
        let world = World::new(5, SMALL_MIB, image.clone());
        run_in(mode, &world, async move |fs: Ext4| {
            assert!(fs.lookup(Ino::ROOT, b"new").await.is_ok(), "{mode:?}");
            fs.unmount().await.unwrap();
        });
        run_in(Mode::Ordered, &world, async |fs: Ext4| fs.unmount().await.unwrap());
        check_new(&world);
    }
}

/// A log without checksums: damage of a commit block cannot be told from other damage, so nothing
/// is made up; and what lies behind counts only if it is newer.
#[test]
fn without_checksums_nothing_is_made_again() {
    let features = ["-O", "^metadata_csum,^64bit"];
    let Some(image) = mkfs(SMALL_MIB, &[SMALL_OPTIONS, &features].concat()) else { return };
    let world = World::new(1, SMALL_MIB, image);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_tree(&fs).await;
        fs.unmount().await.unwrap();
    });
    let mut image = world.settled();
    assert_eq!(used(Mode::Lazy, &image), Ok(Ok(())));
    let log = RawLog::of(&image, SMALL_MIB).unwrap();
    assert!(!log.has_checksums);
    set_note(&mut image, &log, &[0; NOTE.end - NOTE.start]);
    for kind in [RawKind::Commit, RawKind::Descriptor] {
        let block = middle(&log, |found| found == kind);
        let mut image = image.clone();
        for lba in block.place * 8..block.place * 8 + 8 {
            image.corrupt(manylogs_block::Lba(lba), manylogs_block::Sector::Zero);
        }
        assert_eq!(lost(Mode::Lazy, &image).unknown, [block.at], "{kind:?}");
        assert!(matches!(repaired(&image).0, JournalRepaired::Lossy(_)));
    }
}

#[cfg(feature = "plant")]
#[test]
fn bugs_planted_in_what_looks_behind_damage_are_noticed() {
    use crate::common::assert_noticed;
    use manylogs_plant::Bug;
    for (bug, test) in [
        (Bug::LazyDamageIsTail, a_descriptor_that_is_damaged_is_told as fn()),
        (Bug::LazyDamageIsTail, another_uuid_is_told),
        (Bug::LazyLossNotTold, a_descriptor_that_is_damaged_is_told),
        (Bug::LazyRepairNotNoted, a_descriptor_that_is_damaged_is_told),
        (Bug::LazyBadCopyReplayed, copies_are_missed_only_if_they_are_the_newest),
        (Bug::LazyCopyNotCompared, a_damaged_target_is_not_read),
        (Bug::LazyOlderReplayed, what_an_earlier_replay_left_stays_behind),
    ] {
        assert_noticed(bug, test);
    }
}
