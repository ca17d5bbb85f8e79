//! Leaving without our program: only the homes are left, and the logs are lost. Files that need
//! durability and no place may lack content then, but they never show what others left in their
//! blocks. Files that at some time were others show none between two passes. While a pass is under
//! way the homes are those of no one moment: content that it has not brought home yet may be led to
//! by metadata that is home.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::images;
use manylogs::{OpenOptions, Volume};
use manylogs_block::{BlockDevice, Handle, Nanos, Rng, to_usize};
use manylogs_ext4::{Change, DURABLE_XATTR, Error, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::{CrashDisk, DiskImage, Survival};
use manylogs_torture::ext4::{
    Images, SMALL_MIB, World, e2fsck, has_program, load, mount, options, save,
};

/// What sectors of other files begin with.
const STRANGER: &[u8] = b"a stranger's old content";
/// Files of strangers, and the longest in bytes.
const STRANGERS: u64 = 24;
const LONGEST: u64 = 300_000;
/// Names of files that need durability and no place.
const FILES: u64 = 5;
/// Steps of a history.
const STEPS: u64 = 40;
/// States that a history is judged in while passes are under way, for each pass.
const DURING: u64 = 3;

/// Number of directories that were made for images.
static DIRECTORIES: AtomicU64 = AtomicU64::new(0);

/// A state of the disk, and whether the homes are those of one moment.
struct Seen {
    image: DiskImage,
    settled: bool,
    /// Files that did without the property at some time.
    plain: BTreeSet<String>,
}

/// One history, and what it was seen in.
struct History {
    near: Rc<Near>,
    disk: CrashDisk,
    clock: Handle,
    rng: RefCell<Rng>,
    seen: RefCell<Vec<Seen>>,
    plain: RefCell<BTreeSet<String>>,
}

fn filled(first: &[u8], len: u64) -> Vec<u8> {
    let mut bytes = vec![b'.'; to_usize(len)];
    for sector in bytes.chunks_mut(512) {
        let most = first.len().min(sector.len());
        sector[..most].copy_from_slice(&first[..most]);
    }
    bytes
}

impl History {
    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    fn fs(&self) -> &Ext4 {
        self.near.fs()
    }

    fn see(&self, settled: bool) {
        let rng = &mut self.rng.borrow_mut();
        let survival =
            if settled || rng.below(2) == 0 { Survival::Everything } else { Survival::Random };
        let image = self.disk.after_power_cut(survival, rng);
        let plain = self.plain.borrow().clone();
        self.seen.borrow_mut().push(Seen { image, settled, plain });
    }

    /// Fills the disk with content of others, and removes most of it.
    async fn strangers(&self) -> Result<(), Error> {
        let name = |number: u64| format!("stranger{number}");
        for number in 0..STRANGERS {
            let new = New::plain(FileKind::File, 0o600);
            let ino = self.fs().create(Ino::ROOT, name(number).as_bytes(), new).await?.ino;
            let len = 1 + self.below(LONGEST);
            self.fs().write(ino, 0, filled(STRANGER, len)).await?;
        }
        self.fs().sync_all().await?;
        self.near.volume().checkpoint().await.unwrap();
        for number in (0..STRANGERS).filter(|number| number % 8 != 0) {
            self.fs().unlink(Ino::ROOT, name(number).as_bytes()).await?;
        }
        self.fs().sync_all().await?;
        self.near.volume().checkpoint().await.unwrap();
        Ok(())
    }

    async fn file(&self) -> Result<(Ino, String), Error> {
        let name = format!("wal{}", self.below(FILES));
        if let Ok(found) = self.fs().lookup(Ino::ROOT, name.as_bytes()).await {
            return Ok((found.ino, name));
        }
        let new = New::plain(FileKind::File, 0o600);
        let ino = self.fs().create(Ino::ROOT, name.as_bytes(), new).await?.ino;
        if self.below(4) > 0 {
            self.set(ino, "1").await?;
            self.plain.borrow_mut().remove(&name);
        } else {
            self.plain.borrow_mut().insert(name.clone());
        }
        Ok((ino, name))
    }

    async fn set(&self, ino: Ino, value: &'static str) -> Result<(), Error> {
        self.fs().set_xattr(ino, DURABLE_XATTR.as_bytes(), value, SetXattr::default()).await
    }

    /// Writes to a file of its own: a piece, many pieces with holes between them, or a long run.
    async fn write(&self, ino: Ino) -> Result<(), Error> {
        let (pieces, most) = match self.below(4) {
            0 => (12, 9_000),
            1 => (1, 200_000),
            _ => (1, 12_000),
        };
        for _ in 0..pieces {
            let bytes = filled(b"own", 1 + self.below(most));
            let at = self.below(700_000);
            match self.below(3) {
                0 => self.fs().write_synced(ino, at, bytes).await?,
                _ => self.fs().write(ino, at, bytes).await?,
            };
        }
        if self.below(4) > 0 { self.fs().sync(ino).await } else { Ok(()) }
    }

    async fn step(&self) -> Result<(), Error> {
        let (ino, name) = self.file().await?;
        match self.below(12) {
            0 => {
                self.plain.borrow_mut().insert(name);
                self.set(ino, "0").await
            }
            1 => self.set(ino, "1").await,
            2 => self
                .fs()
                .change(ino, Change { size: Some(self.below(700_000)), ..Change::default() })
                .await
                .map(drop),
            3 => {
                let name = format!("wal{}", self.below(FILES));
                match self.fs().unlink(Ino::ROOT, name.as_bytes()).await {
                    Err(Error::NotFound) => Ok(()),
                    done => done,
                }
            }
            4 => {
                self.near.volume().swap().await;
                Ok(())
            }
            5 => self.pass().await,
            _ => self.write(ino).await,
        }
    }

    /// A checkpoint while nothing else happens, seen from the homes alone during and after it.
    async fn pass(&self) -> Result<(), Error> {
        self.fs().sync_all().await?;
        let ended = Rc::new(Cell::new(false));
        let (volume, told) = (self.near.volume().clone(), Rc::clone(&ended));
        self.clock.spawn(async move {
            volume.checkpoint().await.unwrap();
            told.set(true);
        });
        self.watch(&ended).await;
        self.see(true);
        Ok(())
    }

    async fn watch(&self, ended: &Cell<bool>) {
        let mut left = DURING;
        while !ended.get() {
            let wait = Nanos::from_micros(100 + self.below(4000));
            self.clock.sleep(wait).await;
            if left > 0 && self.below(3) == 0 {
                left -= 1;
                self.see(false);
            }
        }
    }

    /// Sets the share of the logs that content may be kept in.
    async fn budget(&self, percent: u64) {
        let volume: &Volume = self.near.volume();
        let mut settings = volume.settings();
        settings.assign(&format!("durable-budget={percent}%")).unwrap();
        volume.set(&settings).await.unwrap();
    }
}

/// Runs a history, and ends it with a drain. Returns the states that it was seen in.
fn run(images: &Images, seed: u64) -> Vec<Seen> {
    let (image, anchors) = images.near(to_usize(seed % 2));
    let world = World::new(seed, SMALL_MIB, image.clone());
    let (disk, runtime) = (world.disk.clone(), world.runtime());
    let open = OpenOptions { anchors: Some(anchors), ..OpenOptions::default() };
    let near = NearOptions { open, ..NearOptions::default() };
    world.sim.block_on(world.user, async move {
        let device: Rc<dyn BlockDevice> = Rc::new(disk.clone());
        let mounted = Near::mount(runtime.clone(), device, &near, options(runtime.clone())).await;
        let (near, rng) = (Rc::new(mounted.unwrap().0), RefCell::new(Rng::new(seed)));
        near.fs().keep_synced_writes();
        let history = History {
            near,
            disk,
            clock: runtime,
            rng,
            seen: RefCell::default(),
            plain: RefCell::default(),
        };
        history.strangers().await.unwrap();
        if history.below(2) == 0 {
            history.budget(1 + history.below(20)).await;
        }
        for _ in 0..STEPS {
            history.step().await.unwrap();
        }
        history.pass().await.unwrap();
        drain(history).await
    })
}

/// Drains the logs, seen while that goes on.
async fn drain(history: History) -> Vec<Seen> {
    let History { near, disk, clock, rng, seen, plain } = history;
    let plain = plain.into_inner();
    let ended = Rc::new(Cell::new(false));
    let (told, near) = (Rc::clone(&ended), Rc::try_unwrap(near).unwrap());
    clock.spawn(async move {
        near.drain().await.unwrap();
        told.set(true);
    });
    while !ended.get() {
        let wait = Nanos::from_micros(100 + rng.borrow_mut().below(9000));
        clock.sleep(wait).await;
        let image = disk.after_power_cut(Survival::Random, &mut rng.borrow_mut());
        seen.borrow_mut().push(Seen { image, settled: false, plain: plain.clone() });
    }
    seen.into_inner()
}

/// Whether e2fsck has repaired something else than the superblock's counts.
fn has_repairs(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.windows(2).any(|two| {
        let is_count = ["Free blocks count wrong (", "Free inodes count wrong ("];
        two[1].contains("? yes") && !is_count.iter().any(|count| two[0].starts_with(count))
    })
}

/// What is wrong with the homes, if anything, once e2fsck has repaired them.
fn problem_of(seen: &Seen, seed: u64) -> Option<String> {
    let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
    let name = format!("manylogs-emergency-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("image");
    save(&seen.image, SMALL_MIB, &path).unwrap();
    let repaired = e2fsck(&["-fy"], &path);
    let image = load(&path).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // Homes of one moment need no repair, except of counts that an unmount would write.
    let is_wrong = !(0..=1).contains(&repaired.code) || seen.settled && has_repairs(&repaired.text);
    if is_wrong {
        return Some(repaired.to_string());
    }
    let world = World::new(seed, SMALL_MIB, image);
    let (disk, runtime) = (world.disk.clone(), world.runtime());
    let judged = |name: &String| seen.settled || !seen.plain.contains(name);
    let names: Vec<String> =
        (0..FILES).map(|number| format!("wal{number}")).filter(judged).collect();
    world.sim.block_on(world.user, async move {
        let fs = mount(Rc::new(disk), runtime).await.unwrap();
        for name in names {
            let Ok(found) = fs.lookup(Ino::ROOT, name.as_bytes()).await else { continue };
            let size = fs.attributes(found.ino).await.unwrap().size;
            let bytes = fs.read(found.ino, 0, to_usize(size)).await.unwrap();
            let at = bytes.chunks(512).position(|sector| sector.starts_with(STRANGER));
            if let Some(at) = at {
                return Some(format!("{name} shows a stranger's content at sector {at}"));
            }
        }
        fs.unmount().await.unwrap();
        None
    })
}

/// The first problem that an exit without logs shows in a history.
fn problem_in(images: &Images, seed: u64) -> Option<String> {
    let seen = run(images, seed);
    let found = seen.iter().enumerate().find_map(|(number, seen)| {
        let problem = problem_of(seen, seed)?;
        Some(format!("state {number}, settled {}: {problem}", seen.settled))
    });
    found.map(|found| format!("seed {seed}: {found}"))
}

fn images_to_judge() -> Option<Images> {
    if !has_program("e2fsck") {
        manylogs_testkit::skip("needs e2fsck");
        return None;
    }
    images()
}

#[test]
fn an_exit_without_logs_shows_nothing_of_strangers() {
    let Some(images) = images_to_judge() else { return };
    let seeds = std::env::var("EMERGENCY").ok().map_or(0..4, |seed| {
        let seed: u64 = seed.parse().unwrap();
        seed..seed + 1
    });
    for seed in seeds {
        assert_eq!(problem_in(&images, seed), None, "repeat with EMERGENCY={seed}");
    }
}

/// Seeds from which on histories show the planted bugs.
#[cfg(feature = "plant")]
const NOTICED: [u64; 4] = [0, 0, 1, 2];

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_show_strangers() {
    use manylogs_plant::{DURABLE_HOMES, plant};

    let Some(images) = images_to_judge() else { return };
    assert_eq!(DURABLE_HOMES.len(), NOTICED.len());
    for (bug, first) in DURABLE_HOMES.iter().copied().zip(NOTICED) {
        plant(Some(bug));
        let noticed = (first..first + 60).find_map(|seed| problem_in(&images, seed));
        plant(None);
        println!("{bug:?}: {noticed:?}");
        assert!(noticed.is_some(), "nothing notices {bug:?}");
    }
}
