//! A model of RAID-5 and 6: rows of pages, tied together by parity.

mod field;
mod reads;
mod rotation;
mod rows;
mod stripe_content;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, Handle, IoError, Payload, Request,
    Sectors, Signal, narrow,
};

use manylogs_plant::{self as plant, Bug};

use crate::capabilities::of_each;
use crate::join::join;
use crate::plug::Plug;

pub use rotation::Rotation;
use rows::Part;
pub use stripe_content::{completed, parity_of};

/// RAID-5 or 6 over members of equal size, as md does it. A row is a page of 4 KiB at the same
/// place of each member. A row that is written as a whole needs no reads. For any other the array
/// first reads: the pages that are not written, or the old content of what is written and the
/// parity, whichever is less. Requests that the submitting task sends without a pause between them
/// count together, as behind Linux' plug. Writes to one row take turns.
///
/// A write counts as done when data and parity are written. A crash may leave some of them out.
/// Then the row's parity does not fit, and what a missing member held there is wrong (the write
/// hole).
///
/// Clones are the same array.
#[derive(Clone)]
pub struct Parity(Rc<Shared>);

struct Shared {
    runtime: Handle,
    geometry: Geometry,
    rotation: Rotation,
    members: Vec<Plug>,
    missing: Vec<bool>,
    /// Whether the content of parity is computed.
    computes: bool,
    capabilities: Capabilities,
    /// Parts of writes that wait for their row, by row.
    waiting: RefCell<BTreeMap<u64, Vec<Part>>>,
    /// Rows in work.
    busy: RefCell<BTreeSet<u64>>,
    /// A row is free again.
    freed: Signal,
    /// Whether a task is spawned that will begin the waiting writes.
    armed: Cell<bool>,
}

impl Parity {
    /// An array of `members` with `parity` parities in each row, in chunks of `chunk`. The content
    /// of parity is not computed, so no member may be missing: for runs that look at times only.
    ///
    /// # Panics
    /// If members, parity and chunk make no array.
    #[must_use]
    pub fn timing_only(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        parity: u16,
        chunk: Sectors,
    ) -> Self {
        let missing = vec![false; members.len()];
        Self::made(runtime, members, (parity, chunk), missing, false)
    }

    /// As [`Parity::timing_only`], with content. The members in `missing` are not used: what they
    /// hold is computed from the others.
    ///
    /// # Panics
    /// If members, parity and chunk make no array, or more members are missing than parities.
    #[must_use]
    pub fn new(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        parity: u16,
        chunk: Sectors,
        missing: Vec<bool>,
    ) -> Self {
        Self::made(runtime, members, (parity, chunk), missing, true)
    }

    fn made(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        (parity, chunk): (u16, Sectors),
        missing: Vec<bool>,
        computes: bool,
    ) -> Self {
        let rotation = Rotation { members: narrow(members.len() as u64), parity };
        let columns = rotation.columns();
        let geometry = Geometry { chunk, columns, copies: 1, parity, first: Sectors(0) };
        assert_eq!(geometry.check(), Ok(()), "{geometry:?}");
        let gone = missing.iter().filter(|missing| **missing).count();
        assert!(missing.len() == members.len() && gone <= usize::from(parity), "{missing:?}");
        let capabilities = of_all(&members, &geometry);
        let members = members.into_iter().map(Plug::new).collect();
        Self(Rc::new(Shared {
            runtime,
            geometry,
            rotation,
            members,
            missing,
            computes,
            capabilities,
            waiting: RefCell::default(),
            busy: RefCell::default(),
            freed: Signal::default(),
            armed: Cell::default(),
        }))
    }

    fn go(&self, request: &Request, urgent: bool) -> Completion {
        if let Err(error) = self.0.capabilities.check(request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => self.read(*extent, urgent),
            Request::Write { extent, payload, fua, .. } => {
                self.write(*extent, payload, *fua, urgent)
            }
            Request::WriteZeroes { extent, fua, .. } => {
                self.write(*extent, &Payload::zeroes(extent.len), *fua, urgent)
            }
            Request::Discard { .. } => Completion::ready(Err(IoError::Unsupported)),
            Request::Flush => {
                let live = self.0.members.iter().zip(&self.0.missing).filter(|(_, gone)| !**gone);
                let live = live.skip(usize::from(plant::is(Bug::ParityFlushSkipsMember)));
                join(None, live.map(|(plug, _)| plug.member.submit(Request::Flush)).collect())
            }
        }
    }

    fn arm(&self) {
        if !self.0.armed.replace(true) {
            let array = self.clone();
            self.0.runtime.spawn(async move {
                array.0.armed.set(false);
                array.begin_waiting();
                array.unplug();
            });
        }
    }

    fn unplug(&self) {
        self.0.members.iter().for_each(|plug| plug.unplug(&self.0.runtime));
    }

    fn read_parities(&self, place: Extent, urgent: bool) -> Vec<Option<Completion>> {
        let stripe = self.stripe_of(place);
        let read = |which| {
            let member = self.0.rotation.of_parity(stripe, which);
            let read = || self.push(member, Request::Read { extent: place }, urgent);
            self.is_live(member).then(read)
        };
        (0..self.0.rotation.parity).map(read).collect()
    }

    fn free(&self, rows: std::ops::Range<u64>) {
        rows.for_each(|row| _ = self.0.busy.borrow_mut().remove(&row));
        self.0.freed.notify();
        if !self.0.waiting.borrow().is_empty() {
            self.begin_waiting();
            self.unplug();
        }
    }

    fn push(&self, member: u16, request: Request, urgent: bool) -> Completion {
        self.0.members[usize::from(member)].push(request, urgent)
    }

    fn is_live(&self, member: u16) -> bool {
        !self.0.missing[usize::from(member)]
    }

    fn stripe_of(&self, place: Extent) -> u64 {
        place.start.0 / self.0.geometry.chunk.0
    }
}

/// What an array of these members can do.
fn of_all(members: &[Rc<dyn BlockDevice>], geometry: &Geometry) -> Capabilities {
    let each = of_each(members);
    let stripes = each.capacity.0 / geometry.chunk.0;
    let capacity = Sectors(stripes * geometry.stripe().0);
    Capabilities { capacity, discard: false, fast_zero: false, ..each }
}

impl BlockDevice for Parity {
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
        self.0.members.iter().all(|plug| plug.member.has_priorities())
    }

    /// True: what a crash leaves of a row in flight may read differently once a member is lost.
    fn has_copies(&self) -> bool {
        true
    }

    fn geometry(&self) -> Option<Geometry> {
        Some(self.0.geometry)
    }
}

impl std::fmt::Debug for Parity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parity").field("geometry", &self.0.geometry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
