//! Disks with a file system and the files of a measurement.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use bytes::Bytes;
use manylogs::{PhaseProbe, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, Lba, Media, Nanos, Request, SECTOR_BYTES, Sector,
    Sectors, Time,
};
use manylogs_disk::ContentTooLarge;
use manylogs_ext4::{Ext4, FileKind, Ino, Memory, New, Options, Timestamp};
use manylogs_mlfs::adopt::{AdoptError, LogLayout, Site, Volumes, adopt};
use manylogs_mlfs::{MountError, Mounted};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use thiserror::Error;

use super::case::{DiskCase, WRITES_PER_SYNC};
use super::drives::{Drives, dealt};

/// Length of the stream's file, at the beginning of the disk.
pub(super) const BIG_BYTES: u64 = 2 << 30;
/// Length of each small file.
pub(super) const SMALL_BYTES: u64 = 4 << 20;
/// Bytes of a request of the stream.
pub(super) const STREAM_BYTES: usize = 1 << 20;
/// More places, and so many sectors apart, than the buffer of any drive has segments.
const COOLED_PLACES: u64 = 256;
const COOLED_APART: u64 = 8 << 11;
/// A drive that cleans longer is left as it is.
const CLEANING_MAX: Nanos = Nanos::from_secs(24 * 3600);
/// The file system is read from its image in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Directories for images, first one in memory.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// Why a case has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MlfsError {
    /// The file system cannot be made.
    #[error("mkfs.ext4: {0}: is e2fsprogs installed, and is there room in /dev/shm?")]
    Mkfs(#[source] io::Error),
    /// The drive cannot be modelled.
    #[error(transparent)]
    Drive(#[from] ContentTooLarge),
    /// The file system cannot be adopted.
    #[error("it cannot be adopted: {0}")]
    Adopt(#[from] AdoptError),
    /// The file system cannot be mounted, or unmounted.
    #[error("it cannot be mounted: {0}")]
    Mount(#[from] MountError),
    /// The disk cannot be made; an earlier case reported the reason.
    #[error("{0}")]
    Disk(String),
    /// A setting of the logs is refused.
    #[error("{0}")]
    Setting(String),
    /// An operation failed.
    #[error("an operation failed: {0}")]
    FileSystem(#[from] manylogs_ext4::Error),
    /// The volume of the logs refused something.
    #[error("the volume of its logs: {0}")]
    Volume(#[from] VolumeError),
    /// Deadlock: requests are in flight, and no event is left that could answer them.
    #[error("the file system stopped answering in the mode {0}; this is a defect")]
    Stalled(&'static str),
}

/// The files of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) big: Ino,
    pub(super) small: Vec<Ino>,
}

/// The content of a disk before a measurement, and the files `F` on it.
#[derive(Clone, Debug)]
pub(super) struct Prepared<F> {
    /// Content of each drive.
    media: Vec<Media>,
    files: F,
}

/// A mounted disk in a world of its own.
pub(super) struct Disk<F> {
    pub(super) sim: Sim,
    pub(super) host: NodeId,
    pub(super) mounted: Mounted,
    pub(super) files: F,
}

/// The simulated world of a drive and its content.
pub(super) struct World {
    sim: Sim,
    host: NodeId,
    runtime: Handle,
    drives: Drives,
}

impl World {
    fn new(case: &DiskCase, media: Vec<Media>) -> Result<Self, MlfsError> {
        let sim = Sim::new(case.seed, TaskOrder::Fifo);
        let (node, host) = (sim.node(), sim.node());
        let drives = Drives::holding(&sim.handle(node), &case.drive, media, case.seed)?;
        let runtime = sim.handle(host);
        Ok(Self { sim, host, runtime, drives })
    }

    fn device(&self) -> Rc<dyn BlockDevice> {
        self.drives.top()
    }

    pub(super) fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.sim.block_on(self.host, work)
    }

    /// The runtime of this world.
    pub(super) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// The world after a power cut, which ends all tasks and requests under way.
    pub(super) fn after_crash(self, case: &DiskCase) -> Result<Self, MlfsError> {
        let media = self.drives.media();
        drop(self);
        Self::new(case, media)
    }

    /// Number of sectors for which `is_it` is true; it gets their addresses. For one drive, not for
    /// an array.
    pub(super) fn count_sectors(&self, is_it: impl Fn(Lba, &Sector) -> bool) -> u64 {
        let media = self.drives.media();
        let sectors = media.iter().flat_map(Media::iter);
        sectors.filter(|(lba, sector)| is_it(Lba(*lba), sector)).count() as u64
    }

    /// Reads at so many places that the buffers of its drives hold nothing else.
    pub(super) fn cool(&self) -> Result<(), MlfsError> {
        let device = self.device();
        let read = self.run(async move {
            let end = device.capabilities().capacity.0;
            for place in 1..=COOLED_PLACES {
                let start = end.saturating_sub(place * COOLED_APART);
                device.submit(Request::Read { extent: Extent::new(start, 8) }).await?;
            }
            Ok::<_, IoError>(())
        });
        Ok(read.map_err(manylogs_ext4::Error::from)?)
    }

    /// How often its drives were asked to read.
    pub(super) fn reads(&self) -> u64 {
        self.drives.reads()
    }

    /// For how many accesses their arms moved, or their heads changed.
    pub(super) fn seeks(&self) -> u64 {
        self.drives.seeks()
    }

    /// How many bands its drives have to clean.
    pub(super) fn dirty_bands(&self) -> u64 {
        self.drives.dirty_bands()
    }

    /// Lets its drives clean while nobody uses them. Returns for how long they did.
    pub(super) fn let_clean(&self) -> Nanos {
        let began = self.now();
        while self.dirty_bands() > 0 && self.now().since(began) < CLEANING_MAX {
            let clock = self.runtime();
            self.run(async move { clock.sleep(Nanos::from_secs(1)).await });
        }
        self.now().since(began)
    }

    /// The time in this world.
    pub(super) fn now(&self) -> Time {
        self.sim.now()
    }

    /// Mounts the disk's file system in the mode of the case, with its settings.
    pub(super) fn mounted(&self, case: &DiskCase) -> Result<Mounted, MlfsError> {
        let mounted = self.mount(Some(case))?;
        if let Some(volume) = mounted.volume().cloned() {
            // A checkpoint at night, or on an idle disk, would affect the figures by chance.
            let mut settings = volume.settings();
            let meant = ["checkpoint=full", "checkpoint-rate=none"];
            meant.iter().try_for_each(|pair| settings.assign(pair)).unwrap_or_else(|error| {
                unreachable!("settings of every volume: {error}");
            });
            if let Some(threshold) = case.threshold {
                let pair = format!("threshold={}", threshold.bytes());
                settings.assign(&pair).map_err(|error| MlfsError::Setting(error.to_string()))?;
            }
            self.run(async move { volume.set(&settings).await })?;
        }
        Ok(mounted)
    }

    fn mount(&self, case: Option<&DiskCase>) -> Result<Mounted, MlfsError> {
        let (device, runtime) = (self.device(), self.runtime.clone());
        let options = Options {
            clock: clock(&runtime),
            read_only: false,
            durability: Default::default(),
            replay: Default::default(),
            memory: Memory::default(),
        };
        let mode = case.map(|case| case.mode);
        let probe = PhaseProbe::default();
        let mounting = Mounted::mount(mode, device, runtime, probe, options);
        let mounted = self.run(mounting)?;
        // As `fs mount` does unless asked for it.
        mounted.fs().save_maps(false);
        Ok(mounted)
    }
}

/// A clock for timestamps of files, in virtual time.
fn clock(runtime: &Handle) -> Rc<dyn Fn() -> Timestamp> {
    let runtime = runtime.clone();
    Rc::new(move || {
        let now = runtime.now().0;
        let seconds = i64::try_from(now / 1_000_000_000).unwrap_or(i64::MAX);
        Timestamp { seconds, nanos: manylogs_block::narrow(now % 1_000_000_000) }
    })
}

impl<F: Clone + 'static> Prepared<F> {
    /// Prepares the disk of the case: with logs if its mode has some, and with the files that
    /// `fill` makes.
    pub(super) fn of<Fill: Future<Output = Result<F, MlfsError>> + 'static>(
        case: &DiskCase,
        fill: impl FnOnce(Ext4) -> Fill + 'static,
    ) -> Result<Self, MlfsError> {
        Self::within(case, case.drive.capacity(), fill)
    }

    /// As [`Prepared::of`], with a file system in the first `span` of the disk.
    pub(super) fn within<Fill: Future<Output = Result<F, MlfsError>> + 'static>(
        case: &DiskCase,
        span: Sectors,
        fill: impl FnOnce(Ext4) -> Fill + 'static,
    ) -> Result<Self, MlfsError> {
        let made = dealt(&case.drive, mkfs(case, span).map_err(MlfsError::Mkfs)?);
        let world = World::new(case, made)?;
        if case.is_adopted() {
            let runtime = world.runtime.clone();
            let site = Site { device: world.device(), clock: clock(&runtime), runtime };
            let layout = LogLayout { spacing: case.spacing, ..LogLayout::default() };
            world.run(async move { adopt(&site, &layout, &Volumes).await })?;
        }
        let mounted = world.mount(None)?;
        let files = world.run(async move {
            let files = fill(mounted.fs().clone()).await?;
            if let Some(volume) = mounted.volume() {
                volume.checkpoint().await?;
            }
            mounted.unmount().await?;
            Ok::<_, MlfsError>(files)
        })?;
        Ok(Self { media: world.drives.media(), files })
    }

    /// The files of the measurement.
    pub(super) const fn files(&self) -> &F {
        &self.files
    }

    /// A new world with this disk, not mounted.
    pub(super) fn world(&self, case: &DiskCase) -> Result<World, MlfsError> {
        World::new(case, self.media.clone())
    }

    /// Mounts the disk in a new world, in the mode of the case.
    pub(super) fn mount(&self, case: &DiskCase) -> Result<Disk<F>, MlfsError> {
        let world = self.world(case)?;
        let mounted = world.mounted(case)?;
        let World { sim, host, .. } = world;
        Ok(Disk { sim, host, mounted, files: self.files.clone() })
    }
}

/// Makes the stream's file, and small files in directories of their own, which ext4 spreads over
/// the disk.
pub(super) async fn fill(fs: Ext4) -> Result<Files, MlfsError> {
    let big = file(&fs, Ino::ROOT, BIG_BYTES).await?;
    let mut small = Vec::new();
    for number in 1..=WRITES_PER_SYNC {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, number.to_string().as_bytes(), new).await?.ino;
        small.push(file(&fs, dir, SMALL_BYTES).await?);
    }
    fs.sync_all().await?;
    Ok(Files { big, small })
}

pub(super) async fn file(fs: &Ext4, dir: Ino, len: u64) -> Result<Ino, MlfsError> {
    let ino = fs.create(dir, b"file", New::plain(FileKind::File, 0o644)).await?.ino;
    let zeroes = Bytes::from(vec![0; STREAM_BYTES]);
    for offset in (0..len).step_by(STREAM_BYTES) {
        fs.write_through(ino, offset, zeroes.clone()).await?;
    }
    Ok(ino)
}

/// The content of the first `span` of the disk after mkfs.ext4, the same each time.
fn mkfs(case: &DiskCase, span: Sectors) -> io::Result<Media> {
    let place = PLACES.into_iter().find(|place| Path::new(place).is_dir());
    let dir = tempfile::tempdir_in(place.unwrap_or("."))?;
    let path = dir.path().join("image");
    let bytes = span.min(case.drive.capacity()).bytes() / 4096 * 4096;
    File::create(&path)?.set_len(bytes)?;
    let mut mkfs = Command::new(program());
    mkfs.args(["-q", "-F", "-b", "4096", "-U", "12345678-1234-1234-1234-123456789abc"]);
    let journal = format!("size={}", case.journal.bytes() >> 20);
    mkfs.args(["-J", &journal, "-i", &case.bytes_per_inode.to_string()]);
    mkfs.args(["-I", &case.inode_bytes.to_string()]);
    let seed = "hash_seed=3f0c6f3e-6b0c-4c0e-9d4e-2f6a3c1b5d70";
    mkfs.args(["-E", &format!("nodiscard,lazy_itable_init=1,lazy_journal_init=1,{seed}")]);
    mkfs.env("E2FSPROGS_FAKE_TIME", "1700000000").arg(&path);
    let made = mkfs.output()?;
    if !made.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
    }
    read(&File::open(&path)?, bytes)
}

/// The path of mkfs.ext4, which may be missing from a user's PATH.
fn program() -> PathBuf {
    let admin = PathBuf::from("/usr/sbin/mkfs.ext4");
    if admin.exists() { admin } else { "mkfs.ext4".into() }
}

/// Reads the content of a sparse file.
fn read(file: &File, len: u64) -> io::Result<Media> {
    let mut media = Media::default();
    let mut at = 0;
    while let Some(data) = next(file, at, rustix::fs::SeekFrom::Data(at))? {
        let end = next(file, data, rustix::fs::SeekFrom::Hole(data))?.unwrap_or(len);
        for start in (data..end).step_by(PIECE_BYTES) {
            let mut piece = vec![0; PIECE_BYTES.min(manylogs_block::to_usize(end - start))];
            file.read_exact_at(&mut piece, start)?;
            store(&mut media, Lba(start / SECTOR_BYTES), &Bytes::from(piece));
        }
        at = end;
    }
    Ok(media)
}

/// The next offset of data, or of a hole; `None` if there is none.
fn next(file: &File, at: u64, what: rustix::fs::SeekFrom) -> io::Result<Option<u64>> {
    debug_assert!(at <= i64::MAX.cast_unsigned());
    match rustix::fs::seek(file, what) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn store(media: &mut Media, at: Lba, bytes: &Bytes) {
    let len = manylogs_block::to_usize(SECTOR_BYTES);
    for (lba, start) in (at.0..).zip((0..bytes.len()).step_by(len)) {
        let sector = bytes.slice(start..start + len);
        if sector.iter().any(|byte| *byte != 0) {
            media.set(lba, Sector::Bytes(sector));
        }
    }
}
