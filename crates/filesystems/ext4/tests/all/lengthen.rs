//! A journal is lengthened: after a crash at any request it has the old length or the new one, and
//! nothing is lost, whoever replays it.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::common::{
    Judged, SMALL, SMALL_MIB, World, content, e2fsck, has, image_dir, load, mkfs, save,
};
use crate::lazy::{again, check_tree, make_tree, run_in};
use manylogs_block::{Extent, IoError, Request, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, Lengthened, Mode, New, Refusal};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::options;

/// Blocks of the journal of [`SMALL`] images, and after the change.
const OLD: u32 = 1024;
const NEW: u32 = 2500;
const BLOCK: u32 = 4096;
/// Blocks after a change that needs more extents than an inode has room for.
const NEW_IN_PIECES: u32 = 1900;
/// Blocks of each free run then.
const PIECE: usize = 100;

/// A disk whose journal holds a tree that is not home, and whose free blocks are not zero.
fn left() -> Option<DiskImage> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        let new = New::plain(FileKind::File, 0o644);
        let file = fs.create(Ino::ROOT, b"gone", new).await.unwrap().ino;
        fs.write(file, 0, content(9, 12 << 20)).await.unwrap();
        fs.sync_all().await.unwrap();
        fs.unlink(Ino::ROOT, b"gone").await.unwrap();
        fs.unmount().await.unwrap();
    });
    Some(with_tree(world.settled()))
}

/// The disk, with a tree in its journal that is not home.
fn with_tree(image: DiskImage) -> DiskImage {
    let world = again(image);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_tree(&fs).await;
        fs.unmount().await.unwrap();
    });
    world.settled()
}

/// As [`left`], with free blocks in short runs only.
fn left_in_pieces() -> Option<DiskImage> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        let new = New::plain(FileKind::File, 0o644);
        let mut files = 0;
        for number in 0..u64::MAX {
            let name = format!("file {number}");
            let file = fs.create(Ino::ROOT, name.as_bytes(), new.clone()).await.unwrap().ino;
            let bytes = content(number, PIECE * BLOCK as usize);
            let written = fs.write(file, 0, bytes).await.is_ok();
            fs.sync_all().await.unwrap();
            files = number;
            if !written {
                break;
            }
        }
        assert!(files > 26, "{files}");
        for number in (0..26).step_by(2) {
            fs.unlink(Ino::ROOT, format!("file {number}").as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    Some(with_tree(world.settled()))
}

/// Lengthens the journal, until all requests behind the first `most` fail. Returns what came of it,
/// what the disk holds then, and how many requests there were.
fn lengthened(
    image: DiskImage,
    blocks: u32,
    most: u64,
) -> (Result<Lengthened, Error>, DiskImage, u64) {
    let world = again(image);
    let count = Rc::new(Cell::new(0));
    let seen = Rc::clone(&count);
    world.disk.fail_requests(Box::new(move |request| {
        let is_read = matches!(request, Request::Read { .. });
        seen.set(seen.get() + u64::from(!is_read));
        let failure =
            request.extent().map_or(IoError::FlushFailed, |extent| IoError::Transient { extent });
        (seen.get() > most).then_some(failure)
    }));
    let (disk, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    let options = options(runtime.clone());
    let call = Ext4::lengthen_journal(disk, runtime, options, blocks);
    let done = world.sim.block_on(world.user, call);
    let survival = if most == u64::MAX { Survival::Everything } else { Survival::Random };
    (done, world.disk.after_power_cut(survival, &mut Rng::new(most)), count.get())
}

/// The journal's file; `None` without debugfs.
fn journal(path: &Path) -> Option<Vec<u8>> {
    let said = Command::new("debugfs").args(["-R", "cat <8>"]).arg(path).output().ok()?;
    said.status.success().then_some(said.stdout)
}

/// How many blocks the log has, as the journal's superblock says; `None` without one.
fn length(image: &DiskImage) -> Option<u32> {
    let firsts = (0..SMALL_MIB * 2048).step_by(8).map(|lba| image.read(Extent::new(lba, 1)));
    let mut firsts = firsts.filter_map(|payload| payload.to_bytes());
    let found = firsts.find(|bytes| bytes.starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]))?;
    Some(u32::from_be_bytes(found[0x10..0x14].try_into().unwrap()))
}

/// The length of the journal in bytes, as the superblock's copy of its inode says.
fn length_in_copy(image: &DiskImage) -> u32 {
    let superblock = image.read(Extent::new(2, 1)).to_bytes().unwrap();
    assert_eq!((superblock[0xFD], &superblock[0x10C..0x10E]), (1, &[0x0A, 0xF3][..]), "extents");
    u32::from_le_bytes(superblock[0x14C..0x150].try_into().unwrap())
}

/// Checks what a crash left: by e2fsck, and by our own mounts.
fn judge(image: &DiskImage, expected: &[u32]) -> Result<u32, String> {
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path);
    let blocks = length(image).ok_or("no superblock of the journal")?;
    if !expected.contains(&blocks) {
        return Err(format!("the log has {blocks} blocks"));
    }
    let (code, said) = e2fsck(&["-fp"], &path);
    if code > 1 {
        return Err(format!("e2fsck -fp: {said}"));
    }
    for (mode, left) in [(Mode::Ordered, load(&path)), (Mode::Lazy, image.clone())] {
        let world = again(left);
        let mounting = Ext4::mount_in(
            mode,
            Rc::new(world.disk.clone()),
            world.runtime(),
            options(world.runtime()),
        );
        let found = world.sim.block_on(world.user, async move {
            let fs = mounting.await?;
            check_tree(&fs).await?;
            fs.bring_home().await?;
            fs.unmount().await
        });
        found.map_err(|error| format!("{mode:?}: {error}"))?;
        if mode == Mode::Ordered {
            world.check();
        }
    }
    Ok(blocks)
}

/// Uses all room of what a crash left while the journal keeps what it holds, cuts the power, and
/// checks that the journal is found then.
fn judge_in_use(image: &DiskImage) -> Result<(), Error> {
    let world = again(image.clone());
    let mount = |world: &World| {
        let disk = Rc::new(world.disk.clone());
        Ext4::mount_in(Mode::Lazy, disk, world.runtime(), options(world.runtime()))
    };
    let mounting = mount(&world);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await?;
        let new = New::plain(FileKind::File, 0o644);
        let file = fs.create(Ino::ROOT, b"takes all room", new).await?.ino;
        let mut at = 0;
        // Each takes what is left by pieces, down to one block.
        for blocks in [PIECE, 10, 1] {
            let len = blocks * BLOCK as usize;
            while fs.write(file, at, content(at, len)).await.is_ok() {
                at += len as u64;
            }
        }
        fs.sync_all().await
    })?;
    let world = again(world.disk.after_power_cut(Survival::Everything, &mut Rng::new(1)));
    let mounting = mount(&world);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await?;
        check_tree(&fs).await?;
        fs.unmount().await
    })
}

/// What is wrong with the first state that is not sound, with a crash after any request.
fn crashed() -> Result<(), String> {
    left().map_or(Ok(()), |image| crashed_on(&image, NEW).map(drop))
}

/// As [`crashed`], when the journal's tree gets nodes.
fn crashed_with_nodes() -> Result<(), String> {
    let Some(image) = left_in_pieces() else { return Ok(()) };
    let pieces = crashed_on(&image, NEW_IN_PIECES)?;
    assert!(pieces > 6, "{pieces} pieces");
    Ok(())
}

/// As [`crashed`], on this disk. Returns in how many pieces the log lies.
fn crashed_on(image: &DiskImage, new: u32) -> Result<usize, String> {
    let (done, whole, requests) = lengthened(image.clone(), new, u64::MAX);
    let done = done.map_err(|error| error.to_string())?;
    assert_eq!((done.before, done.blocks), (OLD, new));
    assert!(requests > 20, "{requests}");
    let mut found = vec![judge(&whole, &[new])?];
    for most in 0..requests {
        let (done, image, _) = lengthened(image.clone(), new, most);
        assert!(done.is_err(), "after {most}");
        found.push(judge(&image, &[OLD, new]).map_err(|what| format!("after {most}: {what}"))?);
        judge_in_use(&image).map_err(|what| format!("in use after {most}: {what}"))?;
        if most % 4 == 0 {
            let (again, image, _) = lengthened(image, new, u64::MAX);
            again.map_err(|error| format!("again after {most}: {error}"))?;
            judge(&image, &[new]).map_err(|what| format!("again after {most}: {what}"))?;
        }
    }
    assert!(found.contains(&OLD));
    Ok(done.pieces)
}

#[test]
fn a_crash_leaves_the_old_journal_or_the_new_one() {
    assert_eq!(crashed(), Ok(()));
}

#[test]
fn a_crash_leaves_a_journal_whose_map_is_whole() {
    assert_eq!(crashed_with_nodes(), Ok(()));
}

/// Whether what the journal got is zero, and the superblock says where the journal lies.
fn is_clean_and_noted() -> bool {
    let Some(image) = left().filter(|_| has("debugfs")) else { return true };
    let (done, image, _) = lengthened(image, NEW, u64::MAX);
    assert!(done.is_ok(), "{done:?}");
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let journal = journal(&path).unwrap();
    assert_eq!(journal.len(), (NEW * BLOCK) as usize);
    let is_zero = journal[(OLD * BLOCK) as usize..].iter().all(|byte| *byte == 0);
    is_zero && length(&image) == Some(NEW) && length_in_copy(&image) == NEW * BLOCK
}

#[test]
fn what_a_journal_gets_is_zero_and_the_superblock_knows_of_it() {
    assert!(is_clean_and_noted());
}

#[test]
fn a_journal_is_used_to_its_new_end() {
    let Some(image) = left() else { return };
    let (done, image, _) = lengthened(image, NEW, u64::MAX);
    assert!(done.is_ok(), "{done:?}");
    let world = again(image);
    let kept = run_in(Mode::Lazy, &world, async |fs: Ext4| {
        for number in 0..1500 {
            let new = New::plain(FileKind::Directory, 0o755);
            fs.create(Ino::ROOT, format!("new {number}").as_bytes(), new).await.unwrap();
            if number % 4 == 0 {
                fs.sync_all().await.unwrap();
            }
        }
        let kept = fs.kept_in_journal().unwrap().0;
        check_tree(&fs).await.unwrap();
        fs.unmount().await.unwrap();
        kept
    });
    assert_eq!(kept.size_bytes, u64::from((NEW - 1) * BLOCK));
    assert!(kept.used_bytes > u64::from(OLD * BLOCK), "{kept:?}");
    let (_dir, path) = world.saved();
    assert!(e2fsck(&["-fp"], &path).0 <= 1);
    assert_eq!(e2fsck(&["-fn"], &path).0, 0);
}

#[test]
fn a_journal_that_cannot_be_lengthened_stays_as_it_is() {
    let Some(image) = left() else { return };
    let shorter = lengthened(image.clone(), OLD - 1, u64::MAX);
    let refusal = Refusal::JournalIsLong { blocks: OLD, asked: OLD - 1 };
    assert_eq!(shorter.0, Err(Error::Refused(refusal)));
    assert_eq!(judge(&shorter.1, &[OLD]), Ok(OLD));
    let longer = lengthened(image.clone(), u32::try_from(SMALL_MIB * 256).unwrap(), u64::MAX);
    assert_eq!(longer.0, Err(Error::NoSpace));
    assert_eq!(judge(&longer.1, &[OLD]), Ok(OLD));
    assert_eq!(lengthened(image, u32::MAX, u64::MAX).0, Err(Error::TooLarge));
}

#[cfg(feature = "plant")]
#[test]
fn bugs_planted_in_lengthening_are_noticed() {
    use manylogs_plant::{Bug, plant};
    if left().is_none() || !has("debugfs") {
        return;
    }
    for (bug, test) in [
        (Bug::LengthenLogEarly, (|| crashed().is_ok()) as fn() -> bool),
        (Bug::LengthenNodesLater, || crashed_with_nodes().is_ok()),
        (Bug::LengthenNodesInPlace, || crashed_with_nodes().is_ok()),
        (Bug::LengthenedNotReplayed, || crashed_with_nodes().is_ok()),
        (Bug::LengthenNotZeroed, is_clean_and_noted),
        (Bug::LengthenBackupForgotten, is_clean_and_noted),
    ] {
        plant(Some(bug));
        let passes = std::panic::catch_unwind(test).unwrap_or(false);
        plant(None);
        assert!(!passes, "{bug:?} is not noticed");
    }
}
