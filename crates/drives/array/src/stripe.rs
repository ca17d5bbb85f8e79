//! A model of RAID-0: chunks of the array go to the members in turn.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, Handle, IoError, Request, Sectors,
    Split,
};
use manylogs_plant::{self as plant, Bug};

use crate::capabilities::of_each;
use crate::join::{join, placed};
use crate::plug::Plug;

/// RAID-0 over members of equal size, as md does it. Each member gets its share of a request as one
/// request. Requests that follow one another go there as one too, unless the submitting task pauses
/// between them. Clones are the same array.
#[derive(Clone)]
pub struct Stripe(Rc<Shared>);

struct Shared {
    runtime: Handle,
    geometry: Geometry,
    members: Vec<Plug>,
    capabilities: Capabilities,
    /// Whether a task is spawned that will unplug the members.
    armed: Cell<bool>,
}

impl Stripe {
    /// An array of `members` in chunks of `chunk`, each with `copies` drives below it. The capacity
    /// is counted in whole chunks of the shortest member: what longer members have beyond that is
    /// unused.
    ///
    /// # Panics
    /// If members and chunk make no array: see [`Geometry::check`].
    #[must_use]
    pub fn new(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        chunk: Sectors,
        copies: u16,
    ) -> Self {
        let columns = manylogs_block::narrow(members.len() as u64);
        let geometry = Geometry { chunk, columns, copies, parity: 0, first: Sectors(0) };
        assert_eq!(geometry.check(), Ok(()), "{geometry:?}");
        let capabilities = of_all(&members, chunk);
        let members = members.into_iter().map(Plug::new).collect();
        let armed = Cell::new(false);
        Self(Rc::new(Shared { runtime, geometry, members, capabilities, armed }))
    }

    fn deal(&self, request: &Request, urgent: bool) -> Completion {
        let shared = &self.0;
        if let Err(error) = shared.capabilities.check(request) {
            return Completion::ready(Err(error));
        }
        let Some(extent) = request.extent() else { return self.flush() };
        let split = Split::of(shared.geometry.chunks(extent));
        let mut parts = Vec::with_capacity(split.shares.len());
        for (index, share) in split.shares.iter().enumerate() {
            let part = placed(request, share.extent, |payload| split.payload_of(index, payload));
            let answer = shared.members[usize::from(share.column)].push(part, urgent);
            parts.push(self.told(share.column, answer));
        }
        self.arm();
        let reads = matches!(request, Request::Read { .. });
        join(reads.then_some(split), parts)
    }

    fn flush(&self) -> Completion {
        let skipped = usize::from(plant::is(Bug::FlushSkipsMember));
        let members = self.0.members.iter().skip(skipped);
        let parts = members.map(|plug| plug.member.submit(Request::Flush)).collect();
        join(None, parts)
    }

    fn arm(&self) {
        if !self.0.armed.replace(true) {
            let shared = Rc::clone(&self.0);
            self.0.runtime.spawn(async move {
                shared.armed.set(false);
                shared.members.iter().for_each(|plug| plug.unplug(&shared.runtime));
            });
        }
    }

    /// Passes on a member's answer, with its errors in the addresses of the array.
    fn told(&self, column: u16, answer: Completion) -> Completion {
        let geometry = self.0.geometry;
        Completion::of_others(async move {
            answer.await.map_err(|error| in_array(&geometry, column, error))
        })
    }
}

/// What an array of these members can do.
fn of_all(members: &[Rc<dyn BlockDevice>], chunk: Sectors) -> Capabilities {
    let each = of_each(members);
    let chunks = each.capacity.0 / chunk.0 * members.len() as u64;
    Capabilities { capacity: Sectors(chunks * chunk.0), ..each }
}

/// Translates an error of a member to the addresses of the array.
fn in_array(geometry: &Geometry, column: u16, error: IoError) -> IoError {
    let place = |extent: Extent| geometry.addresses(column, extent).next().unwrap_or(extent);
    match error {
        IoError::Medium { extent } => IoError::Medium { extent: place(extent) },
        IoError::Transient { extent } => IoError::Transient { extent: place(extent) },
        IoError::Checksum { extent } => IoError::Checksum { extent: place(extent) },
        IoError::NoSpace { extent } => IoError::NoSpace { extent: place(extent) },
        IoError::Shrunk { extent } => IoError::Shrunk { extent: place(extent) },
        other => other,
    }
}

impl BlockDevice for Stripe {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        self.deal(&request, false)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.deal(&request, true)
    }

    fn has_priorities(&self) -> bool {
        self.0.members.iter().all(|plug| plug.member.has_priorities())
    }

    fn geometry(&self) -> Option<Geometry> {
        Some(self.0.geometry)
    }
}

impl std::fmt::Debug for Stripe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stripe").field("geometry", &self.0.geometry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{MemoryDevice, Payload};
    use manylogs_filters::Trace;
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    fn four(sim: &Sim, node: manylogs_sim::NodeId) -> (Stripe, Vec<Rc<Trace<MemoryDevice>>>) {
        let members: Vec<_> =
            (0..4).map(|_| Rc::new(Trace::new(MemoryDevice::new(Sectors(1000))))).collect();
        let devices = members.iter().map(|member| Rc::clone(member) as Rc<_>).collect();
        (Stripe::new(sim.handle(node), devices, Sectors(128), 1), members)
    }

    #[test]
    fn each_member_has_one_request_and_the_content_comes_back() {
        let sim = Sim::new(1, TaskOrder::Shuffled);
        let node = sim.node();
        let (stripe, members) = four(&sim, node);
        assert_eq!(stripe.capabilities().capacity, Sectors(4 * 896), "whole chunks");
        let extent = Extent::new(100, 2048);
        let device = stripe.clone();
        sim.block_on(node, async move {
            let write = Request::write_fua(extent, Payload::tags(7, extent.len));
            device.submit(write).await.unwrap();
            let read = device.submit(Request::Read { extent }).await.unwrap();
            assert_eq!(read, Payload::tags(7, extent.len));
        });
        for member in &members {
            let writes = member.writes();
            assert_eq!(writes.len(), 1, "{writes:?}");
        }
    }

    #[test]
    fn what_follows_without_a_pause_is_merged_and_what_has_another_place_is_not() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let (stripe, members) = four(&sim, node);
        sim.block_on(node, async move {
            let reads = [(0, 128), (512, 128), (1024, 64), (1792, 8)];
            let read = |(at, len)| stripe.submit(Request::Read { extent: Extent::new(at, len) });
            let answers: Vec<_> = reads.into_iter().map(read).collect();
            for (answer, (_, len)) in answers.into_iter().zip(reads) {
                assert_eq!(answer.await.unwrap().len(), Sectors(len));
            }
        });
        let requests = |member: usize| {
            members[member].requests().iter().filter_map(Request::extent).collect::<Vec<_>>()
        };
        assert_eq!(requests(0), [Extent::new(0, 320)], "three chunks of one member");
        assert_eq!(requests(2), [Extent::new(384, 8)]);
        assert!(requests(1).is_empty() && requests(3).is_empty());
    }

    #[test]
    fn an_error_names_the_address_of_the_array() {
        let geometry =
            Geometry { chunk: Sectors(128), columns: 4, copies: 1, parity: 0, first: Sectors(0) };
        let error = IoError::Medium { extent: Extent::new(130, 8) };
        let expected = IoError::Medium { extent: Extent::new(4 * 128 + 2 * 128 + 2, 8) };
        assert_eq!(in_array(&geometry, 2, error), expected);
    }
}
