//! A model of RAID-1: all members hold the same content.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Handle, IoError, Lba, Payload, Request, completion,
};

use manylogs_plant::{self as plant, Bug};

use crate::capabilities::of_each;
use crate::join::join;

/// RAID-1 over members of equal size. Writes go to all members. A read goes, as with md, to the
/// member whose last request it continues; else to an idle member; else to the one whose head is
/// nearest. A read that fails is repeated on the other members. A member that fails a write or a
/// flush is lost, unless it is the last: the request succeeds if another member carried it out. So
/// is a member that fails a read while the members may differ ([`Copies::new`]).
/// Clones are the same array.
#[derive(Clone)]
pub struct Mirror(Rc<Shared>);

/// What a mirror knows of its members, and keeps when it is stopped and started again. Clones are
/// the same knowledge.
#[derive(Clone, Debug)]
pub struct Copies(Rc<Known>);

#[derive(Debug)]
struct Known {
    /// Whether each member is lost: it has missed a write.
    lost: Vec<Cell<bool>>,
    apart: bool,
}

impl Copies {
    /// The knowledge that the members in `lost` are lost. `apart` says whether the others may
    /// differ, because writes were in flight when the array stopped, and were not brought in step
    /// since. Then all reads go to the first of them, as with md, so that a reader gets the same
    /// content each time.
    #[must_use]
    pub fn new(lost: &[bool], apart: bool) -> Self {
        Self(Rc::new(Known { lost: lost.iter().copied().map(Cell::new).collect(), apart }))
    }

    /// Whether the member is lost.
    #[must_use]
    pub fn is_lost(&self, member: usize) -> bool {
        self.0.lost[member].get()
    }

    /// Takes the member out of the array; false if it is the last.
    pub fn lose(&self, member: usize) -> bool {
        let is_last = (0..self.0.lost.len()).all(|at| at == member || self.is_lost(at));
        if !is_last {
            self.0.lost[member].set(true);
        }
        !is_last
    }
}

struct Shared {
    runtime: Handle,
    members: Vec<Member>,
    copies: Copies,
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
        let copies = Copies::new(&vec![false; members.len()], false);
        Self::with(runtime, members, copies)
    }

    /// An array of `members` of which `copies` is known.
    ///
    /// # Panics
    /// If `members` is empty, or not as many as `copies` knows.
    #[must_use]
    pub fn with(runtime: Handle, members: Vec<Rc<dyn BlockDevice>>, copies: Copies) -> Self {
        assert_eq!(members.len(), copies.0.lost.len(), "members of a mirror");
        let capabilities = of_each(&members);
        let member = |device| Member { device, head: Cell::default(), under_way: Cell::default() };
        let members = members.into_iter().map(member).collect();
        Self(Rc::new(Shared { runtime, members, copies, capabilities }))
    }

    fn go(&self, request: &Request, urgent: bool) -> Completion {
        if let Err(error) = self.0.capabilities.check(request) {
            return Completion::ready(Err(error));
        }
        if matches!(request, Request::Read { .. }) {
            return self.read(request.clone(), urgent);
        }
        let skips = request == &Request::Flush && plant::is(Bug::MirrorFlushSkipsMember);
        let live = self.0.live().skip(usize::from(skips));
        let parts = live.map(|at| self.send(at, request.clone(), urgent));
        join(None, parts.collect())
    }

    fn read(&self, request: Request, urgent: bool) -> Completion {
        let first = self.0.choose(request.extent().unwrap_or_default().start);
        let (completer, answer) = completion();
        let array = self.clone();
        let begun = self.send(first, request.clone(), urgent);
        self.0.runtime.spawn(async move {
            let mut result = begun.await;
            let mut failed = if result.is_err() { vec![first] } else { Vec::new() };
            for other in (0..array.0.members.len()).filter(|other| *other != first) {
                if result.is_ok() {
                    break;
                }
                if array.0.copies.is_lost(other) {
                    continue;
                }
                result = array.send(other, request.clone(), urgent).await;
                if result.is_err() {
                    failed.push(other);
                }
            }
            // Members that may differ are not read in turn: the next read might find older content.
            if result.is_ok() && array.0.copies.0.apart {
                for at in failed {
                    let _ = array.0.copies.lose(at);
                }
            }
            completer.complete(result);
        });
        answer
    }

    fn send(&self, at: usize, request: Request, urgent: bool) -> Completion {
        let member = &self.0.members[at];
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
            if failed && !reads && shared.copies.lose(at) {
                result = Ok(Payload::default());
            }
            let under_way = &shared.members[at].under_way;
            under_way.set(under_way.get() - 1);
            completer.complete(result);
        });
        told
    }
}

impl Shared {
    /// The members that are not lost.
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|at| !self.copies.is_lost(*at))
    }

    fn choose(&self, start: Lba) -> usize {
        if self.copies.0.apart && !plant::is(Bug::MirrorReadsAnyCopy) {
            return self.live().next().unwrap_or_default();
        }
        let goes_on = self.live().find(|at| self.members[*at].head.get() == start);
        let idle = || {
            let idle = |at: &usize| self.members[*at].under_way.get() == 0;
            let distance = |at: &usize| self.members[*at].head.get().distance(start);
            self.live().filter(idle).min_by_key(distance)
        };
        let nearest = || {
            let distance = |at: &usize| self.members[*at].head.get().distance(start);
            self.live().min_by_key(distance)
        };
        goes_on.or_else(idle).or_else(nearest).unwrap_or_default()
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
        self.0.members.iter().all(|member| member.device.has_priorities())
    }

    fn has_copies(&self) -> bool {
        self.0.members.len() > 1
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("members", &self.0.members.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, MemoryDevice, RequestKind, Sectors};
    use manylogs_filters::{Faults, Rule, Trace};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

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
        let copies = Copies::new(&[false; 2], false);
        let mirror = Mirror::with(sim.handle(node), devices, copies.clone());
        let extent = Extent::new(10, 8);
        let write = move |tag| Request::write_fua(extent, Payload::tags(tag, extent.len));
        let medium = || Rule::new(&[RequestKind::Write], |extent| IoError::Medium { extent });
        sim.block_on(node, async move {
            mirror.submit(write(1)).await.unwrap();
            members[0].add(medium());
            mirror.submit(write(100)).await.unwrap();
            assert!(copies.is_lost(0) && !copies.is_lost(1));
            for _ in 0..3 {
                let read = mirror.submit(Request::Read { extent }).await;
                assert_eq!(read, Ok(Payload::tags(100, extent.len)), "never the older content");
            }
            members[1].add(medium());
            assert_eq!(mirror.submit(write(200)).await, Err(IoError::Medium { extent }));
            assert!(!copies.is_lost(1));
        });
    }
}
