//! A model of RAID-1: all members hold the same content.

mod resync;

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, IoError, IoResult, Lba, Payload,
    Request, completion,
};

use manylogs_plant::{self as plant, Bug};

use crate::capabilities::of_each;
use crate::join::join;
use crate::members::Members;
use resync::Traffic;

/// RAID-1 over members of equal size. Writes go to all members. A read goes, as with md, to the
/// member whose last request it continues; else to an idle member; else to the one whose head is
/// nearest. A read that fails is repeated on the other members. A member that fails a write or a
/// flush is lost, unless it is the last: the request succeeds if another member carried it out. So
/// is a member that fails a read while the members may differ ([`Members::with_copies`]). Where
/// they may, all reads go to the first of them, as with md, so that a reader gets the same content
/// each time; [`Mirror::resync`] ends that, and fills new members ([`Members::with_new`]).
/// Clones are the same array.
#[derive(Clone)]
pub struct Mirror(Rc<Shared>);

struct Shared {
    runtime: Handle,
    devices: Vec<Member>,
    members: Members,
    traffic: Traffic,
    capabilities: Capabilities,
}

struct Member {
    device: Rc<dyn BlockDevice>,
    /// Where the member's last request ends.
    head: Cell<Lba>,
    under_way: Cell<usize>,
}

impl Mirror {
    /// An array of `members`.
    ///
    /// # Panics
    /// If `members` is empty.
    #[must_use]
    pub fn new(runtime: Handle, members: Vec<Rc<dyn BlockDevice>>) -> Self {
        let known = Members::with_copies(&vec![false; members.len()], false);
        Self::with(runtime, members, known)
    }

    /// An array of `members` of which `known` is known.
    ///
    /// # Panics
    /// If `members` is empty, not as many as are known, or without one that has the content.
    #[must_use]
    pub fn with(runtime: Handle, members: Vec<Rc<dyn BlockDevice>>, known: Members) -> Self {
        assert_eq!(members.len(), known.len(), "members of a mirror");
        let mut each = known.lost().into_iter().zip(known.unfilled());
        assert!(each.any(|(lost, new)| !lost && !new), "no member has the content: {known:?}");
        let capabilities = of_each(&members);
        let member = |device| Member { device, head: Cell::default(), under_way: Cell::default() };
        let (devices, traffic) = (members.into_iter().map(member).collect(), Traffic::default());
        Self(Rc::new(Shared { runtime, devices, members: known, traffic, capabilities }))
    }

    fn go(&self, request: &Request, urgent: bool) -> Completion {
        if let Err(error) = self.0.capabilities.check(request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => self.read(*extent, urgent),
            _ if self.0.members.behind().is_none() => self.send_to_all(request, urgent),
            _ => self.write_beside_resync(request, urgent),
        }
    }

    fn send_to_all(&self, request: &Request, urgent: bool) -> Completion {
        let skips = request == &Request::Flush && plant::is(Bug::MirrorFlushSkipsMember);
        let live = self.0.live().filter(|at| self.0.members.takes_writes(*at));
        let live = live.skip(usize::from(skips));
        let parts = live.map(|at| self.send(at, request.clone(), urgent));
        join(None, parts.collect())
    }

    /// Sends a write or a flush while members may differ: a write waits for the resynchronisation
    /// if that is at the same place, and is known to it until it has ended.
    fn write_beside_resync(&self, request: &Request, urgent: bool) -> Completion {
        let Some(extent) = request.extent() else { return self.send_to_all(request, urgent) };
        let (completer, answer) = completion();
        let (array, request) = (self.clone(), request.clone());
        let begun = (!self.0.traffic.is_taken(extent)).then(|| self.begin(&request, urgent));
        self.0.runtime.spawn(async move {
            let begun = match begun {
                Some(begun) => begun,
                None => {
                    array.0.traffic.until_free(extent).await;
                    array.begin(&request, urgent)
                }
            };
            let result = begun.await;
            array.0.traffic.end(extent);
            completer.complete(result);
        });
        answer
    }

    fn begin(&self, request: &Request, urgent: bool) -> Completion {
        self.0.traffic.begin(request.extent().unwrap_or_default());
        self.send_to_all(request, urgent)
    }

    fn read(&self, extent: Extent, urgent: bool) -> Completion {
        let read = self.read_first_on(self.0.choose(extent), extent, urgent);
        let (completer, answer) = completion();
        self.0.runtime.spawn(async move {
            let (_, result) = read.await;
            completer.complete(result);
        });
        answer
    }

    /// Reads on the member `first`, and on the others in turn if that fails. The first read has
    /// begun when this returns. Also tells which member answered: the last one asked if none did.
    fn read_first_on(
        &self,
        first: usize,
        extent: Extent,
        urgent: bool,
    ) -> impl Future<Output = (usize, IoResult)> + use<> {
        let (array, request) = (self.clone(), Request::Read { extent });
        let begun = self.send(first, request.clone(), urgent);
        async move {
            let (mut source, mut result) = (first, begun.await);
            let mut failed = if result.is_err() { vec![first] } else { Vec::new() };
            for other in (0..array.0.devices.len()).filter(|other| *other != first) {
                if result.is_ok() {
                    break;
                }
                if !array.0.members.holds(other, extent) {
                    continue;
                }
                (source, result) = (other, array.send(other, request.clone(), urgent).await);
                if result.is_err() {
                    failed.push(other);
                }
            }
            // Members that may differ are not read in turn: the next read might find older content.
            if result.is_ok() && array.0.members.behind().is_some() {
                for at in failed {
                    let _ = array.0.members.lose(at);
                }
            }
            (source, result)
        }
    }

    fn send(&self, at: usize, request: Request, urgent: bool) -> Completion {
        let member = &self.0.devices[at];
        if let Some(extent) = request.extent() {
            member.head.set(extent.end());
        }
        member.under_way.set(member.under_way.get() + 1);
        let reads = matches!(request, Request::Read { .. });
        let answer = match urgent {
            true => member.device.submit_urgent(request),
            false => member.device.submit(request),
        };
        let (completer, told) = completion();
        let shared = Rc::clone(&self.0);
        self.0.runtime.spawn(async move {
            let mut result = answer.await;
            let failed = !matches!(result, Ok(_) | Err(IoError::Unsupported));
            if failed && !reads && shared.members.lose(at) {
                result = Ok(Payload::default());
            }
            let under_way = &shared.devices[at].under_way;
            under_way.set(under_way.get() - 1);
            completer.complete(result);
        });
        told
    }
}

impl Shared {
    /// Those that are not lost.
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.devices.len()).filter(|at| !self.members.is_lost(*at))
    }

    /// The members that have the array's content at a place.
    fn holding(&self, place: Extent) -> impl Iterator<Item = usize> {
        (0..self.devices.len()).filter(move |at| self.members.holds(*at, place))
    }

    fn choose(&self, extent: Extent) -> usize {
        if !self.reads_any(extent) {
            return self.holding(extent).next().unwrap_or_default();
        }
        let distance = |at: &usize| self.devices[*at].head.get().distance(extent.start);
        let goes_on = self.holding(extent).find(|at| self.devices[*at].head.get() == extent.start);
        let idle = || {
            let idle = |at: &usize| self.devices[*at].under_way.get() == 0;
            self.holding(extent).filter(idle).min_by_key(distance)
        };
        let nearest = || self.holding(extent).min_by_key(distance);
        goes_on.or_else(idle).or_else(nearest).unwrap_or_default()
    }

    /// Whether any member may answer a read.
    fn reads_any(&self, extent: Extent) -> bool {
        let has_begun = || self.members.behind().is_some_and(|from| from > Lba(0));
        self.members.in_step(extent)
            || plant::is(Bug::MirrorReadsAnyCopy)
            || (plant::is(Bug::MirrorReadBeforeResync) && has_begun())
    }
}

impl BlockDevice for Mirror {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        self.go(&request, false)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.go(&request, true)
    }

    fn has_priorities(&self) -> bool {
        self.0.devices.iter().all(|member| member.device.has_priorities())
    }

    fn has_copies(&self) -> bool {
        self.0.devices.len() > 1
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("members", &self.0.members).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, MemoryDevice, Nanos, RequestKind, Sector, Sectors};
    use manylogs_filters::{Delay, Faults, Rule, Trace};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;
    use crate::members::Pace;

    #[test]
    fn all_have_what_is_written_one_reads_it_and_another_if_that_fails() {
        let sim = Sim::new(1, TaskOrder::Shuffled);
        let node = sim.node();
        let members: Vec<_> = (0..2)
            .map(|_| Rc::new(Faults::new(Trace::new(MemoryDevice::new(Sectors(100))))))
            .collect();
        let devices = members.iter().map(|member| Rc::clone(member) as Rc<_>).collect();
        let mirror = Mirror::new(sim.handle(node), devices);
        let extent = Extent::new(10, 8);
        let content = Payload::tags(5, extent.len);
        let (device, expected) = (mirror, content.clone());
        let broken = Rc::clone(&members[0]);
        sim.block_on(node, async move {
            device.submit(Request::write_fua(extent, content)).await.unwrap();
            let read = Request::Read { extent };
            assert_eq!(device.submit(read.clone()).await, Ok(expected.clone()));
            broken.add(Rule::new(&[RequestKind::Read], |extent| IoError::Medium { extent }));
            for _ in 0..3 {
                assert_eq!(device.submit(read.clone()).await, Ok(expected.clone()));
            }
        });
        for member in &members {
            assert_eq!(member.below().writes(), [extent]);
        }
    }

    #[test]
    fn a_member_that_fails_a_write_is_lost_and_the_last_one_is_not() {
        let sim = Sim::new(1, TaskOrder::Shuffled);
        let node = sim.node();
        let members: Vec<_> =
            (0..2).map(|_| Rc::new(Faults::new(MemoryDevice::new(Sectors(100))))).collect();
        let devices = members.iter().map(|member| Rc::clone(member) as Rc<_>).collect();
        let known = Members::with_copies(&[false; 2], false);
        let mirror = Mirror::with(sim.handle(node), devices, known.clone());
        let extent = Extent::new(10, 8);
        let write = move |tag| Request::write_fua(extent, Payload::tags(tag, extent.len));
        let medium = || Rule::new(&[RequestKind::Write], |extent| IoError::Medium { extent });
        sim.block_on(node, async move {
            mirror.submit(write(1)).await.unwrap();
            members[0].add(medium());
            mirror.submit(write(100)).await.unwrap();
            assert!(known.is_lost(0) && !known.is_lost(1));
            for _ in 0..3 {
                let read = mirror.submit(Request::Read { extent }).await;
                assert_eq!(read, Ok(Payload::tags(100, extent.len)), "never the older content");
            }
            members[1].add(medium());
            assert_eq!(mirror.submit(write(200)).await, Err(IoError::Medium { extent }));
            assert!(!known.is_lost(1));
        });
    }

    #[test]
    fn a_resynchronisation_brings_members_in_step_beside_writes() {
        for seed in 0..20 {
            let sim = Sim::new(seed, TaskOrder::Shuffled);
            let node = sim.node();
            let runtime = sim.handle(node);
            let memory: Vec<_> = (0..3).map(|_| Rc::new(MemoryDevice::new(Sectors(200)))).collect();
            let slow = |of: &Rc<MemoryDevice>| {
                Rc::new(Delay::new(runtime.clone(), Rc::clone(of), Nanos::from_micros(50))) as Rc<_>
            };
            let known = Members::with_copies(&[false; 3], true);
            let mirror =
                Mirror::with(runtime.clone(), memory.iter().map(slow).collect(), known.clone());
            let apart = Extent::new(50, 100);
            let second = Rc::clone(&memory[1]);
            sim.block_on(node, async move {
                second
                    .submit(Request::write_fua(apart, Payload::tags(7, apart.len)))
                    .await
                    .unwrap();
                let resync = mirror.clone();
                let pace = Pace { window: Sectors(16), pause: Nanos::from_micros(10) };
                runtime.spawn(async move { resync.resync(pace).await });
                for tag in 0..40 {
                    let extent = Extent::new((tag * 31) % 180, 12);
                    let read = mirror.submit(Request::Read { extent: apart }).await.unwrap();
                    let write =
                        Request::write_fua(extent, Payload::tags(1000 + 20 * tag, extent.len));
                    mirror.submit(write).await.unwrap();
                    let old = read.sectors().flatten();
                    let old = old.filter(|it| matches!(it, Sector::Tag(tag) if *tag < 1000));
                    assert_eq!(old.count(), 0, "only the first member counts, seed {seed}");
                }
                while known.behind().is_some() {
                    runtime.sleep(Nanos::from_micros(100)).await;
                }
            });
            let whole = Extent::new(0, 200);
            let content = |of: &Rc<MemoryDevice>| of.media().read(whole);
            let contents: Vec<Payload> = memory.iter().map(content).collect();
            assert!(contents.iter().all(|it| *it == contents[0]), "seed {seed}");
        }
    }
    /// Loses the first of three members that differ while the first window is read from it. The
    /// others must hold the same when the resynchronisation has ended.
    #[test]
    fn a_window_begins_anew_if_the_member_that_it_is_read_from_is_lost() {
        let (whole, window) = (Extent::new(0, 64), Sectors(16));
        for fails in [&[RequestKind::Write], &[RequestKind::Read]] {
            let sim = Sim::new(1, TaskOrder::Shuffled);
            let node = sim.node();
            let runtime = sim.handle(node);
            let memory: Vec<_> = (0..3).map(|_| Rc::new(MemoryDevice::new(Sectors(64)))).collect();
            let delay = Nanos::from_micros(50);
            let member = |of: &Rc<MemoryDevice>| {
                Rc::new(Faults::new(Delay::new(runtime.clone(), Rc::clone(of), delay)))
            };
            let members: Vec<_> = memory.iter().map(member).collect();
            let devices = members.iter().map(|member| Rc::clone(member) as Rc<_>).collect();
            let known = Members::with_copies(&[false; 3], true);
            let mirror = Mirror::with(runtime.clone(), devices, known.clone());
            let (content, lost) = (memory.clone(), known.clone());
            sim.block_on(node, async move {
                for (tag, member) in (1000..).step_by(1000).zip(&content) {
                    let differs = Request::write_fua(whole, Payload::tags(tag, whole.len));
                    member.submit(differs).await.unwrap();
                }
                members[0].add(Rule::new(fails, |extent| IoError::Medium { extent }));
                let resync = mirror.clone();
                let pace = Pace { window, pause: Nanos::from_micros(10) };
                runtime.spawn(async move { resync.resync(pace).await });
                runtime.sleep(Nanos::from_micros(10)).await;
                let apart = Extent::new(40, 8);
                mirror
                    .submit(Request::write_fua(apart, Payload::tags(1, apart.len)))
                    .await
                    .unwrap();
                while known.behind().is_some() {
                    runtime.sleep(Nanos::from_micros(100)).await;
                }
            });
            assert_eq!(lost.lost(), [true, false, false], "{fails:?}");
            let [_, second, third] = [0, 1, 2].map(|at: usize| memory[at].media().read(whole));
            assert_eq!(second, third, "{fails:?}");
            assert_eq!(second.slice(Sectors(0), window), Payload::tags(2000, window), "{fails:?}");
        }
    }
}
