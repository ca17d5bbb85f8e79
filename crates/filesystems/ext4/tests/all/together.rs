//! Small files that are written back together: requests, failures, waits and crashes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Judged, World, mkfs, mount};
use crate::streams::Drive;
use bytes::Bytes;
use manylogs_block::{IoError, Nanos, Request, Rng, to_usize};
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New};
use manylogs_sim::Survival;

const MIB: u64 = 160;
const PAGE: usize = 4096;

/// Pages that each say whose they are.
fn pages(file: u64, version: u64, pages: usize) -> Vec<u8> {
    let page = |number| {
        let mut page = vec![0; PAGE];
        page[..8].copy_from_slice(b"together");
        page[8..16].copy_from_slice(&file.to_le_bytes());
        page[16..24].copy_from_slice(&version.to_le_bytes());
        page[24] = number;
        page
    };
    (0..).take(pages).flat_map(page).collect()
}

/// The files whose pages are in a write's content.
fn files_in(content: &Bytes) -> Vec<u64> {
    let ours = content.chunks(PAGE).filter(|page| page.starts_with(b"together"));
    ours.map(|page| u64::from_le_bytes(page[8..16].try_into().unwrap())).collect()
}

fn name(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

async fn make(fs: &Ext4, number: u64) -> Ino {
    fs.create(Ino::ROOT, &name(number), New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// Notes the files in each write of content, and fails writes that have a page of file `failing`.
fn watch(world: &World, failing: Option<u64>) -> Rc<RefCell<Vec<usize>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&seen);
    world.disk.fail_requests(Box::new(move |request| {
        let Request::Write { extent, payload, .. } = request else { return None };
        let files = files_in(&payload.to_bytes()?);
        if !files.is_empty() {
            noted.borrow_mut().push(files.len());
        }
        let fails = failing.is_some_and(|number| files.contains(&number));
        fails.then_some(IoError::Transient { extent: *extent })
    }));
    seen
}

#[test]
fn six_hundred_new_files_are_five_writes() {
    let Some(image) = mkfs(MIB, &[]) else { return };
    let world = World::new(1, MIB, image);
    let seen = watch(&world, None);
    let unmounted = world.run(async |fs: Ext4| {
        for number in 0..600 {
            let ino = make(&fs, number).await;
            fs.write(ino, 0, pages(number, 0, 1)).await?;
        }
        fs.sync_all().await?;
        fs.unmount().await
    });
    assert_eq!(unmounted, Ok(Ok(())));
    assert_eq!(*seen.borrow(), [128, 128, 128, 128, 88]);
    assert_is(&world, 600, |number| pages(number, 0, 1));
}

/// Checks what files hold, by a new mount, and the whole file system.
fn assert_is(world: &World, files: u64, expected: impl Fn(u64) -> Vec<u8> + 'static) {
    let again = World::new(2, MIB, world.settled());
    let read = again.run(async move |fs: Ext4| {
        for number in 0..files {
            let ino = fs.lookup(Ino::ROOT, &name(number)).await?.ino;
            let read = fs.read(ino, 0, 1 << 20).await?;
            assert!(read == expected(number), "file {number}");
        }
        fs.unmount().await
    });
    assert_eq!(read, Ok(Ok(())));
    again.check();
}

/// Files of up to 20 pages, some overwritten, cut or removed while they are written back.
#[test]
fn files_that_change_meanwhile_hold_what_was_written_last() {
    const FILES: u64 = 150;
    let Some(image) = mkfs(MIB, &[]) else { return };
    for seed in 0..10 {
        let world = World::new(seed, MIB, image.clone());
        let seen = watch(&world, None);
        let left = Rc::new(RefCell::new(Vec::new()));
        let found = Rc::clone(&left);
        let runtime = world.runtime();
        let unmounted = world.run(async move |fs: Ext4| {
            let mut rng = Rng::new(seed);
            let mut files = Vec::new();
            for number in 0..FILES {
                let (ino, len) = (make(&fs, number).await, to_usize(1 + rng.below(20)));
                files.push((ino, pages(number, 0, len)));
                fs.write(ino, 0, files.last().unwrap().1.clone()).await?;
            }
            for round in 1..6 {
                let (syncing, done) = (fs.clone(), Rc::new(Cell::new(false)));
                let is_done = Rc::clone(&done);
                runtime.spawn(async move {
                    syncing.sync_all().await.unwrap();
                    is_done.set(true);
                });
                for _ in 0..60 {
                    let number = rng.below(FILES);
                    let (ino, held) = &mut files[to_usize(number)];
                    let len = held.len() / PAGE;
                    match rng.below(4) {
                        0 => fs.sync(*ino).await?,
                        1 if len > 1 => {
                            held.truncate(PAGE * to_usize(1 + rng.below(len as u64)));
                            let size = Some(held.len() as u64);
                            fs.change(*ino, Change { size, ..Change::default() }).await?;
                        }
                        _ => {
                            *held = pages(number, round, len);
                            fs.write(*ino, 0, held.clone()).await?;
                        }
                    }
                    runtime.sleep(Nanos::from_micros(rng.below(2000))).await;
                }
                while !done.get() {
                    runtime.sleep(Nanos::from_millis(1)).await;
                }
            }
            *found.borrow_mut() = files.into_iter().map(|(_, held)| held).collect();
            fs.unmount().await
        });
        assert_eq!(unmounted, Ok(Ok(())));
        let most = seen.borrow().iter().copied().max();
        assert!(most > Some(32), "seed {seed}: {most:?} pages together");
        let left = left.take();
        assert_is(&world, FILES, move |number| left[to_usize(number)].clone());
    }
}

/// The device cannot write the content of one file: nobody else loses anything.
#[test]
fn a_failing_write_is_told_to_its_file_alone() {
    const FILES: u64 = 40;
    const BAD: u64 = 17;
    let Some(image) = mkfs(MIB, &[]) else { return };
    let world = World::new(1, MIB, image);
    let seen = watch(&world, Some(BAD));
    let told = world.run(async |fs: Ext4| {
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(make(&fs, number).await);
        }
        for (number, ino) in (0..).zip(&files) {
            fs.write(*ino, 0, pages(number, 0, 1)).await.unwrap();
        }
        assert!(matches!(fs.sync_all().await, Err(Error::Io(_))));
        let mut told = Vec::new();
        for (number, ino) in (0..).zip(files) {
            if fs.sync(ino).await.is_err() {
                told.push(number);
            }
        }
        told
    });
    assert_eq!(told.unwrap(), [BAD]);
    assert_eq!(seen.borrow()[0], 40, "all were tried together");
    let left = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    let again = World::new(2, MIB, left);
    let read = again.run(async |fs: Ext4| {
        for number in (0..FILES).filter(|number| *number != BAD) {
            let ino = fs.lookup(Ino::ROOT, &name(number)).await.unwrap().ino;
            assert!(fs.read(ino, 0, PAGE).await.unwrap() == pages(number, 0, 1), "{number}");
        }
        fs.unmount().await
    });
    assert_eq!(read, Ok(Ok(())));
}

/// Files that do not lie side by side, on a drive that writes a block in 10 ms.
#[test]
fn a_sync_of_one_file_does_not_wait_for_others() {
    const FILES: u64 = 100;
    let Some(image) = mkfs(MIB, &[]) else { return };
    let world = World::new(1, MIB, image);
    let (drive, runtime) = (Drive::new(&world, 1_250_000, Nanos(0)), world.runtime());
    let mounting = mount(drive, runtime.clone());
    let took = world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            let ino = make(&fs, number).await;
            fs.write(ino, 0, pages(number, 0, 2)).await.unwrap();
            files.push(ino);
        }
        fs.sync_all().await.unwrap();
        for (number, ino) in (0..).zip(&files) {
            fs.write(*ino, 0, pages(number, 1, 1)).await.unwrap();
        }
        let syncing = fs.clone();
        runtime.spawn(async move { syncing.sync_all().await.unwrap() });
        runtime.sleep(Nanos::from_millis(25)).await;
        let began = runtime.now();
        fs.sync_content(files[90]).await.unwrap();
        let took = runtime.now().since(began);
        fs.unmount().await.unwrap();
        took
    });
    // What is under way, its own, and one of others before its own and before its flush.
    assert!(took <= Nanos::from_millis(40), "{took:?}");
    world.check();
}

#[cfg(feature = "plant")]
#[test]
fn bugs_of_writing_together_are_noticed() {
    use manylogs_plant::Bug;
    for (bug, test) in [
        (Bug::Ext4TogetherFailedClean, a_failing_write_is_told_to_its_file_alone as fn()),
        (Bug::Ext4TogetherNotLetGo, a_sync_of_one_file_does_not_wait_for_others),
    ] {
        crate::common::assert_noticed(bug, test);
    }
}
