//! Leaving without our program: the homes alone, as e2fsck repairs them. A file that needed
//! durability and no place from its birth on may lack content then, but it shows nothing that was
//! written to its blocks before it was born.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::to_usize;
use manylogs_ext4::{Attributes, Ext4, FileKind, Ino};
use manylogs_sim::DiskImage;

use super::images::{image_dir, load, save};
use super::judge::{e2fsck, names};
use super::world::{SMALL_MIB, World};

/// What stamped sectors begin with.
const MARK: [u8; 8] = *b"written\xa5";
const SECTOR: usize = 512;
/// Bits of a moment that count microseconds since the mount.
const MOUNT_SHIFT: u32 = 40;

/// A moment of a history: the number of the mount, then microseconds since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    /// `nanos` after the beginning of mount number `mount`.
    pub(super) const fn new(mount: u64, nanos: u64) -> Self {
        Self((mount << MOUNT_SHIFT) | (nanos / 1000))
    }
}

/// Files that had the property from their birth on, by the number and generation of their inodes,
/// and when they were born. The clients of a history share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Births(Rc<RefCell<BTreeMap<(Ino, u32), Moment>>>);

impl Births {
    /// Notes that an inode was given to a new file, which has the property or not.
    pub(super) fn note(&self, made: &Attributes, born: Moment, has_property: bool) {
        let key = (made.ino, made.generation);
        match has_property && made.kind == FileKind::File {
            true => self.0.borrow_mut().insert(key, born),
            false => self.0.borrow_mut().remove(&key),
        };
    }

    /// Notes that files with this inode may lose the property.
    pub(super) fn forget(&self, ino: Ino) {
        self.0.borrow_mut().retain(|(other, _), _| *other != ino);
    }
}

/// Writes into each sector that begins in `bytes`, which are written at `offset`, when that was.
pub(super) fn stamp(bytes: &mut [u8], offset: u64, at: Moment) {
    let first = to_usize(offset.next_multiple_of(SECTOR as u64) - offset);
    for sector in bytes.get_mut(first..).unwrap_or_default().chunks_mut(SECTOR) {
        if let Some(place) = sector.first_chunk_mut::<24>() {
            place[..8].copy_from_slice(&MARK);
            place[8..16].copy_from_slice(&at.0.to_le_bytes());
            place[16..].copy_from_slice(&(!at.0).to_le_bytes());
        }
    }
}

/// When a sector was written; `None` if it has no stamp, or parts of two.
fn stamped(sector: &[u8]) -> Option<Moment> {
    let (mark, rest) = sector.split_first_chunk::<8>()?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (at, again) = (u64::from_le_bytes(*at), u64::from_le_bytes(*rest.first_chunk::<8>()?));
    (*mark == MARK && again == !at).then_some(Moment(at))
}

/// Repairs the homes alone with e2fsck, and reads them as plain ext4. Returns the number of files
/// that were judged.
///
/// # Errors
/// What e2fsck could not repair, or a file that shows what its blocks held before it was born.
pub(super) fn show_no_stranger(
    image: &DiskImage,
    births: &Births,
    seed: u64,
) -> Result<u64, String> {
    let told = |error: std::io::Error| error.to_string();
    let dir = image_dir().map_err(told)?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path).map_err(told)?;
    let repaired = e2fsck(&["-fy"], &path);
    if !(0..=1).contains(&repaired.code) {
        return Err(format!("the homes alone: {repaired}"));
    }
    let world = World::new(seed, SMALL_MIB, load(&path).map_err(told)?);
    let births = births.0.borrow().clone();
    let judged = world.run(async move |fs: Ext4| {
        let judged = judge_tree(&fs, &births).await;
        drop(fs.unmount().await);
        judged
    });
    judged.map_err(|error| format!("the homes alone: {error}"))?
}

/// Judges the files of all directories.
async fn judge_tree(fs: &Ext4, births: &BTreeMap<(Ino, u32), Moment>) -> Result<u64, String> {
    let told = |error: manylogs_ext4::Error| format!("the homes alone: {error}");
    let (mut dirs, mut judged) = (vec![Ino::ROOT], 0);
    while let Some(dir) = dirs.pop() {
        for (name, ino) in names(fs, dir).await.map_err(told)? {
            let found = fs.attributes(ino).await.map_err(told)?;
            if found.kind == FileKind::Directory {
                dirs.push(ino);
            }
            let Some(born) = births.get(&(ino, found.generation)) else { continue };
            if found.kind != FileKind::File {
                continue;
            }
            let bytes = fs.read(ino, 0, to_usize(found.size)).await.map_err(told)?;
            let is_older = |sector: &[u8]| stamped(sector).is_some_and(|at| at < *born);
            if let Some(at) = bytes.chunks(SECTOR).position(is_older) {
                let name = String::from_utf8_lossy(&name);
                return Err(format!(
                    "the homes alone: {name}, {ino}, sector {at}: older than the file"
                ));
            }
            judged += 1;
        }
    }
    Ok(judged)
}
