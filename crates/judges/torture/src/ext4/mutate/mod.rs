//! Damaged images: whatever they contain, nothing panics, hangs, or reaches beyond the file system.
//!
//! Most damage is done within a structure, whose checksum is then corrected, so that the damage
//! gets past the checksums to the code that relies on them. Our own check examines each damaged
//! image, too, and on a sample its verdict is compared with that of e2fsck.

mod compare;
mod damage;
mod filled;
mod old;
mod used;

use manylogs_block::Rng;
use manylogs_sim::DiskImage;

pub(crate) use compare::is_unseen;
pub(super) use filled::{Filled, filled};
pub(super) use old::add_old_things;

use super::images::{ImageSource, Images};
use super::judge::is_due;
use super::world::SMALL_MIB;
use crate::report::Report;

/// Damages an image by chance, judges it and uses it.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_mutant(seed: u64, images: &Images, e2fsck_every: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed ^ 0x6d75_7461);
    let filled = images.filled()?;
    let picked = &filled[manylogs_block::to_usize(rng.below(filled.len() as u64))];
    let mut image: DiskImage = picked.image.clone();
    let told = damage::damage(&mut image, picked, &mut rng);
    let mut report = Report::default();
    let tally = &mut report.tally;
    (tally.histories, tally.mutated) = (1, 1);
    let wrong = |problem: String| format!("{}, {told}: {problem}", picked.name);
    let found = manylogs_ext4check::check(&ImageSource::new(&image, SMALL_MIB));
    // Images with blocks that are not at home yet are not compared.
    if is_due(&mut rng, e2fsck_every) && picked.is_at_rest {
        compare::compare(&image, found, tally).map_err(wrong)?;
    }
    let mounted = used::use_image(image, picked.is_at_rest, rng.next_u64()).map_err(wrong)?;
    report.tally.mutated_mounted += u64::from(mounted);
    Ok(report)
}

/// Damages a file system at the homes of its structures. Returns a description of the damage.
///
/// # Errors
/// If there is no file system.
pub(crate) fn damage_anything(image: &mut DiskImage, rng: &mut Rng) -> Result<String, String> {
    let filled = Filled::unchecked("damaged", image.clone())?;
    Ok(damage::damage(image, &filled, rng) + ": ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use manylogs_block::to_usize;
    use manylogs_ext4check::{BLOCK_BYTES, Source, Structure, Target};

    use super::*;
    use crate::ext4::images::{Templates, has_program};

    /// Number of bytes of a structure that its checksum covers, or that have only one valid value.
    fn covered(structure: Structure) -> u64 {
        match structure {
            Structure::Superblock | Structure::Journal(_) => 1024,
            Structure::Descriptor(_) => 64,
            Structure::Inode(..) => 256,
            // The root's entries end in its first bytes.
            Structure::IndexNode { .. } => 40,
            Structure::BlockMap(_) | Structure::Log(_) => 0,
            _ => 4096,
        }
    }

    #[test]
    fn no_flipped_bit_of_a_structure_passes() {
        if !has_program("mkfs.ext4") {
            manylogs_testkit::skip("needs mkfs.ext4");
            return;
        }
        let images = Templates::make().unwrap().images().unwrap();
        let mut rng = Rng::new(8);
        for filled in images.filled().unwrap().iter().filter(|filled| filled.name == "old") {
            for structure in filled.kinds.iter().flat_map(|kind| kind.iter().take(40)) {
                let (block, range) = filled.survey.place(*structure);
                if covered(*structure) == 0 {
                    continue;
                }
                let bit = to_usize(rng.below(covered(*structure) * 8));
                let mut image = filled.image.clone();
                let mut target = ImageSource::new(&mut image, SMALL_MIB);
                let mut bytes = [0; BLOCK_BYTES];
                target.read(block, &mut bytes).unwrap();
                bytes[range.start + bit / 8] ^= 1 << (bit % 8);
                target.write(block, &bytes).unwrap();
                let found = manylogs_ext4check::check(&ImageSource::new(&image, SMALL_MIB));
                let passes = found.is_ok_and(|report| report.is_spotless());
                assert!(!passes, "bit {bit} of {structure:?}");
                // With the bit restored and the checksum corrected, the structure is sound.
                bytes[range.start + bit / 8] ^= 1 << (bit % 8);
                let mut target = ImageSource::new(&mut image, SMALL_MIB);
                target.write(block, &bytes).unwrap();
                filled.survey.seal(&mut target, *structure).unwrap();
                let report = manylogs_ext4check::check(&ImageSource::new(&image, SMALL_MIB));
                assert_eq!(report.unwrap().findings, [], "{structure:?}");
            }
        }
    }
}
