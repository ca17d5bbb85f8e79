//! How fast everything that a store holds goes home.

use std::rc::Rc;
use std::slice::from_ref;

use manylogs_block::{BlockDevice, Nanos, Sectors};
use manylogs_everest::{Lending, OffloadOptions, Offloaded, Policy};

use super::case::LentLoad;
use super::world::{Clients, World, open_with_stores, shared};
use crate::episodes::{EpisodeFailure, OffloadPolicy};
use crate::replay::DriveSettings;
use crate::stats::round3;

/// How often it is looked whether the store holds nothing any more.
const LOOK: Nanos = Nanos::from_millis(20);
/// Pause between two rounds of reclaiming.
const BETWEEN: Nanos = Nanos::from_millis(1);

/// A store that holds what one volume wrote, and is emptied while nobody asks for anything.
#[derive(Clone, Debug)]
pub struct ReclaimCase {
    /// What the volume and the store are on, each.
    pub drive: DriveSettings,
    /// What was written.
    pub load: LentLoad,
    /// Number of writes.
    pub writes: u64,
    /// Ranges that go home together.
    pub together: usize,
    /// Decides everything random.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReclaimFigures {
    /// What the store held.
    pub held_mb: f64,
    /// How fast it went home and was forgotten.
    pub mb_s: f64,
    /// How long that took.
    pub took_s: f64,
}

/// Measures a case on this thread.
///
/// # Errors
/// If volumes cannot be made, or a request fails.
pub fn reclaim(case: &ReclaimCase) -> Result<ReclaimFigures, EpisodeFailure> {
    let world = World::new(&case.drive, 2, case.seed);
    let lender = world.lend(1, None, 100)?;
    let base = world.base(0);
    filled(&world, Rc::clone(&base), &lender, case)?;
    let options = OffloadOptions {
        policy: Policy::Never,
        together: case.together,
        reclaim_every: BETWEEN,
        ..OffloadOptions::default()
    };
    let held = of_all(&lender);
    let (runtime, lenders) = (world.runtime(), shared(from_ref(&lender)));
    let took = world.sim.block_on(world.host, async move {
        let volume = Offloaded::open(runtime.clone(), base, lenders, options).await?;
        let began = runtime.now();
        while of_all(&lender).0 > 0 {
            runtime.sleep(LOOK).await;
        }
        volume.close().await;
        Ok::<_, EpisodeFailure>(runtime.now().since(began))
    })?;
    let (mb, s) = (held.bytes() as f64 / 1e6, took.as_secs_f64());
    Ok(ReclaimFigures { held_mb: round3(mb), mb_s: round3(mb / s.max(1e-9)), took_s: round3(s) })
}

/// Sectors that a store holds.
fn of_all(lender: &Lending) -> Sectors {
    Sectors(lender.clients().iter().map(|(_, held)| held.0).sum())
}

fn filled(
    world: &World,
    base: Rc<dyn BlockDevice>,
    lender: &Lending,
    case: &ReclaimCase,
) -> Result<(), EpisodeFailure> {
    let (runtime, lenders) = (world.runtime(), shared(from_ref(lender)));
    let volume = world.sim.block_on(world.host, async move {
        Offloaded::create(&runtime, Rc::clone(&base)).await?;
        let options = OffloadPolicy::Kept.options(1);
        open_with_stores(runtime, base, lenders, options).await
    })?;
    let clients = Clients::new(world, Rc::new(volume.clone()), case.load, case.seed)?;
    clients.write_all(case.writes);
    world.sim.run_until(|| clients.is_over());
    clients.failure()?;
    world.sim.block_on(world.host, async move { volume.close().await });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::LoadAt;
    use super::*;
    use crate::sweep::drive;

    #[test]
    fn a_stream_goes_home_faster_than_random_writes() {
        let profile = drive("cheetah-15k5").unwrap();
        let rate = |sequential, together| {
            let load = LentLoad {
                reads_percent: 0,
                request: Sectors(128),
                depth: 32,
                over: Sectors(8 << 21),
                sequential,
                at: LoadAt::Beginning,
            };
            let drive = DriveSettings::new(Arc::clone(&profile), false);
            let case = ReclaimCase { drive, load, writes: 400, together, seed: 1 };
            let found = reclaim(&case).unwrap();
            assert!((found.held_mb - 400.0 * 0.065_536).abs() < 0.2, "{found:?}");
            found.mb_s
        };
        let (stream, random, one) = (rate(true, 64), rate(false, 64), rate(false, 1));
        assert!(stream > 1.5 * random && random > 1.5 * one, "{stream}, {random}, {one}");
    }
}
