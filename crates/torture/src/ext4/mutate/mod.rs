//! Damaged images: whatever they say, nothing panics, hangs, or reaches beyond the file system.
//!
//! Most damage is done within a structure, whose checksum is then put right, so that the damage
//! gets past the checksums to whatever believes it. Our own check looks at each damaged image, too,
//! and on a sample its verdict is compared with that of e2fsck.

mod compare;
mod damage;
mod filled;
mod old;
mod used;

use manylogs_block::Rng;
use manylogs_sim::DiskImage;

pub(super) use filled::{Filled, filled};
pub(super) use old::add_old_things;

use super::images::{ImageSource, Images};
use super::judge::is_due;
use super::world::SMALL_MIB;
use crate::forks::Report;

/// Damages an image by chance, judges it and uses it.
///
/// # Errors
/// What did not hold.
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
    // What is not at home yet is no matter for a comparison.
    if is_due(&mut rng, e2fsck_every) && picked.is_at_rest {
        compare::compare(&image, found, tally).map_err(wrong)?;
    }
    let mounted = used::use_image(image, picked.is_at_rest, rng.next_u64()).map_err(wrong)?;
    report.tally.mutated_mounted += u64::from(mounted);
    Ok(report)
}
