//! Worlds opened from the images of a crash.

use std::rc::Rc;

use manylogs_block::{Nanos, Payload, Rng, Time};
use manylogs_everest::{Lender, Offloaded};
use manylogs_sim::{Sim, TaskOrder};

use super::plan::{EverestPlan, NetPlan};
use super::world::{Images, Machines, read_all};

/// Time at which a recovery and the reclaiming after it are over.
const AT_REST: Time = Time(60_000_000_000);
/// A network without faults.
const CALM: NetPlan = NetPlan {
    lost: 0,
    doubled: 0,
    late: 0,
    delay_max: Nanos(1000),
    timeout: Nanos::from_secs(100),
};

/// Starts the stores on the images, and links the base volumes to them.
fn boot(
    sim: &Sim,
    plan: &EverestPlan,
    images: &Images,
    rng: &mut Rng,
) -> Result<Rc<Machines>, String> {
    let machines = Rc::new(Machines::new(sim, plan, images));
    (0..plan.stores.len()).for_each(|store| machines.start_store(sim, plan, store, false));
    let failed = || machines.problem.borrow().is_some();
    let up = || machines.serving.iter().all(super::wire::Serving::is_up);
    sim.run_until(|| failed() || up() || sim.now() > AT_REST);
    if let Some(problem) = machines.problem.take() {
        return Err(format!("recovery failed: {problem}"));
    }
    if !up() {
        return Err("recovery of a store hangs".to_owned());
    }
    machines.link(CALM, rng);
    Ok(machines)
}

/// Delivers the messages under way: half of them before the clients open, the rest after.
fn deliver(sim: &Sim, machines: &Machines, images: &Images, rng: &mut Rng) {
    for (store, call) in &images.messages {
        let Some((runtime, lending)) = machines.serving[*store].get() else { continue };
        let (call, later) = (call.clone(), rng.below(2) * rng.below(5_000_000));
        sim.handle(machines.stores[*store].node.get()).spawn(async move {
            runtime.sleep(Nanos(later)).await;
            drop(lending.call(call).await);
        });
    }
}

/// The content of the volumes after a crash.
pub(super) fn recover(
    plan: &EverestPlan,
    images: &Images,
    seed: u64,
) -> Result<Vec<Payload>, String> {
    let sim = Sim::new(plan.seed, TaskOrder::Shuffled);
    let mut rng = Rng::new(plan.seed ^ seed);
    let machines = boot(&sim, plan, images, &mut rng)?;
    deliver(&sim, &machines, images, &mut rng);
    let mut contents = Vec::new();
    let mut volumes: Vec<Offloaded> = Vec::new();
    for base in 0..plan.bases.len() {
        let opened = machines.open_base(&sim, plan, base, false);
        let volume = sim.block_on(machines.bases[base].node.get(), opened)?;
        let reader = volume.clone();
        let again = rng.one_in(4);
        let read = sim.block_on(machines.bases[base].node.get(), async move {
            let content = read_all(&reader).await?;
            if again {
                reader.reclaim().await.map_err(|error| format!("reclaim: {error}"))?;
                if read_all(&reader).await? != content {
                    return Err("what was brought home is not what was there".to_owned());
                }
            }
            Ok(content)
        });
        contents.push(read?);
        volumes.push(volume);
    }
    Ok(contents)
}

/// Opens the crashed disks, and crashes somewhere during that or soon after.
pub(super) fn crash_in_recovery(plan: &EverestPlan, images: &Images, rng: &mut Rng) -> Images {
    let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
    let crash_at = 1 + rng.below(80);
    let Ok(machines) = boot(&sim, plan, images, rng) else { return images.clone() };
    deliver(&sim, &machines, images, rng);
    for base in 0..plan.bases.len() {
        let opened = machines.open_base(&sim, plan, base, false);
        sim.handle(machines.bases[base].node.get()).spawn(async move {
            if let Ok(volume) = opened.await {
                drop(volume.reclaim().await);
            }
        });
    }
    let total = || machines.events().0 + machines.events().1;
    let from = total();
    sim.run_until(|| total() >= from + crash_at || sim.now() > AT_REST);
    machines.after_crash(rng)
}
