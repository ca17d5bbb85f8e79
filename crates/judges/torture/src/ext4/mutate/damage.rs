//! Random damage.

use std::fmt::Write;
use std::ops::Range;

use manylogs_block::{Extent, Lba, Rng, Sector, to_usize};
use manylogs_ext4check::{BLOCK_BYTES, Block, Source, Structure, Target};
use manylogs_sim::DiskImage;

use super::Filled;
use crate::ext4::images::ImageSource;
use crate::ext4::world::SMALL_MIB;

/// Damages an image in a few places. Returns a description of them.
pub(super) fn damage(image: &mut DiskImage, filled: &Filled, rng: &mut Rng) -> String {
    let mut told = String::new();
    for _ in 0..1 + rng.below(3) {
        if rng.one_in(6) {
            damage_sector(image, rng, &mut told);
        } else if let Err(error) = damage_structure(image, filled, rng, &mut told) {
            let _ = write!(told, " ({error})");
        }
    }
    told
}

/// Changes some bytes of a sector with content, and leaves checksums as they are.
fn damage_sector(image: &mut DiskImage, rng: &mut Rng, told: &mut String) {
    let lba = loop {
        // Half of this damage is where most structures lie.
        let below = if rng.one_in(2) { 400 } else { SMALL_MIB << 11 };
        let lba = rng.below(below);
        if !image.read(Extent::new(lba, 1)).is_zero() {
            break lba;
        }
    };
    let Some(bytes) = image.read(Extent::new(lba, 1)).to_bytes() else { return };
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + rng.below(3) {
        change(&mut bytes, rng);
    }
    let _ = write!(told, "sector {lba}; ");
    image.corrupt(Lba(lba), Sector::Bytes(bytes.into()));
}

/// Changes a structure and, most often, corrects its checksum.
fn damage_structure(
    image: &mut DiskImage,
    filled: &Filled,
    rng: &mut Rng,
    told: &mut String,
) -> std::io::Result<()> {
    let structure = pick(filled, rng);
    let (block, range) = filled.survey.place(structure);
    let mut target = ImageSource::new(image, SMALL_MIB);
    let mut bytes = [0; BLOCK_BYTES];
    target.read(block, &mut bytes)?;
    let before = bytes;
    if rng.one_in(12) {
        transplant(&target, filled, structure, &mut bytes, rng)?;
    }
    for _ in 0..1 + rng.below(3) {
        let part = field(&bytes, range.clone(), rng);
        change(&mut bytes[part], rng);
    }
    target.write(block, &bytes)?;
    let sealed = !rng.one_in(8);
    if sealed {
        filled.survey.seal(&mut target, structure)?;
    }
    let _ = write!(told, "{structure:?}");
    for (at, (old, new)) in before.iter().zip(&bytes).enumerate() {
        if old != new && told.len() < 600 {
            let _ = write!(told, " {:#x}:{old:02x}->{new:02x}", at - range.start.min(at));
        }
    }
    let _ = write!(told, "{}; ", if sealed { " sealed" } else { "" });
    Ok(())
}

/// Picks a structure: each kind is equally likely, however many structures it has.
fn pick(filled: &Filled, rng: &mut Rng) -> Structure {
    let kinds = &filled.kinds;
    let of_kind = &kinds[to_usize(rng.below(kinds.len() as u64))];
    of_kind[to_usize(rng.below(of_kind.len() as u64))]
}

/// Copies the content of another structure of the same kind over this one.
fn transplant(
    source: &dyn Source,
    filled: &Filled,
    structure: Structure,
    bytes: &mut Block,
    rng: &mut Rng,
) -> std::io::Result<()> {
    let same = |other: &&Vec<Structure>| other.contains(&structure);
    let Some(of_kind) = filled.kinds.iter().find(same) else { return Ok(()) };
    let other = of_kind[to_usize(rng.below(of_kind.len() as u64))];
    let ((from, taken), (_, place)) = (filled.survey.place(other), filled.survey.place(structure));
    let mut content = [0; BLOCK_BYTES];
    source.read(from, &mut content)?;
    bytes[place].copy_from_slice(&content[taken]);
    Ok(())
}

/// Picks a part of a structure: most often at its beginning, or around bytes that are not zero.
fn field(bytes: &Block, range: Range<usize>, rng: &mut Rng) -> Range<usize> {
    let len = range.len() as u64;
    let mut at = match rng.below(3) {
        0 => rng.below(len),
        1 => rng.below(len.min(64)),
        _ => rng.below(len.min(256)),
    };
    for _ in 0..8 {
        if bytes[range.start + to_usize(at)] != 0 {
            break;
        }
        at = rng.below(len);
    }
    let at = range.start + to_usize(at) / 4 * 4;
    at..(at + 4).min(range.end)
}

/// Changes a field.
fn change(bytes: &mut [u8], rng: &mut Rng) {
    let at = to_usize(rng.below(bytes.len() as u64));
    match rng.below(8) {
        0 => bytes[at] = 0,
        1 => bytes[at] = 0xFF,
        2 => bytes[at] ^= 1 << rng.below(8),
        3 => bytes[at] = bytes[at].wrapping_add(1),
        4 => bytes[at] = bytes[at].wrapping_sub(1),
        5 => bytes.fill(if rng.one_in(2) { 0 } else { 0xFF }),
        6 => {
            // A small number: a block of structures, an inode in use, a short length.
            let bound = 1 << rng.below(15);
            let number = rng.below(bound).to_le_bytes();
            let len = bytes.len().min(4);
            bytes[..len].copy_from_slice(&number[..len]);
        }
        _ => bytes[at] = rng.below(256).to_le_bytes()[0],
    }
}
