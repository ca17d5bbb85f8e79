//! Scrubs of a journal of several parts: how they end, and which of them is the last.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{World, mkfs};
use crate::damaged_copy::{damage, targets};
use crate::lazy::{left_full, run_in, target};
use crate::unread::{extents, unread};
use manylogs_block::{IoError, Nanos, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, LastScrub, Mode, New, Scrubbed};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{RawBlock, RawKind, RawLog};

const MIB: u64 = 48;

/// A disk whose journal has two parts of 4 MiB and some of a third; `None` without mkfs.
fn many_parts() -> Option<World> {
    let image = mkfs(MIB, &["-g", "1024", "-J", "size=16", "-N", "4096"])?;
    let world = World::new(1, MIB, image);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        for number in 0.. {
            let new = New { target: target(number).into(), ..New::plain(FileKind::Symlink, 0o777) };
            fs.create(Ino::ROOT, format!("link {number}").as_bytes(), new).await.unwrap();
            fs.sync_all().await.unwrap();
            if fs.journal_stats().log_bytes > 10 << 20 {
                break;
            }
        }
        assert_eq!(fs.journal_stats().home_bytes, 0);
        fs.unmount().await.unwrap();
    });
    Some(world)
}

/// The blocks of the journal.
fn blocks(world: &World) -> Vec<RawBlock> {
    let now = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
    RawLog::of(&now, MIB).unwrap().blocks
}

/// The blocks that are the only copies: all of them are live.
fn only_copies(log: &[RawBlock]) -> Vec<RawBlock> {
    let is_only = |block: &&RawBlock| {
        let copies = log.iter().filter(|other| other.kind == block.kind);
        matches!(block.kind, RawKind::Copy(_)) && copies.count() == 1
    };
    log.iter().filter(is_only).copied().collect()
}

/// A lost copy in one part of the journal, and a damaged descriptor in a later one that cannot go
/// home therefore: the scrub goes on, and tells both.
#[test]
fn a_scrub_of_many_parts_tells_all_of_them() {
    let Some(world) = many_parts() else { return };
    let log = blocks(&world);
    let own = |block: &&RawBlock| matches!(block.kind, RawKind::Descriptor);
    let descriptors: Vec<_> = log.iter().filter(own).copied().collect();
    // The last descriptors are in the third part.
    let bad = [only_copies(&log)[0], descriptors[descriptors.len() * 9 / 10]];
    let disk = Rc::new(world.disk.clone());
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        let healthy = fs.scrub_journal().await.unwrap();
        damage(&*disk, &bad).await;
        let found = fs.scrub_journal().await.unwrap();
        assert_eq!(found.blocks, healthy.blocks);
        let told = (found.lost, found.torn_left, found.brought_home, found.is_cut_short);
        assert_eq!(told, (1, 1, 0, false), "{found:?}");
    });
}

/// Whoever waits for all work before an unmount does not wait for a scrub of the whole journal.
#[test]
fn a_scrub_can_be_ended_before_an_unmount() {
    let Some(world) = many_parts() else { return };
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        let healthy = fs.scrub_journal().await.unwrap();
        let scrubbed = Rc::new(RefCell::new(None));
        let (scrubbing, into) = (fs.clone(), Rc::clone(&scrubbed));
        runtime.spawn(async move {
            *into.borrow_mut() = Some(scrubbing.scrub_journal().await.unwrap());
        });
        while fs.scrubbed_blocks() == healthy.blocks {
            runtime.sleep(Nanos::from_micros(100)).await;
        }
        fs.end_scrubs();
        // Nothing is damaged, and the file system is not closing yet.
        runtime.sleep(Nanos::from_secs(60)).await;
        let found: Scrubbed = scrubbed.borrow_mut().take().expect("the scrub ends");
        assert!(found.is_cut_short && found.blocks < healthy.blocks, "{found:?}");
        let later = fs.scrub_journal().await.unwrap();
        assert!(later.is_cut_short && later.blocks == 0, "{later:?}");
        fs.unmount().await.unwrap();
    });
}

/// What was found before an error is in what a scrub found, and in the status.
#[test]
fn an_error_hides_nothing_that_was_found_before() {
    let Some(world) = many_parts() else { return };
    let only = only_copies(&blocks(&world));
    let (first, last) = (only[0], only[only.len() - 1]);
    let bad = unread(&world, |extent| IoError::Transient { extent });
    let disk = Rc::new(world.disk.clone());
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        damage(&*disk, &[first]).await;
        bad.replace(extents(&[last]));
        let found = fs.scrub_journal().await.unwrap();
        assert!(found.lost == 1 && found.is_cut_short, "{found:?}");
        let failure = &found.failure;
        assert!(matches!(failure, Some(Error::Io(IoError::Transient { .. }))), "{found:?}");
        assert_eq!(fs.last_scrub(), Some(LastScrub { ended_ago: Nanos(0), found }));
    });
}

/// One that is asked for while one in idle time is under way is the last, and the other ends.
#[test]
fn an_older_scrub_in_idle_time_does_not_replace_a_whole_one() {
    let Some(world) = many_parts() else { return };
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.max_age(None);
        while fs.scrubbed_blocks() == 0 {
            runtime.sleep(Nanos::from_millis(10)).await;
        }
        assert_eq!(fs.last_scrub(), None, "one in idle time is under way");
        let asked = fs.scrub_journal().await.unwrap();
        let read = fs.scrubbed_blocks();
        assert!(!asked.is_cut_short && asked.blocks < read, "{asked:?}");
        let hour = Nanos::from_secs(3600);
        runtime.sleep(hour).await;
        assert_eq!(fs.last_scrub(), Some(LastScrub { ended_ago: hour, found: asked }));
        assert_eq!(fs.scrubbed_blocks(), read);
        fs.unmount().await.unwrap();
    });
}

/// A checkpoint that failed has some content of damaged copies in memory. A scrub writes it anew.
#[test]
fn what_a_failed_checkpoint_has_healed_is_written_anew() {
    let mut renewed = Vec::new();
    for is_tried in [false, true] {
        let Some(world) = left_full() else { return };
        let some = targets(&world.settled());
        let disk = Rc::new(world.disk.clone());
        let found = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            // The content of the oldest copies is in memory, and that of later ones is not.
            for number in 0..5 {
                let dir = fs.lookup(Ino::ROOT, format!("dir {number}").as_bytes()).await.unwrap();
                let link = fs.lookup(dir.ino, b"link").await.unwrap();
                fs.read_link(link.ino).await.unwrap();
            }
            damage(&*disk, &some).await;
            if is_tried {
                let tried = fs.bring_home().await;
                assert!(matches!(tried, Err(Error::Io(IoError::Checksum { .. }))), "{tried:?}");
            }
            let found = fs.scrub_journal().await.unwrap();
            assert!(found.renewed >= 5 && found.lost > 0, "{found:?}");
            let again = fs.scrub_journal().await.unwrap();
            assert_eq!((again.renewed, again.lost), (0, found.lost));
            drop(fs.unmount().await);
            found
        });
        renewed.push((found.renewed, found.lost));
    }
    assert_eq!(renewed[0], renewed[1], "a checkpoint that failed changes nothing");
}
