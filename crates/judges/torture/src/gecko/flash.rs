//! What happens to the SSD of a chain's tail cache: it is lost, returns with an older state, is
//! damaged, or fails. Clients must not notice.

use manylogs_block::{IoError, Lba, Request, Rng};
use manylogs_sim::{CrashDisk, DiskImage};

use super::plan::{FLASH_STRIPE, GeckoPlan};
use super::world::{Drives, Images};

/// Requests before an SSD fails, at most.
const SOUND_MOST: u64 = 60;
/// One sector in this number is damaged.
const DAMAGED_EVERY: u64 = 4;

impl Images {
    /// The images with something else on the SSD, if the chain has one and `rng` says so. `older`
    /// are the images of an earlier crash.
    pub(super) fn with_other_flash(
        &self,
        plan: &GeckoPlan,
        older: Option<&Self>,
        rng: &mut Rng,
    ) -> Self {
        let mut images = self.clone();
        let number = plan.drives.len();
        let (Some(config), Some(flash)) = (plan.flash, images.0.get_mut(number)) else {
            return images;
        };
        match rng.below(6) {
            0 => *flash = DiskImage::default(),
            1 => *flash = older.map(|older| older.0[number].clone()).unwrap_or_default(),
            // The headers of stripes stay whole.
            kind @ 2..4 => {
                for at in FLASH_STRIPE.0..config.capacity.0 {
                    if at % FLASH_STRIPE.0 < 16 || !rng.one_in(DAMAGED_EVERY) {
                        continue;
                    }
                    match kind {
                        2 => flash.corrupt(Lba(at), manylogs_block::Sector::Tag(rng.next_u64())),
                        _ => flash.make_unreadable(Lba(at)),
                    }
                }
            }
            _ => {}
        }
        images
    }
}

impl Drives {
    /// Lets the SSD fail one request or all, after some, if the chain has one and `rng` says so.
    pub(super) fn let_flash_fail(&self, plan: &GeckoPlan, rng: &mut Rng) {
        if plan.flash.is_none() || !rng.one_in(3) {
            return;
        }
        let flash: &CrashDisk = self.drive(plan.drives.len());
        let (mut left, once) = (rng.below(SOUND_MOST), rng.one_in(2));
        flash.fail_requests(Box::new(move |request: &Request| {
            if left > 0 {
                left -= 1;
                return None;
            }
            left = if once { u64::MAX } else { 0 };
            let extent = request.extent().unwrap_or_default();
            Some(if once { IoError::Medium { extent } } else { IoError::Gone })
        }));
    }
}
