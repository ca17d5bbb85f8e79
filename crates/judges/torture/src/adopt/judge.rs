//! Judges what a crash left of a file system on its way to MLFS, or back.

use manylogs_block::Rng;
use manylogs_ext4::Ext4;
use manylogs_mlfs::adopt::{AdoptError, LogState, Looked, adopt, look, open, release};
use manylogs_sim::DiskImage;

use super::history::{AdoptPlan, site};
use super::model::Model;
use super::raw::Superblocks;
use crate::ext4::{self, SMALL_MIB, World, nothing_is_wrong};

/// What e2fsck says about a torn commit block: the transaction does not count yet.
const TORN: &[&str] = &["was corrupt, replay was aborted"];

/// The plan and the model by which a state is judged.
pub(super) struct Judge<'p> {
    pub(super) plan: &'p AdoptPlan,
    pub(super) model: Model,
}

impl Judge<'_> {
    /// Checks the promises for every crash state: a program that may use the file system finds all
    /// files, and every other program is kept away.
    pub(super) fn check(
        &self,
        image: &DiskImage,
        rng: &mut Rng,
        sampled: bool,
    ) -> Result<(), String> {
        let seen = Superblocks::of(image)?;
        seen.check()?;
        if seen.is_plain() {
            self.by_ext4(image, rng.next_u64(), sampled)?;
        }
        let looked = self.look(image, rng.next_u64())?;
        match looked.logs {
            LogState::InUse(_) if !seen.is_guarded() => {
                Err("the logs hold changes, and a superblock has no bit".to_owned())
            }
            LogState::Unusable(why) => Err(format!("the logs cannot be used: {why}")),
            _ => Ok(()),
        }
    }

    /// Uses it as the kernel would: replays its journal, and finds all files.
    fn by_ext4(&self, image: &DiskImage, seed: u64, sampled: bool) -> Result<(), String> {
        let image = if sampled { ext4::replayed_by_e2fsck(image, TORN)? } else { image.clone() };
        self.read(&image, seed, true).map_err(|wrong| format!("used as ext4: {wrong}"))
    }

    /// Mounts it as ext4, compares all files, and unmounts it. After that it must be without
    /// errors.
    fn read(&self, image: &DiskImage, seed: u64, may_have_logs: bool) -> Result<(), String> {
        let world = World::torn(seed, SMALL_MIB, image.clone());
        let model = self.model.clone();
        let found = world.run(async move |fs: Ext4| {
            let checked = model.check(&fs, may_have_logs).await;
            fs.unmount().await.map_err(|error| format!("unmount: {error}"))?;
            checked
        });
        found.map_err(|error| format!("mount: {error}"))??;
        nothing_is_wrong(&world.settled())
    }

    fn look(&self, image: &DiskImage, seed: u64) -> Result<Looked, String> {
        let world = World::torn(seed, SMALL_MIB, image.clone());
        let site = site(&world);
        let engine = self.plan.engine();
        let looking = async move { look(&site, &engine).await };
        world.sim.block_on(world.user, looking).map_err(|error| format!("look: {error}"))
    }

    /// Adopts the file system again and opens it: the result must be an MLFS with complete marks.
    pub(super) fn finish_adopting(
        &self,
        image: &DiskImage,
        seed: u64,
    ) -> Result<DiskImage, String> {
        let world = World::torn(seed, SMALL_MIB, image.clone());
        let (site, layout, engine) = (site(&world), self.plan.layout, self.plan.engine());
        let finished = world.sim.block_on(world.user, async move {
            match adopt(&site, &layout, &engine).await {
                Ok(_) | Err(AdoptError::AlreadyAdopted) => open(&site, &engine).await,
                Err(error) => Err(error),
            }
        });
        finished.map_err(|error| format!("adopted again: {error}"))?;
        let image = ext4::crash(&world, &mut Rng::new(seed));
        let seen = Superblocks::of(&image)?;
        if seen.primary.stage != 2 || !seen.is_guarded() || !seen.primary.whole {
            return Err("adopted again: a mark is missing".to_owned());
        }
        Ok(image)
    }

    /// Releases the file system: the result must be an ext4 without a trace of MLFS, and with all
    /// files.
    pub(super) fn finish_releasing(
        &self,
        image: &DiskImage,
        seed: u64,
        sampled: bool,
    ) -> Result<DiskImage, String> {
        let before = Superblocks::of(image)?;
        let world = World::torn(seed, SMALL_MIB, image.clone());
        let (site, engine) = (site(&world), self.plan.engine());
        let released = async move { release(&site, &engine).await };
        match world.sim.block_on(world.user, released) {
            Err(AdoptError::NotAdopted) if before.is_clean() => {}
            released => released.map_err(|error| format!("released: {error}"))?,
        }
        let image = ext4::crash(&world, &mut Rng::new(seed));
        if !Superblocks::of(&image)?.is_clean() {
            return Err("released: a mark is left".to_owned());
        }
        if sampled {
            ext4::replayed_by_e2fsck(&image, TORN).map_err(|wrong| format!("released: {wrong}"))?;
        }
        self.read(&image, seed, false).map_err(|wrong| format!("released: {wrong}"))?;
        Ok(image)
    }
}
