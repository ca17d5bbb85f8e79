//! A model of RAID-5 and 6: rows of pages, tied together by parity.

mod field;
mod reads;
mod resync;
mod rotation;
mod rows;
mod stripe_content;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, Handle, IoError, PAGE, Payload,
    Request, Sectors, Signal, narrow,
};

use manylogs_plant::{self as plant, Bug};

use crate::capabilities::of_each;
use crate::join::join;
use crate::members::Members;
use crate::plug::Plug;

use reads::MemberRead;
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
/// A member that fails a request is lost, if the level bears it, and the array goes on without it:
/// what it held is computed from the others. (md first tries to write what it could not read.)
///
/// Clones are the same array.
#[derive(Clone)]
pub struct Parity(Rc<Shared>);

struct Shared {
    runtime: Handle,
    geometry: Geometry,
    rotation: Rotation,
    devices: Vec<Plug>,
    members: Members,
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
    /// Rows that were read because a write did not fill them.
    read_first: RefCell<BTreeSet<u64>>,
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
        let known = Members::with_parity(&vec![false; members.len()], parity, false);
        Self::made(runtime, members, (parity, chunk), known, false)
    }

    /// As [`Parity::timing_only`], with content. Of the members `known` is known. Those that are
    /// lost are not used: what they hold is computed from the others.
    ///
    /// # Panics
    /// If members, parity and chunk make no array, or more members are lost than parities.
    #[must_use]
    pub fn new(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        parity: u16,
        chunk: Sectors,
        known: Members,
    ) -> Self {
        Self::made(runtime, members, (parity, chunk), known, true)
    }

    fn made(
        runtime: Handle,
        members: Vec<Rc<dyn BlockDevice>>,
        (parity, chunk): (u16, Sectors),
        known: Members,
        computes: bool,
    ) -> Self {
        let rotation = Rotation { members: narrow(members.len() as u64), parity };
        let columns = rotation.columns();
        let geometry = Geometry { chunk, columns, copies: 1, parity, first: Sectors(0) };
        assert_eq!(geometry.check(), Ok(()), "{geometry:?}");
        let without = known.lost().into_iter().zip(known.unfilled());
        let gone = without.filter(|(lost, new)| *lost || *new).count();
        assert!(known.len() == members.len() && gone <= usize::from(parity), "{known:?}");
        let capabilities = of_all(&members, &geometry);
        let devices = members.into_iter().map(Plug::new).collect();
        Self(Rc::new(Shared {
            runtime,
            geometry,
            rotation,
            devices,
            members: known,
            computes,
            capabilities,
            waiting: RefCell::default(),
            busy: RefCell::default(),
            freed: Signal::default(),
            armed: Cell::default(),
            read_first: RefCell::default(),
        }))
    }

    /// The rows that were read because a write did not fill them, in the addresses of the array. An
    /// array that keeps times only does not remember them.
    #[must_use]
    pub fn read_first(&self) -> Vec<Extent> {
        let rows = self.0.read_first.borrow();
        let pages = |row: &u64| {
            let place = Extent::new(row * PAGE.0, PAGE.0);
            let columns = 0..self.0.geometry.columns;
            columns.flat_map(move |column| self.0.geometry.addresses(column, place))
        };
        rows.iter().flat_map(pages).collect()
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
                let live = (0..self.0.rotation.members).filter(|member| self.is_live(*member));
                let live = live.skip(usize::from(plant::is(Bug::ParityFlushSkipsMember)));
                let flush = |member: u16| {
                    let device = &self.0.devices[usize::from(member)].member;
                    self.borne(member, device.submit(Request::Flush))
                };
                join(None, live.map(flush).collect())
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
        self.0.devices.iter().for_each(|plug| plug.unplug(&self.0.runtime));
    }

    /// Sends reads of a place to the members with parity that are not lost.
    fn read_parities(&self, place: Extent, urgent: bool) -> Vec<MemberRead> {
        let stripe = self.stripe_of(place);
        let member = |which| self.0.rotation.of_parity(stripe, which);
        let read = |which| self.read_member(member(which), place, urgent);
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
        self.0.devices[usize::from(member)].push(request, urgent)
    }

    /// As [`Parity::push`], of a write. A member that fails it is lost, if the level bears it.
    fn push_write(&self, member: u16, write: Request, urgent: bool) -> Completion {
        self.borne(member, self.push(member, write, urgent))
    }

    /// The answer of a member to a write or a flush: it does not matter if the array goes on
    /// without the member.
    fn borne(&self, member: u16, answer: Completion) -> Completion {
        let array = self.clone();
        Completion::of_others(async move {
            match answer.await {
                Err(error) if array.goes_on_without(member, &error) => Ok(Payload::default()),
                other => other,
            }
        })
    }

    /// Whether the array goes on without a member that has failed a request.
    fn goes_on_without(&self, member: u16, error: &IoError) -> bool {
        *error != IoError::Unsupported && self.0.members.lose(usize::from(member))
    }

    fn is_live(&self, member: u16) -> bool {
        !self.0.members.is_lost(usize::from(member))
    }

    /// Whether a member has the array's content at a place.
    fn holds(&self, member: u16, place: Extent) -> bool {
        self.0.members.holds(usize::from(member), place)
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
        self.0.devices.iter().all(|plug| plug.member.has_priorities())
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
