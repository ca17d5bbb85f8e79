//! Worlds opened from the images of a crash.

use std::rc::Rc;

use manylogs_block::{Nanos, Payload, Rng, Time};
use manylogs_everest::{Lender, Offloaded, StoreId};
use manylogs_sim::{Sim, TaskOrder};

use super::gone::Lost;
use super::plan::{EverestPlan, NetPlan};
use super::world::{Images, Machines, open_or_forget, read_all};

/// Time at which a recovery and the reclaiming after it are over.
const AT_REST: Time = Time(60_000_000_000);
/// All goes home within this time if nobody writes, and every store that is not gone answers.
const HOME_WITHIN: Nanos = Nanos::from_secs(60);
/// A network without faults.
const CALM: NetPlan = NetPlan {
    lost: 0,
    doubled: 0,
    late: 0,
    delay_max: Nanos(1000),
    // Only a store that is gone for good does not answer.
    timeout: Nanos::from_secs(5),
};

/// Starts the stores on the images, and links the base volumes to them.
fn boot(
    sim: &Sim,
    plan: &EverestPlan,
    images: &Images,
    rng: &mut Rng,
) -> Result<Rc<Machines>, String> {
    let machines = Rc::new(Machines::new(sim, plan, images));
    machines.start_stores(sim, plan, false);
    let failed = || machines.problem.borrow().is_some();
    let up = || machines.are_up();
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

/// A volume after a crash.
pub(super) struct Recovered {
    /// Its content; what could not be read is absent.
    pub(super) content: Payload,
    /// What was lost with a store that had to be forgotten for an opening.
    pub(super) lost: Lost,
    /// Stores that take no more writes, and those that are gone.
    pub(super) leaving: Vec<StoreId>,
}

/// The content of the volumes after a crash, and how often a note said what they lose.
pub(super) fn recover(
    plan: &EverestPlan,
    images: &Images,
    seed: u64,
) -> Result<(Vec<Recovered>, u64), String> {
    let sim = Sim::new(plan.seed, TaskOrder::Shuffled);
    let mut rng = Rng::new(plan.seed ^ seed);
    let machines = boot(&sim, plan, images, &mut rng)?;
    deliver(&sim, &machines, images, &mut rng);
    let mut contents = Vec::new();
    let mut volumes: Vec<Offloaded> = Vec::new();
    for base in 0..plan.bases.len() {
        let node = machines.bases[base].node.get();
        let attempts = [0; 2].map(|_| machines.open_base(&sim, plan, base, false));
        let opened = open_or_forget(Rc::clone(&machines), sim.handle(node), base, attempts);
        let volume = sim.block_on(node, opened)?;
        let (reader, clock) = (volume.clone(), sim.handle(node));
        let again = rng.one_in(4);
        let read = sim.block_on(node, async move {
            let content = read_all(&reader).await?;
            if again {
                let home = clock.within(HOME_WITHIN, reader.reclaim()).await;
                let home = home.ok_or("reclaim: it does not end")?;
                home.map_err(|error| format!("reclaim: {error}"))?;
                if read_all(&reader).await? != content {
                    return Err("what was brought home is not what was there".to_owned());
                }
            }
            Ok(content)
        });
        let left = volume.stores().into_iter().filter(|store| store.left_from.is_some());
        let gone = images.gone.as_ref().map(|gone| gone.id);
        let leaving = left.map(|store| store.id).chain(gone).collect();
        let lost = machines.lost[base].copy();
        contents.push(Recovered { content: read?, lost, leaving });
        volumes.push(volume);
    }
    Ok((contents, machines.noted.get()))
}

/// Opens the crashed disks, and crashes somewhere during that or soon after.
pub(super) fn crash_in_recovery(plan: &EverestPlan, images: &Images, rng: &mut Rng) -> Images {
    let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
    let crash_at = 1 + rng.below(80);
    let Ok(machines) = boot(&sim, plan, images, rng) else { return images.clone() };
    deliver(&sim, &machines, images, rng);
    for base in 0..plan.bases.len() {
        let runtime = sim.handle(machines.bases[base].node.get());
        let attempts = [0; 2].map(|_| machines.open_base(&sim, plan, base, false));
        let opened = open_or_forget(Rc::clone(&machines), runtime.clone(), base, attempts);
        runtime.spawn(async move {
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
