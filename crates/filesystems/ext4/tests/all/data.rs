//! Content in the journal, and syncs of content without times.

use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs};
use manylogs_block::{Nanos, Rng};
use manylogs_ext4::{Allocate, Change, Error, Ext4, FileKind, Ino, Mode, New, SetXattr};
use manylogs_sim::Survival;

const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Mounts the world's disk in this mode and calls `work`.
fn run_in<T: 'static>(mode: Mode, world: &World, work: impl AsyncFnOnce(Ext4) -> T + 'static) -> T {
    let mounting = crate::common::mount_in(mode, Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move { work(mounting.await.unwrap()).await })
}

async fn file(fs: &Ext4, name: &str) -> Ino {
    fs.create(Ino::ROOT, name.as_bytes(), New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

#[test]
fn journalled_content_is_read_overwritten_cut_and_comes_home() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    run_in(Mode::Data, &world, async |fs: Ext4| {
        let ino = file(&fs, "file").await;
        let mut expected = vec![0; 3 << 20];
        let mut rng = Rng::new(9);
        for round in 0..300 {
            let len = 1 + usize::try_from(rng.below(60_000)).unwrap();
            let at = usize::try_from(rng.below((expected.len() - len) as u64)).unwrap();
            let mut bytes = content(round, len);
            if len > 4 {
                // A block of content may look like one of the journal's own.
                bytes[..4].copy_from_slice(&MAGIC);
            }
            expected[at..at + len].copy_from_slice(&bytes);
            fs.write(ino, at as u64, bytes).await.unwrap();
            match rng.below(10) {
                0 => {
                    let range = at as u64..(at + len) as u64;
                    fs.allocate(ino, range, Allocate::Hole, true).await.unwrap();
                    expected[at..at + len].fill(0);
                }
                1 => fs.sync(ino).await.unwrap(),
                3 => {
                    let range = at as u64..(at + len) as u64;
                    fs.allocate(ino, range, Allocate::Zeroes, true).await.unwrap();
                    expected[at..at + len].fill(0);
                }
                2 => {
                    let size = Some(at as u64);
                    fs.change(ino, Change { size, ..Change::default() }).await.unwrap();
                    expected[at..].fill(0);
                    let size = Some(expected.len() as u64);
                    fs.change(ino, Change { size, ..Change::default() }).await.unwrap();
                }
                _ => {}
            }
            let read = fs.read(ino, 0, expected.len()).await.unwrap();
            assert!(read[..] == expected[..read.len()], "round {round}");
        }
        fs.unmount().await.unwrap();
    });
    world.check();
}

/// Data that has a promise of a block gets one, whatever other requests take.
#[test]
fn attributes_and_names_leave_what_was_promised_to_data() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(3, SMALL_MIB, image);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        let ino = file(&fs, "file").await;
        let mut written = 0;
        while fs.write(ino, written * 65_536, content(written, 65_536)).await.is_ok() {
            written += 1;
        }
        let mut refused = 0;
        for number in 0..600 {
            let name = format!("{number} {}", "n".repeat(200)).into_bytes();
            let new = New::plain(FileKind::File, 0o644);
            let Ok(made) = fs.create(Ino::ROOT, &name, new).await else {
                refused += 1;
                continue;
            };
            let value = content(number, 3000);
            let set = fs.set_xattr(made.ino, b"user.large", value, SetXattr::default()).await;
            refused += u32::from(set == Err(Error::NoSpace));
        }
        assert!(refused > 0);
        fs.sync(ino).await.unwrap();
        for part in 0..written {
            let read = fs.read(ino, part * 65_536, 65_536).await.unwrap();
            assert!(read == content(part, 65_536), "part {part}");
        }
        fs.unmount().await.unwrap();
    });
    world.check();
}

#[test]
fn one_commit_makes_content_and_metadata_durable() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for seed in 0..40 {
        let world = World::new(seed, SMALL_MIB, image.clone());
        let synced = run_in(Mode::Data, &world, async move |fs: Ext4| {
            let mut rng = Rng::new(seed);
            let mut synced = Vec::new();
            for number in 0..30 {
                let name = format!("file {}", rng.below(8));
                let ino = match fs.lookup(Ino::ROOT, name.as_bytes()).await {
                    Ok(known) => known.ino,
                    Err(error) => {
                        assert_eq!(error, Error::NotFound);
                        file(&fs, &name).await
                    }
                };
                let bytes = content(number, 1 + usize::try_from(rng.below(90_000)).unwrap());
                fs.write(ino, 0, bytes.clone()).await.unwrap();
                synced.retain(|(known, _)| *known != name);
                if rng.one_in(2) {
                    fs.sync(ino).await.unwrap();
                    synced.push((name, bytes));
                } else if rng.one_in(3) {
                    fs.unlink(Ino::ROOT, name.as_bytes()).await.unwrap();
                }
            }
            synced
        });
        let crashed = world.disk.after_power_cut(Survival::Random, &mut Rng::new(seed));
        let world = World::new(seed, SMALL_MIB, crashed);
        // The next mount may be in another mode.
        let mode = if seed % 2 == 0 { Mode::Ordered } else { Mode::Data };
        run_in(mode, &world, async move |fs: Ext4| {
            for (name, bytes) in synced {
                let ino = fs.lookup(Ino::ROOT, name.as_bytes()).await.unwrap().ino;
                let read = fs.read(ino, 0, bytes.len()).await.unwrap();
                assert!(read == bytes, "seed {seed}: {name}");
            }
            fs.unmount().await.unwrap();
        });
        world.check();
    }
}

#[test]
fn what_is_overwritten_in_place_is_durable_without_its_times() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for (seed, alone) in [(1, true), (2, false)] {
        let world = World::new(seed, SMALL_MIB, image.clone());
        let (first, last) = run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let ino = file(&fs, "file").await;
            fs.write(ino, 0, content(1, 50_000)).await.unwrap();
            fs.sync(ino).await.unwrap();
            let first = fs.attributes(ino).await.unwrap().modified;
            fs.write(ino, 8192, content(2, 20_000)).await.unwrap();
            if alone { fs.sync_content(ino).await } else { fs.sync(ino).await }.unwrap();
            (first, fs.attributes(ino).await.unwrap().modified)
        });
        assert!(first < last);
        let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(seed));
        let world = World::new(seed, SMALL_MIB, crashed);
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let known = fs.lookup(Ino::ROOT, b"file").await.unwrap();
            let read = fs.read(known.ino, 8192, 20_000).await.unwrap();
            assert!(read == content(2, 20_000));
            // No transaction was committed for the time of the content alone.
            assert_eq!(known.modified, if alone { first } else { last });
        });
    }
}

/// A transaction that is being committed may have flushed before the content was written.
#[test]
fn what_is_overwritten_while_a_commit_is_under_way_is_durable() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for step in 0..60 {
        let world = World::new(step, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let ino = file(&fs, "file").await;
            fs.write(ino, 0, content(1, 50_000)).await.unwrap();
            fs.sync(ino).await.unwrap();
            let permissions = Some(0o600);
            fs.change(ino, Change { permissions, ..Change::default() }).await.unwrap();
            let other = fs.clone();
            runtime.spawn(async move { drop(other.sync_all().await) });
            runtime.sleep(Nanos::from_micros(100 * step)).await;
            fs.write(ino, 0, content(2, 50_000)).await.unwrap();
            fs.sync_content(ino).await.unwrap();
        });
        let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(step));
        let world = World::new(step, SMALL_MIB, crashed);
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let known = fs.lookup(Ino::ROOT, b"file").await.unwrap();
            let read = fs.read(known.ino, 0, 50_000).await.unwrap();
            assert!(read == content(2, 50_000), "step {step}");
        });
    }
}

/// The commit of the file's times flushes its data, too.
#[test]
fn what_was_written_through_is_durable_after_a_sync_of_everything() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for flags in 0..8_u64 {
        let world = World::new(flags, SMALL_MIB, image.clone());
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let ino = file(&fs, "file").await;
            fs.write(ino, 0, content(1, 50_000)).await.unwrap();
            fs.sync_all().await.unwrap();
            if flags & 2 != 0 {
                // This sync flushes only the earlier data, not the data written next.
                fs.write_through(ino, 0, content(3, 50_000)).await.unwrap();
                fs.sync_all().await.unwrap();
            }
            fs.write_through(ino, 0, content(2, 50_000)).await.unwrap();
            if flags & 4 != 0 {
                let permissions = Some(0o600);
                fs.change(ino, Change { permissions, ..Change::default() }).await.unwrap();
            }
            fs.sync_all().await.unwrap();
        });
        let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(flags));
        let world = World::new(flags, SMALL_MIB, crashed);
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let known = fs.lookup(Ino::ROOT, b"file").await.unwrap();
            let read = fs.read(known.ino, 0, 50_000).await.unwrap();
            assert!(read == content(2, 50_000), "flags {flags}");
        });
    }
}

/// Pages that are cut off give up their promises of blocks.
#[test]
fn what_is_written_and_cut_leaves_the_room_that_it_was_promised() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        let ino = file(&fs, "file").await;
        let cut = || Change { size: Some(0), ..Change::default() };
        for round in 0..40 {
            let written = fs.write(ino, 0, content(round, 1 << 20)).await;
            assert_eq!(written, Ok(()), "round {round}");
            fs.change(ino, cut()).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    world.check();
}

/// A file of many pieces is cut in several transactions: a crash in between does not leave it with
/// blocks behind its end.
#[test]
fn a_cut_that_a_crash_interrupts_is_finished() {
    const PIECES: u64 = 700;
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        let ino = file(&fs, "file").await;
        for piece in 0..PIECES {
            fs.write(ino, 2 * piece * 4096, content(piece, 4096)).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    let image = world.settled();
    let mut began = 0;
    for step in 0..60 {
        let world = World::new(step, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
            let (cutting, syncing) = (fs.clone(), fs.clone());
            let cut = Change { size: Some(0), ..Change::default() };
            runtime.spawn(async move { drop(cutting.change(ino, cut).await) });
            let clock = runtime.clone();
            runtime.spawn(async move {
                while syncing.sync_all().await.is_ok() {
                    clock.sleep(Nanos(10_000)).await;
                }
            });
            runtime.sleep(Nanos::from_micros(500 * step)).await;
        });
        let crashed = world.disk.after_power_cut(Survival::Random, &mut Rng::new(step));
        let world = World::new(step, SMALL_MIB, crashed);
        let known = run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            let known = fs.lookup(Ino::ROOT, b"file").await.unwrap();
            fs.unmount().await.unwrap();
            known
        });
        if known.size == 0 {
            began += 1;
            assert_eq!(known.sectors, 0, "step {step}");
        }
        world.check();
    }
    assert!(began > 10);
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;
    let read = journalled_content_is_read_overwritten_cut_and_comes_home;
    crate::common::assert_noticed(Bug::Ext4JournalledContentUnread, read);
    let overwritten = what_is_overwritten_in_place_is_durable_without_its_times;
    crate::common::assert_noticed(Bug::Ext4ContentSyncUnflushed, overwritten);
}

/// The interval is a mount option of ext4.
#[test]
fn what_nobody_syncs_is_durable_after_the_interval() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for (given, waited, is_durable) in [(None, 6, true), (Some(30), 6, false), (Some(30), 31, true)]
    {
        let world = World::new(waited, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(Mode::Ordered, &world, async move |fs: Ext4| {
            if let Some(seconds) = given {
                fs.commit_every(Nanos::from_secs(seconds));
            }
            let before = fs.journal_stats().transactions;
            file(&fs, "file").await;
            runtime.sleep(Nanos::from_secs(waited)).await;
            let committed = fs.journal_stats().transactions > before;
            assert_eq!(committed, is_durable, "{given:?} {waited}");
        });
    }
}
