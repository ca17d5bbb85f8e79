//! The disks that fail requests: a single disk, or members of an array.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{Extent, Geometry, Handle, IoError, Request, Rng};
use manylogs_sim::{CrashDisk, FailRequest};

use crate::volume::disks::Disks;
use crate::volume::failing_array::Faults;

/// Where a column has copies, one trouble in this number hits all of them.
const ALL_COPIES: u64 = 4;

/// A disk or an array that fails requests.
pub(crate) struct Failing {
    device: Device,
    pub(crate) clock: Handle,
}

enum Device {
    Disk(CrashDisk),
    /// A disk that is a member of an array, in this column.
    Member(CrashDisk, Geometry, u16),
    /// A whole array: one with parity makes up for members that fail.
    Array(Faults),
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
        Self { device: Device::Disk(disk.clone()), clock: clock.clone() }
    }
}

impl Disks {
    /// Draws the disks that fail: the only one; a member of an array; all copies of a column; or
    /// all members of an array with parity.
    pub(crate) fn victims(&self, clock: &Handle, rng: &mut Rng) -> Victims {
        let Some(array) = self.array else {
            return Victims { disks: vec![Failing::alone(self.first(), clock)], are_hidden: false };
        };
        if array.parity > 0 {
            let device = Device::Array(self.faults.clone());
            let disks = vec![Failing { device, clock: clock.clone() }];
            return Victims { disks, are_hidden: false };
        }
        let column = manylogs_block::narrow(rng.below(array.columns.into()));
        let mut live = self.live(column);
        let are_hidden = live.len() > 1 && !rng.one_in(ALL_COPIES);
        if are_hidden {
            live = vec![live[manylogs_block::to_usize(rng.below(live.len() as u64))]];
        }
        let failing = |at: usize| {
            let device = Device::Member(self.each[at].clone(), array, column);
            Failing { device, clock: clock.clone() }
        };
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
    for Failing { device, .. } in disks {
        let fails = Rc::clone(&fails);
        let member = match device {
            Device::Member(_, array, column) => Some((*array, *column)),
            Device::Disk(_) | Device::Array(_) => None,
        };
        device.fail_requests(Box::new(move |request| {
            let at: Vec<Extent> = match (member, request.extent()) {
                (_, None) => Vec::new(),
                (None, Some(extent)) => vec![extent],
                (Some((array, column)), Some(extent)) => array.addresses(column, extent).collect(),
            };
            (*fails.borrow_mut())(request, &at)
        }));
    }
}

impl Device {
    fn fail_requests(&self, fail: FailRequest) {
        match self {
            Self::Disk(disk) | Self::Member(disk, ..) => disk.fail_requests(fail),
            Self::Array(faults) => faults.set(fail),
        }
    }
}

/// Makes the disks sound again.
pub(crate) fn heal(disks: &[Failing]) {
    for Failing { device, .. } in disks {
        device.fail_requests(Box::new(|_| None));
    }
}
