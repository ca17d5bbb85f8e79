//! A disk that was adopted with given logs, and a user of it, in virtual time.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs::{Health, PhaseProbe, Volume};
use manylogs_block::{Nanos, Rng, Sectors};
use manylogs_ext4::{Error, FileKind, Ino, New, Wanted};
use manylogs_mlfs::adopt::{LogLayout, Site, Spacing, Volumes, adopt};
use manylogs_mlfs::{MountError, Mounted};
use manylogs_sim::DiskImage;
use manylogs_torture::ext4::{World, has_program, mkfs, options};

/// Four groups of 16 MiB.
pub(crate) const MIB: u64 = 64;
pub(crate) const OPTIONS: &[&str] = &["-g", "4096", "-J", "size=4", "-N", "1024"];
/// Number of blocks in a MiB.
pub(crate) const MIB_BLOCKS: u32 = 256;
/// The longest time that a change may take to become durable.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(60);
/// Length of a tiny write in bytes.
const TINY: usize = 100;
pub(crate) const SECOND: Nanos = Nanos::from_secs(1);

/// The logs of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logs {
    /// One group in this number has a log; there are four groups.
    pub(crate) every: u32,
    /// Length of each log.
    pub(crate) blocks: u32,
    pub(crate) physical: Sectors,
}

pub(crate) fn site(world: &World) -> Site {
    Site::new(Rc::new(world.disk.clone()), world.runtime())
}

/// Waits for `work`, which must end within `time`.
pub(crate) fn within<T: 'static>(
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

/// A disk that was adopted with these logs.
pub(crate) fn adopted(logs: Logs) -> Option<DiskImage> {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return None;
    }
    let image = mkfs(MIB, OPTIONS).unwrap();
    let world = World::with_sectors(2, MIB, image, logs.physical);
    let spacing = Spacing::Groups(logs.every);
    let wanted = Wanted { most: logs.blocks, least: logs.blocks };
    let site = site(&world);
    let layout = LogLayout { spacing, wanted };
    let taken = within(&world, PATIENCE, async move { adopt(&site, &layout, &Volumes).await });
    let taken = taken.expect("adoption ends").unwrap();
    assert_eq!(taken.logs.runs.len() as u64, u64::from(4 / logs.every), "{logs:?}");
    Some(world.settled())
}

/// Mounts the file system as the program does.
pub(crate) async fn mounting(site: &Site) -> Result<Mounted, MountError> {
    let (device, runtime) = (Rc::clone(&site.device), site.runtime.clone());
    let (probe, options) = (PhaseProbe::default(), options(runtime.clone()));
    Mounted::mount(None, device, runtime, probe, options).await
}

pub(crate) async fn mount(site: &Site) -> Mounted {
    mounting(site).await.unwrap()
}

/// A user of the file system.
pub(crate) struct User {
    pub(crate) site: Site,
    pub(crate) near: Mounted,
    pub(crate) rng: Rng,
}

impl User {
    pub(crate) fn volume(&self) -> &Volume {
        self.near.volume().unwrap()
    }

    pub(crate) async fn file(&self, name: &str) -> Ino {
        let new = New::plain(FileKind::File, 0o644);
        match self.near.fs().create(Ino::ROOT, name.as_bytes(), new).await {
            Ok(made) => made.ino,
            Err(Error::Exists) => {
                self.near.fs().lookup(Ino::ROOT, name.as_bytes()).await.unwrap().ino
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Makes `writes` tiny durable writes, one every `every`.
    pub(crate) async fn trickle(&mut self, every: Nanos, writes: u32) {
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

    /// Fills the file system, and frees the room again.
    pub(crate) async fn fill(&mut self) {
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

    /// Makes many names, and then removes all of them.
    pub(crate) async fn names(&mut self) {
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

    /// Rewrites runs that just fit into a record, again and again.
    pub(crate) async fn rewrite(&mut self) {
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

    pub(crate) async fn work(&mut self, spells: u32) {
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
            assert_eq!(self.volume().health(), Health::Good);
        }
    }
}
