//! A journal that keeps what it holds, on a disk that does not give some of it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, mkfs};
use crate::damaged_copy::targets;
use crate::lazy::{again, check_tree, left_full, make_tree, run_in};
use manylogs_block::{Extent, IoError, Nanos, Request, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, Mode, New};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{RawBlock, SMALL_OPTIONS};

/// Blocks of which each read fails.
pub(crate) type Unread = Rc<RefCell<Vec<Extent>>>;

/// Has reads of some blocks fail with what `error` says of the block. There are none yet.
pub(crate) fn unread(world: &World, error: impl Fn(Extent) -> IoError + 'static) -> Unread {
    let unread = Unread::default();
    let bad = Rc::clone(&unread);
    world.disk.fail_requests(Box::new(move |request| {
        let Request::Read { extent } = request else { return None };
        let read = extent.start.0..extent.start.0 + extent.len.0;
        bad.borrow().iter().find(|it| read.contains(&it.start.0)).map(|it| error(*it))
    }));
    unread
}

pub(crate) fn extents(blocks: &[RawBlock]) -> Vec<Extent> {
    blocks.iter().map(|block| Extent::new(block.place * 8, 8)).collect()
}

/// What is old, and what a checkpoint is asked for, goes home from memory if the disk has bad
/// blocks where the log has it.
#[test]
fn a_bad_block_of_the_log_stops_nobody_who_knows_its_content() {
    let Some(image) = mkfs(SMALL_MIB, SMALL_OPTIONS) else { return };
    for is_asked in [false, true] {
        let world = World::new(1, SMALL_MIB, image.clone());
        let bad = unread(&world, |extent| IoError::Medium { extent });
        let (disk, runtime) = (Rc::new(world.disk.clone()), world.runtime());
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            make_tree(&fs).await;
            fs.sync_all().await.unwrap();
            let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
            let some = targets(&now);
            assert!(some.len() > 10);
            bad.replace(extents(&some));
            if is_asked {
                fs.bring_home().await.unwrap();
            } else {
                fs.max_age(Some(Nanos::from_secs(60)));
                runtime.sleep(Nanos::from_secs(3600)).await;
            }
            assert_eq!(fs.journal_stats().at_risk_bytes, 0);
            fs.sync_all().await.unwrap();
            bad.take();
            fs.unmount().await.unwrap();
        });
        let world = again(world.settled());
        run_in(Mode::Ordered, &world, async |fs: Ext4| {
            assert_eq!(check_tree(&fs).await, Ok(()));
            fs.unmount().await.unwrap();
        });
        world.check();
    }
}

/// What the disk does not give, and nobody knows, stays in the log. Changes and scrubs go on, and
/// what the disk gives again later goes home.
#[test]
fn old_content_that_cannot_be_read_stops_no_changes() {
    type Fault = fn(Extent) -> IoError;
    let medium: Fault = |extent| IoError::Medium { extent };
    let transient: Fault = |extent| IoError::Transient { extent };
    for (fault, is_bad) in [(medium, true), (transient, false)] {
        let Some(world) = left_full() else { return };
        let some = targets(&world.settled())[..3].to_vec();
        let bad = unread(&world, fault);
        bad.replace(extents(&some));
        let runtime = world.runtime();
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            fs.max_age(Some(Nanos::from_secs(60)));
            runtime.sleep(Nanos::from_secs(2 * 3600)).await;
            assert!(fs.journal_stats().at_risk_bytes > 0);
            let found = fs.last_scrub().unwrap().found;
            assert_eq!(found.lost, if is_bad { 3 } else { 0 }, "{found:?}");
            make_more(&fs).await.unwrap();
            bad.take();
            runtime.sleep(Nanos::from_secs(3600)).await;
            let stays = fs.journal_stats().at_risk_bytes > 0;
            assert_eq!(stays, is_bad, "an attempt comes again if the fault may pass");
            fs.bring_home().await.unwrap();
            assert_eq!(check_tree(&fs).await, Ok(()));
            fs.unmount().await.unwrap();
        });
    }
}

async fn make_more(fs: &Ext4) -> Result<(), Error> {
    fs.create(Ino::ROOT, b"more", New::plain(FileKind::Directory, 0o755)).await?;
    fs.sync_all().await
}
