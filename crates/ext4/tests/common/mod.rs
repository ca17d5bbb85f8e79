//! Images by mkfs, disks in virtual time that hold them, and the judges.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Lba, Nanos, Sector, Sectors};
use manylogs_ext4::{Error, Ext4, Ino, Mode, Options, Timestamp};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, NodeId, Order, Sim};

/// Small groups, so that small images have many.
pub(crate) const SMALL: &[&str] = &["-g", "1024", "-J", "size=4", "-N", "2048"];
pub(crate) const SMALL_MIB: u64 = 24;

/// An image that mkfs.ext4 made; `None` if there is no mkfs.ext4, which is said.
pub(crate) fn mkfs(mib: u64, options: &[&str]) -> Option<DiskImage> {
    if !has("mkfs.ext4") || !has("e2fsck") {
        eprintln!("skipped: needs mkfs.ext4 and e2fsck");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096", "-U", "12345678-1234-1234-1234-123456789abc"]);
    mkfs.args(["-E", "hash_seed=abcdef01-1234-1234-1234-123456789abc"]).args(options).arg(&path);
    let made = mkfs.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(load(&path))
}

pub(crate) fn has(program: &str) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
    dirs.split(':').any(|dir| Path::new(dir).join(program).exists())
}

/// What a file holds, as a disk.
pub(crate) fn load(path: &Path) -> DiskImage {
    let bytes = std::fs::read(path).unwrap();
    let mut image = DiskImage::default();
    for (lba, sector) in (0..).zip(bytes.chunks_exact(512)) {
        if sector.iter().any(|byte| *byte != 0) {
            image.corrupt(Lba(lba), Sector::Bytes(sector.to_vec().into()));
        }
    }
    image
}

/// Writes what a disk holds into a file. Torn sectors hold anything.
pub(crate) fn save(image: &DiskImage, mib: u64, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(mib << 20).unwrap();
    // Chunks that nobody wrote cost nothing.
    for lba in (0..mib << 11).step_by(64) {
        let content = image.read(Extent::new(lba, 64));
        if content.is_zero() {
            continue;
        }
        let mut bytes = Vec::with_capacity(64 * 512);
        for sector in content.sectors() {
            match sector {
                Some(Sector::Bytes(sector)) => bytes.extend_from_slice(&sector),
                Some(Sector::Tag(tag)) => bytes.extend_from_slice(&tag.to_le_bytes().repeat(64)),
                Some(Sector::Zero) | None => bytes.resize(bytes.len() + 512, 0),
            }
        }
        file.write_all_at(&bytes, lba * 512).unwrap();
    }
}

/// What e2fsck says, and its exit code.
pub(crate) fn e2fsck(options: &[&str], path: &Path) -> (i32, String) {
    let said = Command::new("e2fsck").args(options).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    (said.status.code().unwrap_or(-1), text.into_owned())
}

/// A disk in virtual time, and a node that uses it.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) disk: CrashDisk,
    pub(crate) user: NodeId,
    pub(crate) mib: u64,
}

impl World {
    pub(crate) fn new(seed: u64, mib: u64, image: DiskImage) -> Self {
        let sim = Sim::new(seed, Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let config = CrashDiskConfig {
            capacity: Sectors(mib << 11),
            physical_sector: Sectors(8),
            volatile_cache: true,
            native_fua: seed.is_multiple_of(2),
            latency_max: Nanos::from_millis(2),
        };
        let disk = CrashDisk::new(sim.handle(drive), config, image);
        Self { sim, disk, user, mib }
    }

    pub(crate) fn runtime(&self) -> Handle {
        self.sim.handle(self.user)
    }

    /// Mounts the file system and calls `work` with it.
    pub(crate) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(Ext4) -> F + 'static,
    ) -> Result<T, Error> {
        let mounting = mount(Rc::new(self.disk.clone()), self.runtime());
        self.sim.block_on(self.user, async move { Ok(work(mounting.await?).await) })
    }

    /// What the disk holds when all of its cache is written.
    pub(crate) fn settled(&self) -> DiskImage {
        let mut rng = manylogs_block::Rng::new(1);
        self.disk.after_power_cut(manylogs_sim::Survival::Everything, &mut rng)
    }

    /// Saves what the disk holds.
    pub(crate) fn saved(&self) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        save(&self.settled(), self.mib, &path);
        (dir, path)
    }

    /// e2fsck finds nothing.
    pub(crate) fn check(&self) {
        let (_dir, path) = self.saved();
        let (code, said) = e2fsck(&["-fn"], &path);
        assert_eq!(code, 0, "{said}");
    }
}

/// A mounted image, until it is dropped.
pub(crate) struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    /// `None`, which is said, where images cannot be mounted.
    pub(crate) fn new(image: &Path) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).args([image, dir.path()]);
        if mount.output().is_ok_and(|said| said.status.success()) {
            return Some(Self { dir });
        }
        eprintln!("skipped: the kernel does not mount images here");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount");
    }
}

pub(crate) fn can_mount() -> bool {
    let ok = has("mount") && has("losetup") && std::fs::metadata("/dev/loop-control").is_ok();
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !ok || !root {
        eprintln!("skipped: needs root and loop devices");
    }
    ok && root
}

/// Mounts with a clock that goes on by itself.
pub(crate) async fn mount(device: Rc<dyn BlockDevice>, runtime: Handle) -> Result<Ext4, Error> {
    mount_in(Mode::Ordered, device, runtime).await
}

/// As [`mount`], in a mode.
pub(crate) async fn mount_in(
    mode: Mode,
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
) -> Result<Ext4, Error> {
    let (clock, ticks) = (runtime.clone(), Cell::new(0));
    let clock = move || {
        ticks.set(ticks.get() + 1);
        let now = clock.now().0;
        let seconds = 1_700_000_000 + i64::try_from(now / 1_000_000_000).unwrap();
        Timestamp { seconds, nanos: u32::try_from(now % 1_000_000_000).unwrap() }
    };
    let options = Options { clock: Rc::new(clock), read_only: false };
    Ext4::mount_in(mode, device, runtime, options).await
}

/// A test that holds does not while a bug is planted. Without mkfs.ext4 it cannot tell.
#[cfg(feature = "plant")]
pub(crate) fn assert_noticed(bug: manylogs_plant::Bug, test: fn()) {
    if !has("mkfs.ext4") || !has("e2fsck") {
        eprintln!("skipped: needs mkfs.ext4 and e2fsck");
        return;
    }
    manylogs_plant::plant(Some(bug));
    let caught = std::panic::catch_unwind(test).is_err();
    manylogs_plant::plant(None);
    assert!(caught, "{bug:?} is not noticed");
}

/// Bytes that tell files and places in them apart.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = manylogs_block::Rng::new(seed);
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// All names of a directory but its own.
pub(crate) async fn names(fs: &Ext4, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = fs.list(dir, cookie).await.unwrap();
        let Some(last) = listed.last() else { break };
        cookie = last.next;
        let own = |name: &[u8]| name == b"." || name == b"..";
        let others = listed.into_iter().filter(|listed| !own(&listed.name));
        names.extend(others.map(|listed| (listed.name, listed.ino)));
    }
    names.sort();
    names
}
