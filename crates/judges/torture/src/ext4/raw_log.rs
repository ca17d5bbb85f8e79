//! The blocks of a journal as they lie on the disk: read with offsets of this module's own, not the
//! driver's.

use manylogs_block::{Rng, to_usize};
use manylogs_ext4check::{BLOCK_BYTES, Block, BlockNo, Source, Structure, Survey, Target};
use manylogs_sim::DiskImage;

use super::images::ImageSource;

const MAGIC: u32 = 0xC03B_3998;
/// Bits of the features of journals.
const WIDE: u32 = 0x2;
const CHECKSUMS_IN_FULL: u32 = 0x10;

/// What a block of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    /// It announces copies.
    Descriptor,
    /// The copy of this block of the file system.
    Copy(u64),
    /// It revokes blocks.
    Revoke,
    /// It ends a transaction.
    Commit,
}

/// A block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// What it is.
    pub kind: RawKind,
    /// Its transaction.
    pub tid: u32,
    /// Its number in the journal.
    pub at: u32,
    /// Its place on the disk.
    pub place: u64,
}

/// The transactions of a log from its beginning, up to the first block that does not go on there.
/// Checksums are not compared.
#[derive(Clone, Debug, Default)]
pub struct RawLog {
    /// The blocks of all transactions with a commit block.
    pub blocks: Vec<RawBlock>,
    /// The place of the journal's superblock on the disk.
    pub superblock: u64,
    /// Whether the log's blocks have checksums of 32 bits.
    pub has_checksums: bool,
}

fn number(block: &Block, at: usize) -> u32 {
    u32::from_be_bytes([0, 1, 2, 3].map(|byte| block[at + byte]))
}

impl RawLog {
    /// The log in an image of `mib` MiB.
    ///
    /// # Errors
    /// If there is no journal, or the image cannot be read.
    pub fn of(image: &DiskImage, mib: u64) -> Result<Self, String> {
        let source = ImageSource::new(image, mib);
        let survey = Survey::of(&source).map_err(|error| error.to_string())?;
        Self::at(image, mib, &places(&survey))
    }

    /// As [`RawLog::of`], for a journal in these blocks, in its order.
    pub(super) fn at(image: &DiskImage, mib: u64, places: &[u64]) -> Result<Self, String> {
        let source = ImageSource::new(image, mib);
        let read = |at: u32| {
            let mut block: Block = [0; BLOCK_BYTES];
            let place = *places.get(at as usize).ok_or("the journal is too short")?;
            source.read(BlockNo(place), &mut block).map_err(|error| error.to_string())?;
            Ok::<_, String>((block, place))
        };
        let (superblock, place) = read(0)?;
        let (end, first) = (number(&superblock, 0x10), number(&superblock, 0x14));
        let (mut tid, mut at) = (number(&superblock, 0x18), number(&superblock, 0x1C));
        let features = number(&superblock, 0x28);
        let has_checksums = features & CHECKSUMS_IN_FULL != 0;
        let wide = has_checksums || features & WIDE != 0;
        let mut log = Self { blocks: Vec::new(), superblock: place, has_checksums };
        if number(&superblock, 0) != MAGIC || at == 0 || wide != has_checksums {
            return Ok(log);
        }
        let mut open = Vec::new();
        for _ in 0..end - first {
            let (block, place) = read(at)?;
            if number(&block, 0) != MAGIC || number(&block, 8) != tid {
                break;
            }
            let kind = match number(&block, 4) {
                1 => RawKind::Descriptor,
                2 => RawKind::Commit,
                5 => RawKind::Revoke,
                _ => break,
            };
            let after = |at: u32| if at + 1 == end { first } else { at + 1 };
            open.push(RawBlock { kind, tid, at, place });
            at = after(at);
            if kind == RawKind::Descriptor {
                for home in homes(&block, has_checksums) {
                    let place = *places.get(at as usize).ok_or("the journal is too short")?;
                    open.push(RawBlock { kind: RawKind::Copy(home), tid, at, place });
                    at = after(at);
                }
            }
            if kind == RawKind::Commit {
                log.blocks.append(&mut open);
                tid = tid.wrapping_add(1);
            }
        }
        Ok(log)
    }

    /// A block whose damage must not stay unseen: any but the last transaction's commit block,
    /// which a crash may have torn as well.
    pub(super) fn pick(&self, rng: &mut Rng) -> Option<RawBlock> {
        let choices = self.blocks.len().checked_sub(1).filter(|choices| *choices > 0)?;
        self.blocks.get(to_usize(rng.below(choices as u64))).copied()
    }
}

/// The homes that a descriptor names: with checksums of 32 bits, or of a journal with neither
/// checksums nor wide numbers.
fn homes(block: &Block, has_checksums: bool) -> Vec<u64> {
    let (tag, end) = if has_checksums { (16, BLOCK_BYTES - 4) } else { (8, BLOCK_BYTES) };
    let (mut found, mut at) = (Vec::new(), 12);
    while at + tag <= end {
        let (high, flags) = match has_checksums {
            true => (number(block, at + 8), number(block, at + 4)),
            false => (0, number(block, at + 4) & 0xFFFF),
        };
        found.push(u64::from(high) << 32 | u64::from(number(block, at)));
        // The first tag is followed by an id; the last one has a flag.
        at += tag + if flags & 2 == 0 { 16 } else { 0 };
        if flags & 8 != 0 {
            break;
        }
    }
    found
}

/// The places of a journal's blocks, in its order.
pub(super) fn places(survey: &Survey) -> Vec<u64> {
    let place = |structure: &Structure| match structure {
        Structure::Journal(block) | Structure::Log(block) => Some(block.0),
        _ => None,
    };
    survey.structures.iter().filter_map(place).collect()
}

/// The image with one block changed: a bit of it, or every byte.
#[must_use]
pub fn flipped(image: &DiskImage, mib: u64, place: u64, rng: &mut Rng) -> DiskImage {
    let mut image = image.clone();
    let mut target = ImageSource::new(&mut image, mib);
    let mut block: Block = [0; BLOCK_BYTES];
    let read = target.read(BlockNo(place), &mut block);
    if rng.one_in(2) {
        block[to_usize(rng.below(BLOCK_BYTES as u64))] ^= 1 << rng.below(8);
    } else {
        block.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if read.is_ok() {
        drop(target.write(BlockNo(place), &block));
    }
    image
}
