//! Files that need durability and no place (O_DUR): what the logs keep of them, and planted bugs
//! that change that.

use std::rc::Rc;

#[cfg(feature = "plant")]
use crate::common::all_are_noticed;
use crate::common::{Case, Disk, all_hold, file, images, with};
use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Request, to_usize};
use manylogs_ext4::{
    Allocate, Change, DURABLE_XATTR, DurableNames, Error, Ext4, FileKind, Ino, New, SetXattr, Taken,
};
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::{Images, content};

/// Length of a write, in bytes, that would go home in other files.
const LONG: usize = 300_000;
/// Bytes of its blocks.
const LONG_KEPT: u64 = (LONG as u64).next_multiple_of(4096);

async fn set(fs: &Ext4, ino: Ino, value: &'static str) -> Result<(), Error> {
    fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), value, SetXattr::default()).await
}

async fn durable_file(fs: &Ext4, name: &[u8]) -> Ino {
    let ino = file(fs, name).await;
    set(fs, ino, "1").await.unwrap();
    ino
}

/// Writes from `at` on, and syncs.
async fn written(fs: &Ext4, ino: Ino, at: u64, content: Vec<u8>) {
    fs.write(ino, at, content).await.unwrap();
    fs.sync(ino).await.unwrap();
}

fn live(near: &Near) -> u64 {
    near.volume().stats().o_dur_live_bytes
}

/// Content is kept in the logs whatever its length, and by checkpoints.
fn content_is_kept(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        let before = near.volume().stats().bypassed_writes;
        written(fs, ino, 0, content(1, LONG)).await;
        near.volume().checkpoint().await.unwrap();
        let stats = near.volume().stats();
        let kept = stats.o_dur_live_bytes == LONG_KEPT && stats.o_dur_home_bytes == 0;
        let is_read = fs.read(ino, 0, LONG).await.unwrap() == content(1, LONG);
        assert!(is_read && stats.bypassed_writes == before, "it went home or is not there");
        (!kept).then_some("what needs no place went home")
    })
}

/// Content of other files in the same transaction is not kept.
fn others_are_not_kept(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let (log, plain) = (durable_file(fs, b"log").await, file(fs, b"plain").await);
        fs.write(plain, 0, content(1, 20_000)).await.unwrap();
        fs.write(log, 0, content(2, 8192)).await.unwrap();
        fs.sync_all().await.unwrap();
        (live(&near) != 8192).then_some("what has a place is kept in the logs")
    })
}

/// Older programs must refuse the logs, but only from the first kept version on.
fn older_programs_are_kept_away(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, disk: Disk, _| {
        let fs = near.fs();
        let anchors = near.volume().layout().anchors().unwrap();
        let keeps = async || {
            let extent = Extent::new(anchors.first.start.0, 8);
            let read = disk.submit(Request::Read { extent }).await.unwrap();
            read.to_bytes().unwrap()[48] & 8 != 0
        };
        let ino = durable_file(fs, b"log").await;
        assert!(!keeps().await, "nothing is kept yet");
        written(fs, ino, 0, content(1, 4096)).await;
        (!keeps().await).then_some("the superblock does not say that versions are kept")
    })
}

/// When a file loses the property, nothing of it is kept, and reads find the same content.
fn what_is_cleared_is_let_go(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        written(fs, ino, 0, content(1, LONG)).await;
        // This write is not written back yet.
        fs.write(ino, 4096, content(2, 4096)).await.unwrap();
        set(fs, ino, "0").await.unwrap();
        assert_eq!(fs.read(ino, 4096, 4096).await.unwrap(), content(2, 4096));
        let left = live(&near);
        written(fs, ino, 0, content(3, LONG)).await;
        near.volume().checkpoint().await.unwrap();
        assert_eq!(live(&near), 0);
        assert_eq!(fs.read(ino, 0, LONG).await.unwrap(), content(3, LONG));
        (left > 0).then_some("a file without the property is kept")
    })
}

/// As [`what_is_cleared_is_let_go`], while a transaction that is not durable has content of the
/// file.
fn what_is_not_durable_is_let_go(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, clock: Handle| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        written(fs, ino, 0, content(1, LONG)).await;
        fs.write(ino, 8192, content(2, 65_536)).await.unwrap();
        // The write is written back after 5 s, into a transaction that is committed after 5 s more.
        clock.sleep(Nanos::from_secs(7)).await;
        set(fs, ino, "0").await.unwrap();
        fs.sync_all().await.unwrap();
        assert_eq!(fs.read(ino, 8192, 65_536).await.unwrap(), content(2, 65_536));
        (live(&near) > 0).then_some("content of a file without the property is kept")
    })
}

/// Nothing of a file that ended is kept.
fn ended_files_are_not_kept(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        written(fs, ino, 0, content(1, LONG)).await;
        fs.unlink(Ino::ROOT, b"log").await.unwrap();
        fs.sync_all().await.unwrap();
        (live(&near) > 0).then_some("a file that ended is kept")
    })
}

/// Content written before the property was set stays where it is; later content is kept.
fn setting_it_counts_from_then_on(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"log").await;
        written(fs, ino, 0, content(1, LONG)).await;
        set(fs, ino, "1").await.unwrap();
        assert_eq!(live(&near), 0);
        written(fs, ino, 8192, content(2, 65_536)).await;
        (live(&near) != 65_536).then_some("a file that got the property is not kept")
    })
}

async fn make(fs: &Ext4, dir: Ino, name: &str, kind: FileKind) -> Ino {
    fs.create(dir, name.as_bytes(), New::plain(kind, 0o755)).await.unwrap().ino
}

/// Directories pass the property to new directories and files in them.
fn directories_hand_it_down(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let above = make(fs, Ino::ROOT, "above", FileKind::Directory).await;
        set(fs, above, "1").await.unwrap();
        let below = make(fs, above, "below", FileKind::Directory).await;
        let ino = make(fs, below, "log", FileKind::File).await;
        written(fs, ino, 0, content(1, LONG)).await;
        let unnamed = fs.create_unnamed(below, New::plain(FileKind::File, 0o600), true).await;
        let unnamed = unnamed.unwrap().ino;
        written(fs, unnamed, 0, content(2, 4096)).await;
        let kept = live(&near);
        fs.close(unnamed, 1).await.unwrap();
        (kept != LONG_KEPT + 4096).then_some("what a directory hands down is not there")
    })
}

fn keep_named(near: &Near, patterns: &str) {
    near.fs().keep_named(DurableNames::of_list(patterns, ',').unwrap());
}

/// A file gets the property by its name when it is created, linked or renamed.
fn names_are_judged(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        keep_named(&near, "WiredTigerLog.*,pg_wal/*");
        let log = make(fs, Ino::ROOT, "WiredTigerLog.1", FileKind::File).await;
        written(fs, log, 0, content(1, LONG)).await;
        assert_eq!(live(&near), LONG_KEPT);
        let other = make(fs, Ino::ROOT, "WiredTigerTmplog.1", FileKind::File).await;
        written(fs, other, 0, content(2, 4096)).await;
        assert_eq!(live(&near), LONG_KEPT, "the name fits no pattern");
        let (old, new): (&[u8], &[u8]) = (b"WiredTigerTmplog.1", b"WiredTigerLog.2");
        fs.rename((Ino::ROOT, old), (Ino::ROOT, new), Taken::Replaced).await.unwrap();
        assert_eq!(live(&near), LONG_KEPT, "a new name moves nothing");
        written(fs, other, 4096, content(3, 4096)).await;
        let kept = live(&near);
        // A name that fits no pattern any more takes nothing away.
        fs.rename((Ino::ROOT, new), (Ino::ROOT, b"x"), Taken::Replaced).await.unwrap();
        written(fs, other, 8192, content(4, 4096)).await;
        assert!(live(&near) >= kept);
        let third = make(fs, Ino::ROOT, "third", FileKind::File).await;
        fs.link(third, Ino::ROOT, b"WiredTigerLog.3").await.unwrap();
        let before = live(&near);
        written(fs, third, 0, content(5, 4096)).await;
        assert!(live(&near) == before + 4096 || kept != LONG_KEPT + 4096, "one more name");
        (kept != LONG_KEPT + 4096).then_some("a file that was renamed is not judged")
    })
}

/// Patterns are matched against the current names of directories.
fn names_of_directories_are_those_of_now(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let data = make(fs, Ino::ROOT, "data", FileKind::Directory).await;
        let early = make(fs, data, "pg_wal", FileKind::Directory).await;
        keep_named(&near, "data/pg_wal/*");
        let log = make(fs, early, "1", FileKind::File).await;
        written(fs, log, 0, content(1, 4096)).await;
        assert_eq!(live(&near), 4096, "its directory was there before the patterns");
        let (old, new): (&[u8], &[u8]) = (b"pg_wal", b"old");
        fs.rename((data, old), (data, new), Taken::Replaced).await.unwrap();
        let late = make(fs, data, "pg_wal", FileKind::Directory).await;
        let plain = make(fs, early, "2", FileKind::File).await;
        written(fs, plain, 0, content(2, 4096)).await;
        let kept = live(&near);
        let log = make(fs, late, "3", FileKind::File).await;
        written(fs, log, 0, content(3, 4096)).await;
        assert_eq!(live(&near), kept + 4096);
        (kept != 4096).then_some("a directory is taken for what it was called")
    })
}

/// Zeroes take no room in the logs if the file had no content there.
fn zeroes_take_no_room(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        const ZEROES: usize = 1 << 20;
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        written(fs, ino, 0, vec![0; ZEROES]).await;
        assert_eq!(live(&near), 0);
        let has = |attributes: manylogs_ext4::Attributes| (attributes.size, attributes.sectors);
        let promised = (ZEROES as u64, ZEROES as u64 / 512);
        assert_eq!(has(fs.attributes(ino).await.unwrap()), promised, "the room is the file's");
        written(fs, ino, 8192, content(1, 65_536)).await;
        assert_eq!(live(&near), 65_536);
        written(fs, ino, 4096, vec![0; 65_536]).await;
        assert_eq!(live(&near), 65_536, "zeroes over content are content");
        // No page is all zeroes, though each begins with a zero byte.
        let mut pages = content(2, 65_536);
        pages.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        written(fs, ino, 1 << 19, pages.clone()).await;
        near.volume().checkpoint().await.unwrap();
        let mut all = vec![0; ZEROES];
        all[8192..8192 + 65_536].copy_from_slice(&content(1, 65_536));
        all[4096..4096 + 65_536].fill(0);
        all[1 << 19..(1 << 19) + 65_536].copy_from_slice(&pages);
        let found = fs.read(ino, 0, ZEROES).await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().size, ZEROES as u64);
        (found != all).then_some("content is taken for zeroes")
    })
}

/// Metadata leads to kept content as to an unwritten block: so what is written over it is kept too,
/// whoever writes it, until a pass.
fn what_is_written_over_kept_content_is_kept(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        fs.keep_synced_writes();
        let ino = file(fs, b"log").await;
        fs.write_synced(ino, 0, content(1, 65_536)).await.unwrap();
        fs.sync_content(ino).await.unwrap();
        assert_eq!(live(&near), 65_536);
        written(fs, ino, 4096, content(2, 4096)).await;
        (live(&near) != 65_536).then_some("content over kept content is not kept")
    })
}

const CASES: [Case; 12] = [
    content_is_kept,
    others_are_not_kept,
    older_programs_are_kept_away,
    what_is_cleared_is_let_go,
    what_is_not_durable_is_let_go,
    ended_files_are_not_kept,
    setting_it_counts_from_then_on,
    directories_hand_it_down,
    names_are_judged,
    names_of_directories_are_those_of_now,
    zeroes_take_no_room,
    what_is_written_over_kept_content_is_kept,
];

#[test]
fn what_is_to_be_kept_is_kept() {
    all_hold(&CASES);
}

#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_of_durable_files_is_noticed() {
    all_are_noticed(manylogs_plant::DURABLE_FILES_SIDE, &CASES);
}

#[test]
fn what_is_synced_at_once_is_kept_where_that_is_asked_for() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"log").await;
        fs.write_synced(ino, 0, content(1, LONG)).await.unwrap();
        fs.sync_content(ino).await.unwrap();
        assert_eq!(live(&near), 0, "nobody asked for it");
        fs.keep_synced_writes();
        fs.write(ino, 100_000, content(2, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        assert_eq!(live(&near), 0);
        fs.write_synced(ino, 8192, content(3, 65_536)).await.unwrap();
        fs.sync_content(ino).await.unwrap();
        assert_eq!(live(&near), 65_536, "the write, and not the file");
        assert_eq!(fs.read(ino, 8192, 65_536).await.unwrap(), content(3, 65_536));
        set(fs, ino, "0").await.unwrap();
        assert_eq!(live(&near), 0, "it is let go like the rest");
        assert_eq!(fs.read(ino, 8192, 65_536).await.unwrap(), content(3, 65_536));
    });
}

#[test]
fn what_is_gone_is_not_kept() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        written(fs, ino, 0, content(1, 16 * 4096)).await;
        let left = async |blocks: u64, what: &str| {
            fs.sync_all().await.unwrap();
            assert_eq!(live(&near), 4096 * blocks, "{what}");
        };
        written(fs, ino, 0, content(2, 4096)).await;
        left(16, "overwritten").await;
        fs.allocate(ino, 4096..12_288, Allocate::Hole, true).await.unwrap();
        left(14, "a hole").await;
        fs.allocate(ino, 12_288..16_384, Allocate::Zeroes, true).await.unwrap();
        left(13, "zeroes").await;
        let change = Change { size: Some(8 * 4096), ..Change::default() };
        fs.change(ino, change).await.unwrap();
        left(5, "a cut").await;
        assert_eq!(fs.read(ino, 0, 4096).await.unwrap(), content(2, 4096));
        assert_eq!(fs.read(ino, 4096, 12_288).await.unwrap(), vec![0; 12_288]);
        fs.unlink(Ino::ROOT, b"log").await.unwrap();
        left(0, "no name").await;
        assert_eq!(near.volume().stats().o_dur_home_bytes, 0);
    });
}

#[test]
fn a_file_that_is_larger_than_all_logs_goes_home_beyond_them() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = durable_file(fs, b"log").await;
        let logs = near.volume().layout().log_sectors().bytes();
        let piece = 400_000;
        let pieces = 5_000_000 / piece as u64;
        // The writes fill the logs several times over.
        for turn in 0..4 {
            for number in 0..pieces {
                let content = content(turn * 100 + number, piece);
                written(fs, ino, number * piece as u64, content).await;
            }
        }
        for number in 0..pieces {
            let found = fs.read(ino, number * piece as u64, piece).await.unwrap();
            assert_eq!(found, content(300 + number, piece));
        }
        let stats = near.volume().stats();
        assert!(stats.o_dur_live_bytes <= logs / 2 + 4 * piece as u64, "{stats:?} of {logs}");
        assert!(stats.o_dur_home_bytes > 0);
    });
}

#[test]
fn what_the_attribute_cannot_say_is_refused() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        for value in ["", "yes", "2", "1\n"] {
            assert!(matches!(set(fs, ino, value).await, Err(Error::Invalid(_))), "{value:?}");
        }
        let pipe = make(fs, Ino::ROOT, "pipe", FileKind::Fifo).await;
        assert!(matches!(set(fs, pipe, "1").await, Err(Error::Invalid(_))));
        set(fs, ino, "1").await.unwrap();
        fs.remove_xattr(ino, DURABLE_XATTR.as_bytes()).await.unwrap();
        let again = fs.remove_xattr(ino, DURABLE_XATTR.as_bytes()).await;
        assert_eq!(again, Err(Error::NoXattr));
        written(fs, ino, 0, content(1, 4096)).await;
        assert_eq!(live(&near), 0);
    });
}

/// Writes to another file too, whose content goes home in checkpoints.
async fn beside(near: &Near, plain: Ino, number: u64) {
    if number.is_multiple_of(4) {
        written(near.fs(), plain, 4096 * (number % 64), content(number, 4096)).await;
    }
    if number.is_multiple_of(100) {
        near.volume().checkpoint().await.unwrap();
    }
}

/// Checks that of `bytes` written nothing went home, and next to nothing was moved.
fn stayed(near: &Near, bytes: u64) {
    let stats = near.volume().stats();
    assert_eq!(stats.o_dur_home_bytes, 0, "{stats:?}");
    assert!(stats.o_dur_moved_bytes <= bytes / 50, "{stats:?}");
}

#[test]
fn files_that_are_appended_to_and_deleted_never_go_home() {
    const PIECE: usize = 36 << 10;
    const FILE_PIECES: u64 = 7;
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let (fs, plain) = (near.fs(), file(near.fs(), b"plain").await);
        let dir = make(fs, Ino::ROOT, "wal", FileKind::Directory).await;
        set(fs, dir, "1").await.unwrap();
        let mut log = Ino::ROOT;
        for number in 0..800 {
            let (of_file, at) = (number / FILE_PIECES, number % FILE_PIECES);
            if at == 0 {
                log = make(fs, dir, &of_file.to_string(), FileKind::File).await;
                if of_file >= 3 {
                    fs.unlink(dir, (of_file - 3).to_string().as_bytes()).await.unwrap();
                }
            }
            written(fs, log, at * PIECE as u64, content(number, PIECE)).await;
            beside(&near, plain, number).await;
        }
        stayed(&near, 800 * PIECE as u64);
    });
}

#[test]
fn a_ring_that_is_overwritten_never_goes_home() {
    const PIECE: usize = 20 << 10;
    const RING: u64 = 25;
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let (fs, plain) = (near.fs(), file(near.fs(), b"plain").await);
        let ring = file(fs, b"ib_logfile0").await;
        written(fs, ring, 0, vec![0; to_usize(RING) * PIECE]).await;
        set(fs, ring, "1").await.unwrap();
        for number in 0..40 * RING {
            let at = number % RING * PIECE as u64;
            fs.write(ring, at, content(number, PIECE)).await.unwrap();
            fs.sync_content(ring).await.unwrap();
            beside(&near, plain, number).await;
        }
        stayed(&near, 40 * RING * PIECE as u64);
        for number in 39 * RING..40 * RING {
            let found = fs.read(ring, number % RING * PIECE as u64, PIECE).await.unwrap();
            assert_eq!(found, content(number, PIECE));
        }
    });
}
