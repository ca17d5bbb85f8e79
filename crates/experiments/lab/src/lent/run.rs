//! Busy volumes that borrow drives.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Nanos, Time};
use manylogs_everest::{Lending, Offloaded};

use super::case::{LentCase, LentFigures};
use super::world::{Clients, Times, World};
use crate::episodes::devices::HEADER;
use crate::episodes::{EpisodeFailure, OffloadPolicy};
use crate::stats::round3;

/// Measures a case on this thread.
///
/// # Errors
/// If the part that clients use does not fit, volumes cannot be made, or a request fails.
pub fn run(case: &LentCase) -> Result<LentFigures, EpisodeFailure> {
    let woken = u32::from(case.wakes);
    let count = case.clients + woken + case.idle;
    let world = World::new(&case.drive, count.into(), case.seed);
    let volumes = Volumes::new(&world, case)?;
    let began = world.sim.now();
    let measured = Time(began.0 + case.warm.0);
    let (half, end) = (Time(began.0 + case.warm.0 / 2), Time(measured.0 + case.span.0));
    let counted = [(half, measured), (measured, end)];
    let mut all = Vec::new();
    for (number, device) in (0..).zip(volumes.devices) {
        let clients = Clients::new(&world, device, case.load, case.seed ^ number << 40)?;
        let from = if number < u64::from(case.clients) { began } else { measured };
        clients.start(Times { from, until: end, counted });
        all.push(clients);
    }
    world.sim.run_until(|| all.iter().all(|clients| clients.is_over()));
    all.iter().try_for_each(|clients| clients.failure())?;
    let (busy, woken) = all.split_at(manylogs_block::to_usize(case.clients.into()));
    let rate = |clients: &[Rc<Clients>], window: usize, over: Nanos| {
        let answered: u64 = clients.iter().map(|one| one.answered[window].get()).sum();
        answered as f64 / clients.len().max(1) as f64 / over.as_secs_f64().max(1e-9)
    };
    let per_s = rate(busy, 1, case.span);
    let did: Vec<_> = volumes.offloaded.iter().map(Offloaded::figures).collect();
    let sum = |of: fn(&manylogs_everest::OffloadFigures) -> u64| did.iter().map(of).sum::<u64>();
    let (offloaded, home) = (sum(|one| one.offloaded), sum(|one| one.home));
    Ok(LentFigures {
        per_s: round3(per_s),
        mb_s: round3(per_s * case.load.request.bytes() as f64 / 1e6),
        before_per_s: round3(rate(busy, 0, Nanos(case.warm.0 - case.warm.0 / 2))),
        woken_per_s: round3(rate(woken, 1, case.span)),
        offloaded_percent: round3(100.0 * offloaded as f64 / (offloaded + home).max(1) as f64),
        held_mb: round3(sum(|one| one.held.bytes()) as f64 / 1e6),
    })
}

/// The devices of clients: first the volumes that are busy from the beginning, then the one that
/// becomes busy.
struct Volumes {
    devices: Vec<Rc<dyn BlockDevice>>,
    offloaded: Vec<Offloaded>,
}

impl Volumes {
    fn new(world: &World, case: &LentCase) -> Result<Self, EpisodeFailure> {
        let clients = manylogs_block::to_usize(case.clients.into());
        let busy = clients + usize::from(case.wakes);
        let plain = |drive: usize| world.plain(drive, case.load.at);
        if case.policy == OffloadPolicy::None {
            let devices = (0..busy).map(plain).collect();
            return Ok(Self { devices, offloaded: Vec::new() });
        }
        let lends = |drive: usize| if drive < clients { case.mutual || case.own } else { true };
        let behind = case.own.then_some(case.load.over + HEADER);
        let mut stores: Vec<(usize, Lending)> = Vec::new();
        for drive in (0..world.drives.len()).filter(|drive| lends(*drive)) {
            stores.push((drive, world.lend(drive, behind, case.share)?));
        }
        let (mut devices, mut offloaded): (Vec<Rc<dyn BlockDevice>>, _) = (vec![], vec![]);
        for drive in 0..clients {
            let usable = stores.iter().filter(|(on, _)| (*on == drive) == case.own);
            let lenders: Vec<Lending> = usable.map(|(_, store)| store.clone()).collect();
            let options =
                manylogs_everest::OffloadOptions { copies: case.copies, ..case.policy.options(1) };
            let volume = world.borrow(drive, &lenders, options)?;
            devices.push(Rc::new(volume.clone()));
            offloaded.push(volume);
        }
        devices.extend((clients..busy).map(plain));
        Ok(Self { devices, offloaded })
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Sectors;

    use super::super::{LentLoad, LoadAt};
    use super::*;
    use crate::replay::DriveSettings;
    use crate::sweep::drive;

    fn case(policy: OffloadPolicy) -> LentCase {
        let profile = drive("cheetah-15k5").unwrap();
        let load = LentLoad {
            reads_percent: 0,
            request: Sectors(128),
            depth: 32,
            over: Sectors(8 << 21),
            sequential: false,
            at: LoadAt::Beginning,
        };
        LentCase {
            drive: DriveSettings::new(profile, false),
            policy,
            copies: 1,
            clients: 1,
            idle: 1,
            mutual: false,
            own: false,
            wakes: false,
            share: 100,
            load,
            warm: Nanos::from_secs(1),
            span: Nanos::from_secs(2),
            seed: 1,
        }
    }

    #[test]
    fn random_writes_gain_on_a_store_and_reads_do_not() {
        let alone = run(&case(OffloadPolicy::None)).unwrap();
        let lent = run(&case(OffloadPolicy::Kept)).unwrap();
        assert!(lent.mb_s > 2.0 * alone.mb_s, "{lent:?} beside {alone:?}");
        assert_eq!((alone.offloaded_percent, lent.offloaded_percent), (0.0, 100.0));
        assert_eq!(lent, run(&case(OffloadPolicy::Kept)).unwrap());
        let of_reads = |policy| {
            let usual = case(policy);
            run(&LentCase { load: LentLoad { reads_percent: 100, ..usual.load }, ..usual }).unwrap()
        };
        let (alone, lent) = (of_reads(OffloadPolicy::None), of_reads(OffloadPolicy::Kept));
        assert!((lent.per_s / alone.per_s - 1.0).abs() < 0.05, "{lent:?} beside {alone:?}");
    }

    #[test]
    fn a_lender_that_becomes_busy_is_counted_apart() {
        let usual = case(OffloadPolicy::PAPER);
        let found = run(&LentCase { wakes: true, idle: 0, ..usual }).unwrap();
        assert!(found.woken_per_s > 0.0 && found.before_per_s > 0.0, "{found:?}");
        let without = run(&case(OffloadPolicy::PAPER)).unwrap();
        assert_eq!(without.woken_per_s, 0.0);
    }

    #[test]
    fn a_load_that_does_not_fit_is_refused() {
        let usual = case(OffloadPolicy::None);
        let over = Sectors(1 << 40);
        let case = LentCase { load: LentLoad { over, ..usual.load }, ..usual };
        assert!(matches!(run(&case), Err(EpisodeFailure::Room { .. })));
    }
}
