//! A damaged copy in a journal that keeps what it holds, whose content is in memory.

use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, mkfs};
use crate::lazy::{check_tree, make_tree, run_in};
use manylogs_block::{BlockDevice, Extent, Payload, Request, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, Mode, New};
use manylogs_ext4check::{BLOCK_BYTES, BlockNo, Source};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{ImageSource, RawBlock, RawKind, RawLog, SMALL_OPTIONS};

/// Copies of targets: nothing else is read to find that they are damaged.
fn targets(image: &DiskImage) -> Vec<RawBlock> {
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
async fn damage(disk: &dyn BlockDevice, blocks: &[RawBlock]) {
    for block in blocks {
        let extent = Extent::new(block.place * 8, 8);
        let payload = Payload::bytes(vec![b'!'; BLOCK_BYTES]);
        disk.submit(Request::write_fua(extent, payload)).await.unwrap();
    }
}

/// Writes as much to the journal as it is long, twice.
async fn use_journal(fs: &Ext4) -> Result<(), Error> {
    while fs.journal_stats().log_bytes < 8 << 20 {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, b"short", new).await?.ino;
        fs.sync(dir).await?;
        fs.remove_directory(Ino::ROOT, b"short").await?;
    }
    Ok(())
}

#[test]
fn a_copy_that_is_damaged_goes_home_from_memory() {
    let Some(image) = mkfs(SMALL_MIB, SMALL_OPTIONS) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let disk = Rc::new(world.disk.clone());
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        make_tree(&fs).await;
        fs.sync_all().await.unwrap();
        let targets = targets(&disk.after_power_cut(Survival::Everything, &mut Rng::new(1)));
        assert!(targets.len() > 10);
        damage(&*disk, &targets).await;
        use_journal(&fs).await.unwrap();
        fs.unmount().await.unwrap();
    });
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
    world.check();
}
