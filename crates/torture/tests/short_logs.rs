//! Whatever logs an adoption finds room for, days of use go well with them: nobody waits for ever,
//! and nothing turns read-only on a disk that does not fail.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs::Health;
use manylogs_block::{Nanos, Rng, Sectors, to_usize};
use manylogs_ext4::{Error, FileKind, Ino, New, Wanted};
use manylogs_mlfs::adopt::{Layout, Site, Spacing, Volumes, adopt, open, release};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{ImageSource, World, has_program, mkfs, options};

/// Four groups of 16 MiB.
const MIB: u64 = 64;
const OPTIONS: &[&str] = &["-g", "4096", "-J", "size=4", "-N", "1024"];
/// Blocks of a MiB.
const MIB_BLOCKS: u32 = 256;
/// Nobody waits longer than this for a change that is to become durable.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// Bytes of a tiny write.
const TINY: usize = 100;
const SECOND: Nanos = Nanos::from_secs(1);

/// The logs of a disk.
#[derive(Clone, Copy, Debug)]
struct Logs {
    /// One in so many groups of four.
    every: u32,
    /// Length of each.
    blocks: u32,
    physical: Sectors,
}

fn site(world: &World) -> Site {
    Site::new(Rc::new(world.disk.clone()), world.runtime())
}

/// Waits for `work`, which must end before so much time has passed.
fn within<T: 'static>(
    world: &World,
    time: Nanos,
    work: impl Future<Output = T> + 'static,
) -> Option<T> {
    let done: Rc<Cell<Option<T>>> = Rc::default();
    let slot = Rc::clone(&done);
    world.sim.handle(world.user).spawn(async move { slot.set(Some(work.await)) });
    let until = world.sim.now() + time;
    let mut ended = None;
    world.sim.run_until(|| {
        ended = done.take();
        ended.is_some() || world.sim.now() > until
    });
    ended
}

/// A disk that was adopted with such logs.
fn adopted(logs: Logs) -> Option<DiskImage> {
    if !has_program("mkfs.ext4") {
        eprintln!("skipped: needs mkfs.ext4");
        return None;
    }
    let image = mkfs(MIB, OPTIONS).unwrap();
    let world = World::with_sectors(2, MIB, image, logs.physical);
    let spacing = Spacing::Groups(logs.every);
    let wanted = Wanted { most: logs.blocks, least: logs.blocks };
    let site = site(&world);
    let layout = Layout { spacing, wanted };
    let taken = within(&world, PATIENCE, async move { adopt(&site, &layout, &Volumes).await });
    let taken = taken.expect("adoption ends").unwrap();
    assert_eq!(taken.logs.runs.len() as u32, 4 / logs.every, "{logs:?}");
    Some(world.settled())
}

async fn mount(site: &Site) -> Near {
    let opened = open(site, &Volumes).await.unwrap();
    let open = Volumes::open_options(&opened.logs).unwrap();
    let (near, device) = (NearOptions { open, ..NearOptions::default() }, Rc::clone(&site.device));
    let mounted = Near::mount(site.runtime.clone(), device, &near, options(site.runtime.clone()));
    mounted.await.unwrap().0
}

/// A user of the file system.
struct User {
    site: Site,
    near: Near,
    rng: Rng,
}

impl User {
    async fn file(&self, name: &str) -> Ino {
        let new = New::plain(FileKind::File, 0o644);
        match self.near.fs().create(Ino::ROOT, name.as_bytes(), new).await {
            Ok(made) => made.ino,
            Err(Error::Exists) => {
                self.near.fs().lookup(Ino::ROOT, name.as_bytes()).await.unwrap().ino
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// One tiny durable write after the other, for so long.
    async fn trickle(&mut self, every: Nanos, writes: u32) {
        let ino = self.file("log").await;
        for number in 0..writes {
            let offset = u64::from(number % 500) * TINY as u64;
            self.near.fs().write(ino, offset, vec![1; TINY]).await.unwrap();
            let before = self.site.runtime.now();
            self.near.fs().sync(ino).await.unwrap();
            assert!(self.site.runtime.now().since(before) < PATIENCE, "write {number}");
            self.site.runtime.sleep(every).await;
        }
    }

    /// Fills the file system, and makes room again.
    async fn fill(&mut self) {
        let ino = self.file("large").await;
        let chunk = 4096 << self.rng.below(9);
        let mut offset = 0;
        loop {
            match self.near.fs().write(ino, offset, vec![2; chunk]).await {
                Ok(()) => offset += chunk as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.near.fs().sync(ino).await.unwrap();
        self.near.fs().unlink(Ino::ROOT, b"large").await.unwrap();
        self.near.fs().sync_all().await.unwrap();
    }

    /// Many names, and then none of them.
    async fn names(&mut self) {
        for number in 0..400 {
            let ino = self.file(&format!("name {number}")).await;
            self.near.fs().write(ino, 0, vec![3; 5000]).await.unwrap();
            if self.rng.below(8) == 0 {
                self.near.fs().sync(ino).await.unwrap();
            }
        }
        for number in 0..400 {
            let name = format!("name {number}");
            self.near.fs().unlink(Ino::ROOT, name.as_bytes()).await.unwrap();
        }
        self.near.fs().sync_all().await.unwrap();
    }

    /// Runs that just go into a record, rewritten again and again.
    async fn rewrite(&mut self) {
        let ino = self.file("pages").await;
        for number in 0..300 {
            let offset = self.rng.below(64) * (32 << 10);
            self.near.fs().write(ino, offset, vec![4; 32 << 10]).await.unwrap();
            if number % 3 == 0 {
                self.near.fs().sync_content(ino).await.unwrap();
            }
        }
        self.near.fs().sync(ino).await.unwrap();
    }

    async fn work(&mut self, spells: u32) {
        for _ in 0..spells {
            match self.rng.below(5) {
                0 => self.trickle(SECOND, 200).await,
                1 => self.trickle(Nanos(0), 300).await,
                2 => self.names().await,
                3 => self.rewrite().await,
                _ => self.fill().await,
            }
            let rest = Nanos::from_secs(self.rng.below(3000));
            self.site.runtime.sleep(rest).await;
            assert_eq!(self.near.volume().health(), Health::Good);
        }
    }
}

/// Uses the disk, restarts or kills the program now and then, and gives the disk back to ext4.
fn use_it(logs: Logs, seed: u64, restarts: u32, spells: u32) {
    let Some(mut image) = adopted(logs) else { return };
    let mut rng = Rng::new(seed);
    for restart in 0..restarts {
        let world = World::with_sectors(rng.below(1000), MIB, image, logs.physical);
        let (site, rng_of_user) = (site(&world), Rng::new(rng.below(1 << 30)));
        let kills = rng.below(2) == 0;
        let work = async move {
            let near = mount(&site).await;
            let mut user = User { site, near, rng: rng_of_user };
            user.work(spells).await;
            if !kills {
                user.near.unmount().await.unwrap();
            }
        };
        let day = Nanos::from_secs(24 * 3600);
        assert!(within(&world, day, work).is_some(), "{logs:?}: stuck after restart {restart}");
        image = world.disk.after_power_cut(Survival::Nothing, &mut rng);
    }
    let world = World::with_sectors(1, MIB, image, logs.physical);
    let site = site(&world);
    let work = async move {
        mount(&site).await.unmount().await.unwrap();
        release(&site, &Volumes).await
    };
    within(&world, PATIENCE, work).expect("a release ends").unwrap();
    let report = manylogs_ext4check::check(&ImageSource::new(&world.settled(), MIB)).unwrap();
    assert!(report.is_clean(), "{logs:?}: {:?}", report.findings);
}

/// One tiny write a second, for two hours.
#[test]
fn tiny_writes_never_meet_a_log_that_stays_full() {
    for mib in [4, 5, 6, 7] {
        let logs = Logs { every: 4, blocks: mib * MIB_BLOCKS, physical: Sectors(8) };
        let Some(image) = adopted(logs) else { return };
        let world = World::with_sectors(3, MIB, image, logs.physical);
        let site = site(&world);
        let work = async move {
            let near = mount(&site).await;
            let mut user = User { site, near, rng: Rng::new(1) };
            user.trickle(SECOND, 7200).await;
            assert_eq!(user.near.volume().health(), Health::Good);
            user.near.unmount().await.unwrap();
        };
        assert!(within(&world, Nanos::from_secs(9000), work).is_some(), "{logs:?}: stuck");
    }
}

#[test]
fn any_logs_that_an_adoption_accepts_serve_for_days() {
    let mut rng = Rng::new(27);
    for seed in 0..12 {
        let logs = Logs {
            every: [4, 4, 2, 1][to_usize(rng.below(4))],
            blocks: 4 * MIB_BLOCKS + u32::try_from(rng.below(2000)).unwrap(),
            physical: [Sectors(1), Sectors(8)][to_usize(rng.below(2))],
        };
        use_it(logs, seed, 3, 4);
    }
}
