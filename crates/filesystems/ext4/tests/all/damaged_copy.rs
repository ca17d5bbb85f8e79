//! A damaged copy in a journal that keeps what it holds: when it is mended, and by what.

use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, content, e2fsck, image_dir, load, mkfs, save};
use crate::lazy::{check_tree, left_full, make_tree, run_in};
use manylogs_block::{BlockDevice, Extent, Payload, Request, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, JournalRepaired, Mode, New};
use manylogs_ext4check::{BLOCK_BYTES, BlockNo, Source};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{ImageSource, RawBlock, RawKind, RawLog, SMALL_OPTIONS, options};

/// Copies of targets: nothing else is read to find that they are damaged.
pub(crate) fn targets(image: &DiskImage) -> Vec<RawBlock> {
    let source = ImageSource::new(image, SMALL_MIB);
    let is_target = |block: &RawBlock| {
        let mut bytes = [0; BLOCK_BYTES];
        source.read(BlockNo(block.place), &mut bytes).unwrap();
        let is_copy = matches!(block.kind, RawKind::Copy(_));
        is_copy && bytes[4] != 0 && bytes[4..900] == [bytes[4]; 896]
    };
    let log = RawLog::of(image, SMALL_MIB).unwrap();
    log.blocks.into_iter().filter(is_target).collect()
}

/// Overwrites blocks of the disk, past who uses it.
pub(crate) async fn damage(disk: &dyn BlockDevice, blocks: &[RawBlock]) {
    for block in blocks {
        let extent = Extent::new(block.place * 8, 8);
        let payload = Payload::bytes(vec![b'!'; BLOCK_BYTES]);
        disk.submit(Request::write_fua(extent, payload)).await.unwrap();
    }
}

/// Writes as much to the journal as it is long, twice.
async fn use_journal(fs: &Ext4) -> Result<(), Error> {
    // A use that failed may have left its directory.
    match fs.remove_directory(Ino::ROOT, b"short").await {
        Ok(()) | Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    while fs.journal_stats().log_bytes < 8 << 20 {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, b"short", new).await?.ino;
        fs.sync(dir).await?;
        fs.remove_directory(Ino::ROOT, b"short").await?;
    }
    Ok(())
}

/// What is found of a journal that is used on after copies were damaged under it. `None` without
/// mkfs.
fn used_on_damaged(in_memory: bool) -> Option<Result<(), Error>> {
    let world = match in_memory {
        true => World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL_OPTIONS)?),
        false => left_full()?,
    };
    let disk = Rc::new(world.disk.clone());
    let work = async move |fs: Ext4| {
        if in_memory {
            make_tree(&fs).await;
            fs.sync_all().await.unwrap();
        }
        let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
        let targets = targets(&now);
        assert!(targets.len() > 10);
        damage(&*disk, &targets).await;
        let used = use_journal(&fs).await;
        (used, fs.unmount().await)
    };
    let (used, left) = run_in(Mode::Lazy, &world, work);
    if used.is_ok() {
        assert_eq!(left, Ok(()));
        run_in(Mode::Ordered, &world, async |fs: Ext4| {
            assert_eq!(check_tree(&fs).await, Ok(()));
            fs.unmount().await.unwrap();
        });
        world.check();
    }
    Some(used)
}

#[test]
fn a_copy_that_is_damaged_goes_home_from_memory() {
    let Some(used) = used_on_damaged(true) else { return };
    assert_eq!(used, Ok(()));
}

/// Where the content is nowhere else changes stop, at each mount; after a repair, and e2fsck, they
/// go on.
#[test]
fn after_a_repair_a_damaged_copy_stops_nobody() {
    let Some(world) = left_full() else { return };
    let targets = targets(&world.settled());
    let (disk, some) = (Rc::new(world.disk.clone()), targets[..3].to_vec());
    world.sim.block_on(world.user, async move { damage(&*disk, &some).await });
    for _ in 0..2 {
        run_in(Mode::Lazy, &world, async |fs: Ext4| {
            let used = use_journal(&fs).await;
            assert!(matches!(used, Err(Error::Aborted(_) | Error::Io(_))), "{used:?}");
            assert!(fs.unmount().await.is_err());
        });
    }
    let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    let repairing = Ext4::repair_journal(device, runtime.clone(), options(runtime));
    let repaired = world.sim.block_on(world.user, repairing).unwrap();
    assert!(matches!(repaired, JournalRepaired::Lossy(loss) if !loss.homes.is_empty()));
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&world.settled(), SMALL_MIB, &path);
    let (code, said) = e2fsck(&["-fy"], &path);
    assert!(code <= 1, "{said}");
    let world = World::new(2, SMALL_MIB, load(&path));
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        use_journal(&fs).await.unwrap();
        let file = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        assert_eq!(fs.read(file, 0, 300_000).await.unwrap(), content(3, 200_000));
        fs.unmount().await.unwrap();
    });
    run_in(Mode::Ordered, &world, async |fs: Ext4| fs.unmount().await.unwrap());
    world.check();
}
