//! Blocks that are freed while the cleaner is about to write them anew.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs};
use crate::lazy::{again, run_in, target};
use manylogs_block::Nanos;
use manylogs_ext4::{Change, Cleaner, Error, Ext4, FileKind, Ino, Mode, New, ReadAhead};
use manylogs_sim::DiskImage;

/// Symbolic links whose targets take a block each.
const LINKS: u64 = 200;
/// Length of the files that take the blocks of the links.
const FILE_BYTES: usize = 16 << 10;
/// How many paces are tried, and how much slower each is than the one before.
const PACES: u64 = 12;
const PACE: Nanos = Nanos::from_micros(150);

fn link(number: u64) -> Vec<u8> {
    format!("link {number}").into_bytes()
}

fn file(number: u64) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

/// A disk whose journal has links as its oldest content, left so that nothing of it is in memory.
/// `None` without mkfs.
fn left_with_links() -> Option<DiskImage> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        fs.create(Ino::ROOT, b"updated", New::plain(FileKind::File, 0o644)).await.unwrap();
        for number in 0..LINKS {
            let new = New { target: target(number).into(), ..New::plain(FileKind::Symlink, 0o777) };
            fs.create(Ino::ROOT, &link(number), new).await.unwrap();
            if number % 20 == 0 {
                fs.sync_all().await.unwrap();
            }
        }
        fs.unmount().await.unwrap();
    });
    Some(world.settled())
}

/// Updates a file durably, again and again, so that the journal is filled and cleaned.
async fn update(fs: Ext4, ended: Rc<Cell<bool>>) {
    let ino = fs.lookup(Ino::ROOT, b"updated").await.unwrap().ino;
    for number in 0.. {
        if ended.get() {
            return;
        }
        let permissions = Some(0o400 | (number % 64));
        fs.change(ino, Change { permissions, ..Change::default() }).await.unwrap();
        fs.sync(ino).await.unwrap();
    }
}

/// Makes files until the disk is full. Returns how many are whole.
async fn fill(fs: &Ext4) -> u64 {
    for number in 0.. {
        let new = New::plain(FileKind::File, 0o644);
        let bytes = content(u8::try_from(number % 251).unwrap().into(), FILE_BYTES);
        let written = async {
            let ino = fs.create(Ino::ROOT, &file(number), new).await?.ino;
            fs.write(ino, 0, bytes).await?;
            fs.sync(ino).await
        };
        match written.await {
            Ok(()) => {}
            Err(Error::NoSpace) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a disk is full some day")
}

/// Removes the links at this pace while the cleaner renews them, fills the disk with content, and
/// brings home what the journal holds.
async fn removed_while_renewed(fs: Ext4, runtime: manylogs_block::Handle, pace: Nanos) -> u64 {
    // What is read ahead would be in memory, and not chosen by the cleaner.
    fs.read_ahead(ReadAhead::Off);
    fs.clean_by(Cleaner::Paper);
    let ended = Rc::new(Cell::new(false));
    runtime.spawn(update(fs.clone(), Rc::clone(&ended)));
    while fs.journal_stats().renewed_bytes == 0 {
        runtime.sleep(Nanos::from_micros(100)).await;
    }
    for number in 0..LINKS {
        fs.unlink(Ino::ROOT, &link(number)).await.unwrap();
        runtime.sleep(pace).await;
    }
    ended.set(true);
    fs.sync_all().await.unwrap();
    let files = fill(&fs).await;
    fs.sync_all().await.unwrap();
    fs.bring_home().await.unwrap();
    fs.unmount().await.unwrap();
    files
}

/// Whatever is freed meanwhile, no content of files is overwritten later.
fn nothing_freed_comes_back() {
    let Some(image) = left_with_links() else { return };
    for number in 1..=PACES {
        let world = again(image.clone());
        let (runtime, pace) = (world.runtime(), Nanos(PACE.0 * number));
        let files = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            removed_while_renewed(fs, runtime, pace).await
        });
        let world = again(world.settled());
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            for number in 0..files {
                let ino = fs.lookup(Ino::ROOT, &file(number)).await.unwrap().ino;
                let expected = content(u8::try_from(number % 251).unwrap().into(), FILE_BYTES);
                let read = fs.read(ino, 0, FILE_BYTES).await.unwrap();
                assert!(read == expected, "file {number} of {files}, pace {pace:?}");
            }
            fs.unmount().await.unwrap();
        });
        world.check();
    }
}

#[test]
fn a_block_that_is_freed_while_it_is_renewed_takes_content() {
    nothing_freed_comes_back();
}

#[cfg(feature = "plant")]
#[test]
fn a_renewed_block_that_was_freed_is_noticed() {
    crate::common::assert_noticed(manylogs_plant::Bug::LazyRenewsFreed, nothing_freed_comes_back);
}
