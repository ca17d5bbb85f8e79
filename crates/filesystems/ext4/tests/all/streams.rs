//! The device's work while content is written: in virtual time, so that the figures are exact.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs, mount};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Handle, IoError, Nanos, Request, Rng, Signal, Time,
    completion, to_usize,
};
use manylogs_ext4::{Allocate, Error, Ext4, FileKind, Ino, Mode, New};
use manylogs_sim::{CrashDisk, Survival};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A drive that transfers one request after the other, and answers some time after each.
pub(crate) struct Drive {
    disk: CrashDisk,
    runtime: Handle,
    /// Nanoseconds of a sector.
    per_sector: u64,
    /// Time between the end of a transfer and its answer.
    answer: Nanos,
    /// When the last transfer ends.
    free_at: Cell<Time>,
    /// Time in transfers of writes so far.
    busy: Cell<u64>,
}

impl Drive {
    pub(crate) fn new(world: &World, per_sector: u64, answer: Nanos) -> Rc<Self> {
        Rc::new(Self {
            disk: world.disk.clone(),
            runtime: world.runtime(),
            per_sector,
            answer,
            free_at: Cell::default(),
            busy: Cell::default(),
        })
    }
}

impl BlockDevice for Drive {
    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let sectors = request.extent().unwrap_or_default().len.0;
        let transfer = Nanos(sectors * self.per_sector);
        if matches!(request, Request::Write { .. }) {
            self.busy.set(self.busy.get() + transfer.0);
        }
        let now = self.runtime.now();
        self.free_at.set(self.free_at.get().max(now) + transfer);
        let sleep = self.runtime.sleep(self.free_at.get().since(now) + self.answer);
        let answer = self.disk.submit(request);
        let (completer, later) = completion();
        self.runtime.spawn(async move {
            sleep.await;
            completer.complete(answer.await);
        });
        later
    }
}

async fn file(fs: &Ext4, name: &str) -> Ino {
    fs.create(Ino::ROOT, name.as_bytes(), New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// Starts `work` for each number, and waits for all of them.
async fn all<F: Future<Output = ()> + 'static>(
    runtime: &Handle,
    numbers: std::ops::Range<u64>,
    work: impl Fn(u64) -> F,
) {
    let (left, ended) = (Rc::new(Cell::new(numbers.end - numbers.start)), Signal::default());
    for number in numbers {
        let (work, left, ended) = (work(number), Rc::clone(&left), ended.clone());
        runtime.spawn(async move {
            work.await;
            left.set(left.get() - 1);
            ended.notify();
        });
    }
    while left.get() > 0 {
        ended.wait().await;
    }
}

/// A new file, and an overwrite: 125 MB/s, answers 4 ms after each transfer, content at 1 GB/s.
#[test]
fn the_drive_works_all_the_time_that_a_stream_takes() {
    const LEN: u64 = 96;
    let Some(image) = mkfs(160, &[]) else { return };
    let world = World::new(1, 160, image);
    let (drive, runtime) = (Drive::new(&world, 4096, Nanos::from_millis(4)), world.runtime());
    let mounting = mount(drive.clone(), runtime.clone());
    let took = world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        let ino = file(&fs, "stream").await;
        fs.sync_all().await.unwrap();
        let mut took = Vec::new();
        for round in 0..2 {
            let (began, busy) = (runtime.now(), drive.busy.get());
            for mib in 0..LEN {
                fs.write(ino, mib * MIB, content(round * LEN + mib, 1 << 20)).await.unwrap();
                runtime.sleep(Nanos::from_millis(1)).await;
            }
            fs.sync(ino).await.unwrap();
            took.push((runtime.now().since(began).0, drive.busy.get() - busy));
        }
        for mib in 0..LEN {
            let read = fs.read(ino, mib * MIB, 1 << 20).await.unwrap();
            assert!(read == content(LEN + mib, 1 << 20), "MiB {mib}");
        }
        fs.unmount().await.unwrap();
        took
    });
    for (took, busy) in took {
        // The first pages come before the drive has anything to do, and the sync waits for its
        // last answers.
        let idle = took - busy;
        println!("{} us, of which the drive waited {} us", took / 1000, idle / 1000);
        assert!(busy >= LEN * 2048 * 4096);
        assert!(idle < busy / 10, "{idle} ns of {took} ns");
    }
    world.check();
}

#[test]
fn writes_through_to_different_pages_do_not_wait_for_one_another() {
    let span = Nanos::from_millis(10);
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let (drive, runtime) = (Drive::new(&world, 0, span), world.runtime());
    let mounting = mount(drive, runtime.clone());
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        let ino = file(&fs, "file").await;
        fs.write(ino, 0, vec![1; 16 * 4096]).await.unwrap();
        fs.sync(ino).await.unwrap();
        all(&runtime, 0..16, |page| {
            let (fs, runtime) = (fs.clone(), runtime.clone());
            async move {
                runtime.sleep(Nanos::from_millis(page)).await;
                let began = runtime.now();
                fs.write_through(ino, page * PAGE, content(page, 4096)).await.unwrap();
                assert_eq!(runtime.now().since(began), span, "page {page}");
            }
        })
        .await;
        for page in 0..16 {
            assert!(fs.read(ino, page * PAGE, 4096).await.unwrap() == content(page, 4096));
        }
        // The same page is written twice, in the order of the writes.
        let began = runtime.now();
        all(&runtime, 0..2, |number| {
            let (fs, runtime) = (fs.clone(), runtime.clone());
            async move {
                runtime.sleep(Nanos::from_millis(number)).await;
                fs.write_through(ino, 0, content(100 + number, 4096)).await.unwrap();
            }
        })
        .await;
        assert_eq!(runtime.now().since(began), Nanos(2 * span.0));
        fs.unmount().await.unwrap();
    });
    let runtime = world.runtime();
    let mounting = mount(Rc::new(world.disk.clone()), runtime);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        assert!(fs.read(ino, 0, 4096).await.unwrap() == content(101, 4096));
        fs.unmount().await.unwrap();
    });
    world.check();
}

/// The content of a page: 512 times its number and the version.
fn stamped(page: u64, version: u64) -> Vec<u8> {
    (page << 32 | version).to_le_bytes().repeat(512)
}

/// The version that a page holds, 0 for zeroes; `None` if it is neither zeroes nor one version of
/// this page.
fn version_of(page: u64, bytes: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap()) & u64::from(u32::MAX);
    let zeroes = bytes.iter().all(|byte| *byte == 0);
    (zeroes || bytes == stamped(page, version)).then_some(version)
}

/// Several clients write with `O_DIRECT` into holes, unwritten and written blocks, and sync now and
/// then, until the power is cut. Afterwards data written before a sync began is there, and each
/// page is whole.
#[test]
fn parts_that_were_written_side_by_side_survive_as_they_were_synced() {
    const PAGES: u64 = 96;
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let mut kept = 0;
    for mode in [Mode::Ordered, Mode::Data] {
        for seed in 0..40 {
            let world = World::new(seed, SMALL_MIB, image.clone());
            let runtime = world.runtime();
            let mounting =
                crate::common::mount_in(mode, Rc::new(world.disk.clone()), runtime.clone());
            // For each page: the last version written, and the last that a sync made durable.
            let versions = Rc::new(RefCell::new(vec![(0, 0); to_usize(PAGES)]));
            let noted = Rc::clone(&versions);
            let stop_at = Nanos(5_000_000 + Rng::new(seed).below(120_000_000));
            world.sim.block_on(world.user, async move {
                let fs = mounting.await.unwrap();
                let ino = file(&fs, "file").await;
                fs.write(ino, (PAGES - 1) * PAGE, vec![0; 4096]).await.unwrap();
                fs.write(ino, 0, vec![0; 32 * 4096]).await.unwrap();
                fs.allocate(ino, 32 * PAGE..64 * PAGE, Allocate::Blocks, true).await.unwrap();
                fs.sync_all().await.unwrap();
                for client in 0..8 {
                    let (fs, noted) = (fs.clone(), Rc::clone(&noted));
                    let mut rng = Rng::new(seed << 8 | client);
                    runtime.spawn(async move {
                        loop {
                            // Each client has its own pages.
                            let page = 8 * rng.below(PAGES / 8) + client;
                            let at = to_usize(page);
                            let version = noted.borrow()[at].0 + 1;
                            let bytes = stamped(page, version);
                            fs.write_through(ino, page * PAGE, bytes).await.unwrap();
                            noted.borrow_mut()[at].0 = version;
                            if rng.one_in(8) {
                                let before: Vec<u64> =
                                    noted.borrow().iter().map(|(written, _)| *written).collect();
                                fs.sync_content(ino).await.unwrap();
                                let mut noted = noted.borrow_mut();
                                noted.iter_mut().zip(before).for_each(|((_, synced), before)| {
                                    *synced = before.max(*synced);
                                });
                            }
                        }
                    });
                }
                runtime.sleep(stop_at).await;
            });
            world.sim.kill(world.user);
            let survival = [Survival::Nothing, Survival::Random][to_usize(seed) % 2];
            let crashed = world.disk.after_power_cut(survival, &mut Rng::new(seed));
            let world = World::new(seed, SMALL_MIB, crashed);
            let mounting =
                crate::common::mount_in(mode, Rc::new(world.disk.clone()), world.runtime());
            let synced = versions.borrow().clone();
            kept += world.sim.block_on(world.user, async move {
                let fs = mounting.await.unwrap();
                let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
                for (page, (_, synced)) in (0..).zip(&synced) {
                    let bytes = fs.read(ino, page * PAGE, 4096).await.unwrap();
                    let found = version_of(page, &bytes);
                    let found = found.unwrap_or_else(|| panic!("{mode:?} {seed}: page {page}"));
                    assert!(found >= *synced, "{mode:?} {seed}: page {page} {found} {synced}");
                }
                fs.unmount().await.unwrap();
                synced.iter().filter(|(_, synced)| *synced > 0).count()
            });
            world.check();
        }
    }
    assert!(kept > 500, "{kept} pages were synced");
}

/// A file that is longer than the batches under way never shows earlier content of its blocks.
#[test]
fn a_crash_in_a_stream_shows_content_or_zeroes() {
    const PAGES: u64 = 12 * MIB / PAGE;
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let mut lengths = Vec::new();
    for seed in 0..30 {
        let world = World::new(seed, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        let mounting = mount(Rc::new(world.disk.clone()), runtime.clone());
        let stop_at = Nanos(1_000_000 + Rng::new(seed).below(30_000_000));
        world.sim.block_on(world.user, async move {
            let fs = mounting.await.unwrap();
            let old = file(&fs, "old").await;
            fs.write(old, 0, vec![0xEE; 14 << 20]).await.unwrap();
            fs.sync(old).await.unwrap();
            fs.unlink(Ino::ROOT, b"old").await.unwrap();
            fs.sync_all().await.unwrap();
            let ino = file(&fs, "new").await;
            fs.sync_all().await.unwrap();
            let (writer, other) = (fs.clone(), fs.clone());
            let pause = runtime.clone();
            // Commits what is mapped so far.
            runtime.spawn(async move {
                for number in 0.. {
                    let ino = file(&other, &format!("other {number}")).await;
                    other.sync(ino).await.unwrap();
                }
            });
            runtime.spawn(async move {
                for page in (0..PAGES).step_by(64) {
                    let bytes = (page..page + 64).flat_map(|page| stamped(page, 1));
                    let bytes: Vec<u8> = bytes.collect();
                    writer.write(ino, page * PAGE, bytes).await.unwrap();
                    pause.sleep(Nanos(200_000)).await;
                }
                writer.sync(ino).await.unwrap();
            });
            runtime.sleep(stop_at).await;
        });
        world.sim.kill(world.user);
        let crashed = world.disk.after_power_cut(Survival::Random, &mut Rng::new(seed));
        let world = World::new(seed, SMALL_MIB, crashed);
        let length = world.run(async move |fs: Ext4| {
            let known = fs.lookup(Ino::ROOT, b"new").await.unwrap();
            for page in 0..known.size / PAGE {
                let bytes = fs.read(known.ino, page * PAGE, 4096).await.unwrap();
                assert_eq!(version_of(page, &bytes), Some(1), "seed {seed}, page {page}");
            }
            fs.unmount().await.unwrap();
            known.size / PAGE
        });
        lengths.push(length.unwrap());
        world.check();
    }
    println!("pages after a crash: {lengths:?}");
    assert!(lengths.iter().any(|pages| (1..PAGES).contains(pages)), "{lengths:?}");
}

/// A write fails while others are under way: no data is lost, and a second sync writes it.
#[test]
fn what_could_not_be_written_stays_in_memory_and_is_written_again() {
    const LEN: u64 = 7 * MIB;
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for failing in 0..6 {
        let world = World::new(failing, SMALL_MIB, image.clone());
        let mut long = 0;
        world.disk.fail_requests(Box::new(move |request| {
            let extent = request.extent().filter(|extent| extent.len.bytes() >= MIB / 2)?;
            long += 1;
            (long == failing + 1).then_some(IoError::Transient { extent })
        }));
        world
            .run(async move |fs: Ext4| {
                let ino = file(&fs, "file").await;
                let bytes = content(failing, to_usize(LEN));
                fs.write(ino, 0, bytes.clone()).await.unwrap();
                let failed = fs.sync(ino).await;
                assert!(matches!(failed, Err(Error::Io(_))), "{failing}: {failed:?}");
                assert!(fs.read(ino, 0, to_usize(LEN)).await.unwrap() == bytes, "{failing}");
                fs.sync(ino).await.unwrap();
                fs.unmount().await.unwrap();
            })
            .unwrap();
        world.check();
        world
            .run(async move |fs: Ext4| {
                let known = fs.lookup(Ino::ROOT, b"file").await.unwrap();
                let read = fs.read(known.ino, 0, to_usize(LEN)).await.unwrap();
                assert!(read == content(failing, to_usize(LEN)), "{failing}");
                fs.unmount().await.unwrap();
            })
            .unwrap();
    }
}

/// Blocks of a removed file wait for a commit, and an allocation that needs them waits for it too.
#[test]
fn blocks_that_were_freed_a_moment_ago_can_be_allocated() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    world
        .run(async move |fs: Ext4| {
            for round in 0..4 {
                let ino = file(&fs, "file").await;
                let range = 0..12 * MIB;
                let allocated = fs.allocate(ino, range, Allocate::Blocks, false).await;
                assert_eq!(allocated, Ok(()), "round {round}");
                fs.unlink(Ino::ROOT, b"file").await.unwrap();
            }
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
}

/// A file that is removed during write-back gives its room to a waiting request, and the rest of it
/// is not written.
#[test]
fn what_is_being_removed_makes_room_and_is_not_written() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for allocates in [true, false] {
        let world = World::new(1, SMALL_MIB, image.clone());
        let (drive, runtime) = (Drive::new(&world, 40_960, Nanos(0)), world.runtime());
        let mounting = mount(drive.clone(), runtime.clone());
        world.sim.block_on(world.user, async move {
            let fs = mounting.await.unwrap();
            let (old, new) = (file(&fs, "old").await, file(&fs, "new").await);
            fs.sync_all().await.unwrap();
            let busy = drive.busy.get();
            fs.write(old, 0, vec![1; 13 << 20]).await.unwrap();
            runtime.sleep(Nanos::from_millis(100)).await;
            let remover = fs.clone();
            runtime.spawn(async move { remover.unlink(Ino::ROOT, b"old").await.unwrap() });
            runtime.sleep(Nanos::from_millis(1)).await;
            let done = match allocates {
                true => fs.allocate(new, 0..12 * MIB, Allocate::Blocks, false).await,
                false => fs.write(new, 0, vec![2; 12 << 20]).await,
            };
            assert_eq!(done, Ok(()), "allocates: {allocates}");
            if allocates {
                let written = (drive.busy.get() - busy) / 40_960 * 512;
                assert!(written < 10 * MIB, "{written} bytes of 13 MiB that nobody will see");
            }
            fs.unmount().await.unwrap();
        });
        world.check();
    }
}

/// The kernel reports the last close a moment later. A request waits only briefly for a file that
/// stays open.
#[test]
fn whoever_finds_no_room_waits_a_moment_for_the_close_of_a_removed_file() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let runtime = world.runtime();
    world
        .run(async move |fs: Ext4| {
            let (old, new) = (file(&fs, "old").await, file(&fs, "new").await);
            let range = 0..12 * MIB;
            fs.allocate(old, range.clone(), Allocate::Blocks, false).await.unwrap();
            fs.open(old);
            fs.unlink(Ino::ROOT, b"old").await.unwrap();
            let began = runtime.now();
            let refused = fs.allocate(new, range.clone(), Allocate::Blocks, false).await;
            assert_eq!(refused, Err(Error::NoSpace));
            assert!(runtime.now().since(began) < Nanos::from_millis(300));
            let (closer, pause) = (fs.clone(), runtime.clone());
            runtime.spawn(async move {
                pause.sleep(Nanos::from_millis(50)).await;
                closer.close(old, 1).await.unwrap();
            });
            assert_eq!(fs.allocate(new, range, Allocate::Blocks, false).await, Ok(()));
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;
    let parts = parts_that_were_written_side_by_side_survive_as_they_were_synced;
    crate::common::assert_noticed(Bug::Ext4ContentSyncUnflushed, parts);
    crate::common::assert_noticed(
        Bug::Ext4DataAfterMetadata,
        a_crash_in_a_stream_shows_content_or_zeroes,
    );
}
