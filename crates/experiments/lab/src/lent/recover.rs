//! How long the opening of a store takes, after a crash and after an orderly close.

use std::rc::Rc;
use std::slice::from_ref;

use manylogs_block::{
    BlockDevice, Extent, Handle, MemoryDevice, Nanos, Payload, Request, Rng, Sectors, to_usize,
};
use manylogs_disk::EmulatedDrive;
use manylogs_everest::{CircularStore, Lending, Offloaded, StoreOptions};
use manylogs_filters::Part;
use manylogs_sim::{NodeId, Sim, TaskOrder};

use super::world::{open_with_stores, shared};
use crate::episodes::devices::{HEADER, LOG, end_of};
use crate::episodes::{EpisodeFailure, OffloadPolicy};
use crate::replay::DriveSettings;
use crate::stats::round3;

/// What a sequential reader asks for at a time, and how many of these are in flight.
const PIECE: Sectors = Sectors(2048);
const AHEAD: usize = 4;
/// Salt of the seeds of places.
const PLACES: u64 = 0x7ec0_7e71;

/// A store with records of small writes, which is opened anew.
#[derive(Clone, Debug)]
pub struct RecoveryCase {
    /// What the store is on: its last 3 per cent.
    pub drive: DriveSettings,
    /// Number of writes, each a record of its own.
    pub records: u64,
    /// Length of each.
    pub request: Sectors,
    /// The part of the base volume that they are for, at random: the rest is stale.
    pub over: Sectors,
    /// The store is closed; otherwise its process is killed.
    pub orderly: bool,
    /// Decides everything random.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryFigures {
    /// What was written to the store's logs.
    pub log_mb: f64,
    /// What of it is valid.
    pub valid_mb: f64,
    /// Time of opening the store, and then the base volume.
    pub recovery_s: f64,
    /// Time of reading what was written from one end to the other.
    pub stream_s: f64,
    /// The first in times of the second.
    pub times: f64,
}

/// Measures a case on this thread.
///
/// # Errors
/// If the store cannot be made or opened, or a request fails.
pub fn recover(case: &RecoveryCase) -> Result<RecoveryFigures, EpisodeFailure> {
    let sim = Sim::new(case.seed, TaskOrder::Fifo);
    let (node, first, second) = (sim.node(), sim.node(), sim.node());
    let content = Rc::new(MemoryDevice::new(case.drive.profile.capacity()));
    let below = Rc::clone(&content) as Rc<dyn BlockDevice>;
    let options = case.drive.options(case.seed);
    let drive = EmulatedDrive::new(sim.handle(node), &case.drive.profile, &options, below)?;
    let device: Rc<dyn BlockDevice> = Rc::new(drive);
    let extent = end_of(&*device);
    let part: Rc<dyn BlockDevice> = Rc::new(Part::new(device, extent));
    let home: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(case.over + HEADER));
    fill(&sim, first, [&part, &home].map(Rc::clone), case)?;
    sim.kill(first);
    let used = Sectors(content.media().iter().count() as u64);
    let (runtime, opened) = (sim.handle(second), Rc::clone(&part));
    let (valid, took) = sim.block_on(second, async move {
        let began = runtime.now();
        let store = CircularStore::open(runtime.clone(), vec![opened]).await?;
        let lending = Lending::open(store, None).await?;
        let (lenders, options) = (shared(from_ref(&lending)), OffloadPolicy::Kept.options(1));
        let volume = Offloaded::open(runtime.clone(), home, lenders, options).await?;
        let took = runtime.now().since(began);
        let valid = volume.figures().held;
        volume.close().await;
        lending.store().close().await?;
        Ok::<_, EpisodeFailure>((valid, took))
    })?;
    let runtime = sim.handle(second);
    let stream = sim.block_on(second, async move { stream(runtime, part, used).await })?;
    let mb = |of: Sectors| round3(of.bytes() as f64 / 1e6);
    Ok(RecoveryFigures {
        log_mb: mb(used),
        valid_mb: mb(valid),
        recovery_s: round3(took.as_secs_f64()),
        stream_s: round3(stream.as_secs_f64()),
        times: round3(took.as_secs_f64() / stream.as_secs_f64().max(1e-9)),
    })
}

/// Writes the records, one after the other.
fn fill(
    sim: &Sim,
    node: NodeId,
    [part, home]: [Rc<dyn BlockDevice>; 2],
    case: &RecoveryCase,
) -> Result<(), EpisodeFailure> {
    let (runtime, case) = (sim.handle(node), case.clone());
    sim.block_on(node, async move {
        let table = StoreOptions::table_for(part.capabilities().capacity);
        let options = StoreOptions { log: LOG, table };
        let store = CircularStore::create(runtime.clone(), vec![part], options).await?;
        let lending = Lending::open(store, None).await?;
        Offloaded::create(&runtime, Rc::clone(&home)).await?;
        let (lenders, options) = (shared(from_ref(&lending)), OffloadPolicy::Kept.options(1));
        let volume = open_with_stores(runtime, home, lenders, options).await?;
        let mut rng = Rng::new(case.seed ^ PLACES);
        for number in 1..=case.records {
            let place = rng.below(case.over.0 / case.request.0);
            let extent = Extent::new(place * case.request.0, case.request.0);
            let payload = Payload::tags(number << 8, case.request);
            volume.submit(Request::write_fua(extent, payload)).await?;
        }
        if case.orderly {
            volume.close().await;
            lending.store().close().await?;
        }
        Ok(())
    })
}

/// How long it takes to read the first `len` of a device.
async fn stream(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    len: Sectors,
) -> Result<Nanos, EpisodeFailure> {
    let began = runtime.now();
    let mut ahead = Vec::new();
    for start in (0..len.0).step_by(to_usize(PIECE.0)) {
        let extent = Extent::new(start, PIECE.0.min(len.0 - start));
        ahead.push(device.submit(Request::Read { extent }));
        if ahead.len() == AHEAD {
            ahead.remove(0).await?;
        }
    }
    for read in ahead {
        read.await?;
    }
    Ok(runtime.now().since(began))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sweep::drive;

    #[test]
    fn all_records_are_found_again_about_as_fast_as_they_can_be_read() {
        let profile = drive("cheetah-15k5").unwrap();
        let case = |records, orderly| RecoveryCase {
            drive: DriveSettings::new(Arc::clone(&profile), false),
            records,
            request: Sectors(8),
            over: Sectors(8 * 1000),
            orderly,
            seed: 1,
        };
        let (little, found) =
            (recover(&case(1, false)).unwrap(), recover(&case(5000, false)).unwrap());
        // 5000 records for 1000 places leave few of these out.
        assert!((4.0..=4.1).contains(&found.valid_mb) && found.log_mb > 20.0, "{found:?}");
        // The logs that were named as used are looked at in any case.
        let more_s = found.recovery_s - little.recovery_s;
        assert!((0.7..1.5).contains(&(more_s / found.stream_s)), "{found:?} beside {little:?}");
        // After an orderly close the table is read, and no log.
        let closed = recover(&case(5000, true)).unwrap();
        assert_eq!(closed.valid_mb, found.valid_mb);
        assert!(closed.recovery_s < 0.2 && closed.recovery_s < found.recovery_s, "{closed:?}");
    }
}
