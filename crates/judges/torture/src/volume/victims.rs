//! The disks that fail requests: a single disk, or members of an array.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{Extent, Geometry, Handle, IoError, Request, Rng};
use manylogs_sim::CrashDisk;

use crate::volume::disks::Disks;

/// Where a column has copies, one trouble in this number hits all of them.
const ALL_COPIES: u64 = 4;

/// A disk that fails requests.
pub(crate) struct Failing {
    pub(crate) disk: CrashDisk,
    pub(crate) clock: Handle,
    /// The array of which the disk is a member, and its column there.
    member: Option<(Geometry, u16)>,
}

/// Disks that fail together.
pub(crate) struct Victims {
    pub(crate) disks: Vec<Failing>,
    /// Whether an array has other copies of all that they hold.
    pub(crate) are_hidden: bool,
}

impl Failing {
    /// A single disk.
    pub(crate) fn alone(disk: &CrashDisk, clock: &Handle) -> Self {
        Self { disk: disk.clone(), clock: clock.clone(), member: None }
    }
}

impl Disks {
    /// Draws the disks that fail: the only one; a member of an array; or all copies of a column.
    pub(crate) fn victims(&self, clock: &Handle, rng: &mut Rng) -> Victims {
        let Some(array) = self.array else {
            return Victims { disks: vec![Failing::alone(self.first(), clock)], are_hidden: false };
        };
        let column = manylogs_block::narrow(rng.below(array.columns.into()));
        let mut live = self.live(column);
        let are_hidden = live.len() > 1 && !rng.one_in(ALL_COPIES);
        if are_hidden {
            live = vec![live[manylogs_block::to_usize(rng.below(live.len() as u64))]];
        }
        let member = Some((array, column));
        let failing =
            |at: usize| Failing { disk: self.each[at].clone(), clock: clock.clone(), member };
        Victims { disks: live.into_iter().map(failing).collect(), are_hidden }
    }
}

/// Makes the disks fail requests as `fails` says. It gets the addresses that a request has on the
/// array, or on the single disk.
pub(crate) fn install(
    disks: &[Failing],
    fails: impl FnMut(&Request, &[Extent]) -> Option<IoError> + 'static,
) {
    let fails = Rc::new(RefCell::new(fails));
    for Failing { disk, member, .. } in disks {
        let (fails, member) = (Rc::clone(&fails), *member);
        disk.fail_requests(Box::new(move |request| {
            let at: Vec<Extent> = match (member, request.extent()) {
                (_, None) => Vec::new(),
                (None, Some(extent)) => vec![extent],
                (Some((array, column)), Some(extent)) => array.addresses(column, extent).collect(),
            };
            (*fails.borrow_mut())(request, &at)
        }));
    }
}

/// Makes the disks sound again.
pub(crate) fn heal(disks: &[Failing]) {
    for Failing { disk, .. } in disks {
        disk.fail_requests(Box::new(|_| None));
    }
}
