//! Images made by mkfs.ext4, and disks that hold them.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use manylogs::Anchors;
use manylogs_block::{Extent, Lba, Sector, Sectors};
use manylogs_ext4::Mode;
use manylogs_ext4check::{BLOCK_BYTES, Block, BlockNo, Source, Survey, Target};
use manylogs_near::Placed;
use manylogs_sim::DiskImage;

use super::arrays::{OnArray, placed_on};
use super::mutate::{Filled, add_old_things, filled};
use super::near::{add_log_file, add_long_log_file, formatted, formatted_on};
use super::plan::Journal;
use super::world::{BLOCK_SECTORS, JournalAt, Log, SMALL_MIB, SMALL_OPTIONS};
use crate::volume::disks::DiskImages;

/// The kinds of images that histories begin with.
const KINDS: [&[&str]; 3] =
    [&["-G", "4"], &["-G", "4", "-O", "^metadata_csum,^64bit"], &["-O", "^flex_bg", "-I", "128"]];

/// Options of mkfs for a small image with one group: logs on an array need a long run of blocks.
const ONE_GROUP: &[&str] = &["-g", "8192", "-J", "size=4", "-N", "2048"];

/// Kinds of images to adopt: with superblocks in many groups, in two, in all.
const ADOPTED: [&[&str]; 6] = [
    KINDS[0],
    KINDS[1],
    KINDS[2],
    &["-O", "sparse_super2,^resize_inode"],
    &["-O", "meta_bg,^resize_inode,metadata_csum_seed,orphan_file"],
    &["-O", "^sparse_super,^metadata_csum,^64bit,^resize_inode"],
];

/// An image as in a file, without its zeroes. Threads share it.
#[derive(Clone, Debug)]
struct Template(Vec<(u64, Box<[u8]>)>);

/// Images of several kinds, for any thread.
#[derive(Clone, Debug)]
pub struct Templates {
    plain: Vec<Template>,
    adopted: Vec<Template>,
    /// Images with room for a journal near the head.
    near: Vec<(Template, Placed)>,
    /// Images with a run of blocks for a journal on an array.
    on_arrays: Vec<(Template, Extent)>,
    /// An image with structures that only other programs make.
    old: Template,
}

/// The images of [`Templates`] as disks, for one thread.
#[derive(Clone, Debug)]
pub struct Images {
    plain: Vec<(DiskImage, Log)>,
    adopted: Vec<DiskImage>,
    near: Vec<(DiskImage, Placed)>,
    on_arrays: Vec<(DiskImage, Extent)>,
    old: DiskImage,
    /// Made on first use.
    filled: OnceCell<Result<Vec<Filled>, String>>,
}

impl Templates {
    /// Makes small images of several kinds with mkfs.ext4.
    ///
    /// # Errors
    /// If mkfs.ext4 or debugfs is missing or fails.
    pub fn make() -> io::Result<Self> {
        let make = |kind: &&[&str]| {
            let bytes = mkfs_bytes(SMALL_MIB, &[SMALL_OPTIONS, kind].concat(), |_, _| Ok(()))?;
            Ok(Template::of(&bytes))
        };
        let plain = KINDS.iter().map(make).collect::<io::Result<_>>()?;
        let adopted = ADOPTED.iter().map(make).collect::<io::Result<_>>()?;
        let near = KINDS.iter().map(|kind| with_log_file(SMALL_OPTIONS, kind, add_log_file));
        let near = near.collect::<io::Result<_>>()?;
        let on_arrays = KINDS.iter().map(|kind| with_log_file(ONE_GROUP, kind, add_long_log_file));
        let on_arrays = on_arrays.collect::<io::Result<_>>()?;
        let old = mkfs_bytes(SMALL_MIB, &[SMALL_OPTIONS, KINDS[0]].concat(), add_old_things)?;
        Ok(Self { plain, adopted, near, on_arrays, old: Template::of(&old) })
    }

    /// The images as disks.
    ///
    /// # Errors
    /// If a check does not understand an image of mkfs.
    pub fn images(&self) -> io::Result<Images> {
        let image = |template: &Template| {
            let disk = template.disk();
            let survey = Survey::of(&ImageSource::new(&disk, SMALL_MIB));
            let log = Log::of(&survey.map_err(io::Error::other)?);
            Ok((disk, log))
        };
        let plain = self.plain.iter().map(image).collect::<io::Result<_>>()?;
        let adopted = self.adopted.iter().map(Template::disk).collect();
        let with_volume = |(template, placed): &(Template, Placed)| {
            let disk = formatted(&template.disk(), placed).map_err(io::Error::other)?;
            Ok((disk, placed.clone()))
        };
        let near = self.near.iter().map(with_volume).collect::<io::Result<_>>()?;
        let on_arrays = self.on_arrays.iter().map(|(template, run)| (template.disk(), *run));
        let (on_arrays, old, filled) = (on_arrays.collect(), self.old.disk(), OnceCell::new());
        Ok(Images { plain, adopted, near, on_arrays, old, filled })
    }
}

impl Images {
    /// The image of a number, which counts around, and the place of its journal.
    pub(super) fn get(&self, journal: Journal, number: usize) -> (&DiskImage, JournalAt) {
        match journal {
            Journal::Own | Journal::Lazy => {
                let (image, log) = &self.plain[number % self.plain.len()];
                let stays = journal == Journal::Lazy;
                let mode = if stays { Mode::Lazy } else { Mode::Ordered };
                (image, JournalAt::Own { log: log.clone(), mode })
            }
            Journal::Near | Journal::NearLazy => {
                let (image, anchors) = self.near(number);
                let keeps_metadata = journal == Journal::NearLazy;
                (image, JournalAt::Near { anchors, keeps_metadata })
            }
        }
    }

    /// An image with its journal near the head, by a number that counts around, and the anchors of
    /// its volume.
    #[must_use]
    pub fn near(&self, number: usize) -> (&DiskImage, Anchors) {
        let (image, placed) = &self.near[number % self.near.len()];
        (image, placed.anchors)
    }

    /// An image with its journal near the head on an array, by a number that counts around.
    ///
    /// # Errors
    /// If logs have no room on this array.
    pub(super) fn near_on(
        &self,
        array: &OnArray,
        journal: Journal,
        number: usize,
    ) -> Result<(DiskImages, JournalAt), String> {
        let (image, run) = &self.on_arrays[number % self.on_arrays.len()];
        let placed = placed_on(array, *run).ok_or(format!("{run:?} has no room on {array:?}"))?;
        let images = DiskImages::dealt(image.clone(), array.geometry, Sectors(SMALL_MIB << 11));
        let images = formatted_on(images, &placed)?;
        let keeps_metadata = journal == Journal::NearLazy;
        Ok((images, JournalAt::Near { anchors: placed.anchors, keeps_metadata }))
    }

    /// The image to adopt, by a number that counts around.
    pub(crate) fn to_adopt(&self, number: usize) -> &DiskImage {
        &self.adopted[number % self.adopted.len()]
    }

    /// Images with structures of every kind.
    ///
    /// # Errors
    /// The error of the driver or of a check.
    pub(super) fn filled(&self) -> Result<&[Filled], String> {
        let made = self.filled.get_or_init(|| {
            let mut all = Vec::new();
            for (kind, (image, _)) in KINDS.iter().zip(&self.plain) {
                all.extend(filled(&kind.join(" "), image)?);
            }
            all.extend(filled("old", &self.old)?);
            Ok(all)
        });
        made.as_deref().map_err(Clone::clone)
    }
}

/// A small image of a kind with a file for logs, which `add` adds and describes.
fn with_log_file<T>(
    options: &[&str],
    kind: &[&str],
    add: impl FnOnce(&Path, &Path) -> io::Result<T>,
) -> io::Result<(Template, T)> {
    let mut added = None;
    let bytes = mkfs_bytes(SMALL_MIB, &[options, kind].concat(), |image, dir| {
        added = Some(add(image, dir)?);
        Ok(())
    })?;
    let added = added.ok_or_else(|| io::Error::other("no log file was made"))?;
    Ok((Template::of(&bytes), added))
}

impl Template {
    fn of(bytes: &[u8]) -> Self {
        let sectors = (0..).zip(bytes.chunks_exact(512));
        let written = sectors.filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        Self(written.map(|(lba, sector)| (lba, sector.into())).collect())
    }

    fn disk(&self) -> DiskImage {
        let mut image = DiskImage::default();
        for (lba, sector) in &self.0 {
            image.corrupt(Lba(*lba), Sector::Bytes(sector.to_vec().into()));
        }
        image
    }
}

/// Whether a program for administrators exists.
#[must_use]
pub fn has_program(program: &str) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
    dirs.split(':').any(|dir| Path::new(dir).join(program).exists())
}

/// A command of administrators, which may not be in other users' `PATH`.
pub(super) fn command(program: &str) -> Command {
    let admin = Path::new("/usr/sbin").join(program);
    Command::new(if admin.exists() { admin.as_os_str() } else { program.as_ref() })
}

/// An image of `mib` MiB with blocks of 4096 bytes, made by mkfs.ext4. Always the same.
///
/// # Errors
/// If mkfs.ext4 is missing or fails.
pub fn mkfs(mib: u64, options: &[&str]) -> io::Result<DiskImage> {
    Ok(Template::of(&mkfs_bytes(mib, options, |_, _| Ok(()))?).disk())
}

/// Where images lie in memory.
const IN_MEMORY: &str = "/dev/shm";
/// Room that must be free there: images, of which several tests at once have some. Containers often
/// have 64 MiB.
const ROOM_KIB: u64 = 1 << 20;

/// A directory for images: in memory, if there is such a place with room and `TMPDIR` names no
/// other. e2fsck waits until what it writes is durable, and on a disk most of a test's time would
/// be that.
///
/// # Errors
/// Those of the file system.
pub fn image_dir() -> io::Result<tempfile::TempDir> {
    static HAS_ROOM: OnceLock<bool> = OnceLock::new();
    let named = std::env::var_os("TMPDIR").is_some();
    let has_room = || *HAS_ROOM.get_or_init(|| has_room(Path::new(IN_MEMORY), ROOM_KIB));
    if !named
        && has_room()
        && let Ok(dir) = tempfile::tempdir_in(IN_MEMORY)
    {
        return Ok(dir);
    }
    tempfile::tempdir()
}

/// Whether so much is free at a path; false if that is not known.
fn has_room(path: &Path, kib: u64) -> bool {
    let df = Command::new("df").args(["-k", "--output=avail"]).arg(path).output();
    let free = df.ok().filter(|df| df.status.success()).and_then(|df| {
        String::from_utf8_lossy(&df.stdout).lines().nth(1)?.trim().parse::<u64>().ok()
    });
    free.is_some_and(|free| free >= kib)
}

/// Makes an image file. `then` may change it, and gets a directory for its own files.
fn mkfs_bytes(
    mib: u64,
    options: &[&str],
    then: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let dir = image_dir()?;
    let path = dir.path().join("image");
    File::create(&path)?.set_len(mib << 20)?;
    let mut mkfs = command("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096", "-U", "12345678-1234-1234-1234-123456789abc"]);
    // Sets the time, so that a seed always makes the same history.
    mkfs.env("E2FSPROGS_FAKE_TIME", "1700000000");
    mkfs.args(["-E", "hash_seed=abcdef01-1234-1234-1234-123456789abc"]).args(options).arg(&path);
    let made = mkfs.output().map_err(|error| {
        io::Error::new(error.kind(), format!("mkfs.ext4: {error}: install e2fsprogs"))
    })?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(io::Error::other(format!("mkfs.ext4: {said}")));
    }
    then(&path, dir.path())?;
    std::fs::read(&path)
}

/// Loads the content of a file as a disk.
///
/// # Errors
/// Those of the file.
pub fn load(path: &Path) -> io::Result<DiskImage> {
    Ok(Template::of(&std::fs::read(path)?).disk())
}

/// Saves the content of a disk in a file. Torn sectors have arbitrary content.
///
/// # Errors
/// Those of the file.
pub fn save(image: &DiskImage, mib: u64, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(mib << 20)?;
    let source = ImageSource::new(image, mib);
    let mut bytes = [0; BLOCK_BYTES];
    for block in 0..source.blocks() {
        // Blocks that were never written need no space.
        if !image.read(Extent::new(block * BLOCK_SECTORS, BLOCK_SECTORS)).is_zero() {
            source.read(BlockNo(block), &mut bytes)?;
            file.write_all_at(&bytes, block * BLOCK_BYTES as u64)?;
        }
    }
    Ok(())
}

/// A disk's image, as the source of a check.
#[derive(Debug)]
pub struct ImageSource<I> {
    image: I,
    blocks: u64,
}

impl<I: AsImage> ImageSource<I> {
    /// The first `mib` MiB of an image.
    #[must_use]
    pub const fn new(image: I, mib: u64) -> Self {
        Self { image, blocks: mib << 8 }
    }
}

/// An image, borrowed or mutable.
pub trait AsImage {
    /// The image.
    fn image(&self) -> &DiskImage;
}

impl AsImage for &DiskImage {
    fn image(&self) -> &DiskImage {
        self
    }
}

impl AsImage for &mut DiskImage {
    fn image(&self) -> &DiskImage {
        self
    }
}

impl<I: AsImage> Source for ImageSource<I> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, block: BlockNo, into: &mut Block) -> io::Result<()> {
        let content = self.image.image().read(Extent::new(block.0 * BLOCK_SECTORS, BLOCK_SECTORS));
        for (sector, place) in content.sectors().zip(into.as_chunks_mut::<512>().0) {
            match sector {
                Some(Sector::Bytes(bytes)) => place.copy_from_slice(&bytes),
                Some(Sector::Tag(tag)) => {
                    place.as_chunks_mut::<8>().0.fill(tag.to_le_bytes());
                }
                Some(Sector::Zero) | None => place.fill(0),
            }
        }
        Ok(())
    }
}

impl Target for ImageSource<&mut DiskImage> {
    fn write(&mut self, block: BlockNo, bytes: &Block) -> io::Result<()> {
        for (lba, sector) in (block.0 * BLOCK_SECTORS..).zip(bytes.as_chunks::<512>().0) {
            self.image.corrupt(Lba(lba), Sector::Bytes(sector.to_vec().into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_lie_elsewhere_without_room_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(has_room(dir.path(), 0));
        assert!(!has_room(dir.path(), u64::MAX));
        assert!(!has_room(&dir.path().join("none"), 0));
    }
}
