//! The array while it is in use: it is the kernel's, and outlives the volume's process. It may
//! resynchronise its members, and do without some that leave.

use std::rc::Rc;

use manylogs::Layout;
use manylogs_array::{Members, Mirror, Pace, Parity, Stripe};
use manylogs_block::{BlockDevice, Extent, Geometry, IoError, Rng, to_usize};
use manylogs_sim::CrashDisk;

use crate::device::PhasedDisk;
use crate::tally::Tally;
use crate::volume::disks::Disks;
use crate::volume::failing_array::FailingArray;
use crate::volume::large::Noting;

/// A member that leaves carries out fewer requests than this before.
const LEAVES_WITHIN: u64 = 300;

/// An array in use.
pub(crate) struct InUse {
    pub(super) device: Rc<dyn BlockDevice>,
    /// The array itself, if it has parity.
    parity: Option<Parity>,
    /// Whether it resynchronises members.
    resyncs: bool,
    /// Whether it fills new members meanwhile.
    fills: bool,
}

impl Disks {
    /// Starts the array, and its resynchronisation if members may differ.
    pub(super) fn start(&self, array: Geometry) -> InUse {
        let member = |disk: &CrashDisk| -> Rc<dyn BlockDevice> {
            let (disk, probe, last) = (disk.clone(), Rc::clone(&self.probe), Rc::clone(&self.last));
            Rc::new(PhasedDisk { disk, probe, last })
        };
        let columns: Vec<Rc<dyn BlockDevice>> = self.each.iter().map(member).collect();
        let pace = self.life.pace.filter(|_| self.apart());
        if array.parity > 0 {
            return self.start_parity(array, columns, pace);
        }
        let resyncs = pace.is_some();
        let device: Rc<dyn BlockDevice> = match self.mirrors(array, columns, pace) {
            mut columns if columns.len() == 1 => columns.remove(0),
            columns => {
                Rc::new(Stripe::new(self.runtime.clone(), columns, array.chunk, array.copies))
            }
        };
        InUse { device, parity: None, resyncs, fills: resyncs && self.has_new() }
    }

    fn start_parity(
        &self,
        array: Geometry,
        members: Vec<Rc<dyn BlockDevice>>,
        pace: Option<Pace>,
    ) -> InUse {
        let (runtime, known) = (self.runtime.clone(), self.known[0].clone());
        let parity = Parity::new(runtime, members, array.parity, array.chunk, known);
        if let Some(pace) = pace {
            let array = parity.clone();
            self.runtime.spawn(async move { array.resync(pace).await });
        }
        let (below, large) = (Rc::new(parity.clone()), self.large.clone());
        let below = Rc::new(Noting { below, array, large });
        let (faults, unit) = (self.faults.clone(), self.first().capabilities().physical_sector);
        let device = Rc::new(FailingArray::new(below, faults, unit));
        let resyncs = pace.is_some();
        InUse { device, parity: Some(parity), resyncs, fills: resyncs && self.has_new() }
    }

    /// The columns of an array: single members, or mirrors of several.
    fn mirrors(
        &self,
        array: Geometry,
        members: Vec<Rc<dyn BlockDevice>>,
        pace: Option<Pace>,
    ) -> Vec<Rc<dyn BlockDevice>> {
        if array.copies == 1 {
            return members;
        }
        let columns = members.chunks(usize::from(array.copies)).zip(&self.known);
        let mirror = |(members, known): (&[_], &Members)| -> Rc<dyn BlockDevice> {
            let mirror = Mirror::with(self.runtime.clone(), members.to_vec(), known.clone());
            if let Some(pace) = pace {
                let mirror = mirror.clone();
                self.runtime.spawn(async move { mirror.resync(pace).await });
            }
            Rc::new(mirror)
        };
        columns.map(mirror).collect()
    }

    /// Whether a member of the array is lost, or new and not filled yet.
    pub(super) fn is_degraded(&self) -> bool {
        self.has_new() || self.known.iter().any(|known| known.lost().contains(&true))
    }

    /// Whether a member of the array is new, and not filled yet.
    fn has_new(&self) -> bool {
        self.known.iter().any(|known| known.unfilled().contains(&true))
    }

    /// Number of members that the array has lost.
    pub(crate) fn lost_members(&self) -> u64 {
        let lost = |known: &Members| known.lost().into_iter().filter(|lost| *lost).count() as u64;
        self.known.iter().map(lost).sum()
    }

    /// Whether the array has begun a resynchronisation in use, and whether it has ended.
    fn resync_state(&self) -> (bool, bool) {
        let begun = self.in_use.borrow().as_ref().is_some_and(|it| it.resyncs);
        (begun, begun && !self.apart())
    }

    /// Counts what became of the array's members; `lost` of them were lost before.
    pub(crate) fn count(&self, lost: u64, tally: &mut Tally) {
        let (begun, ended) = self.resync_state();
        tally.members_left += self.lost_members() - lost;
        tally.resyncs += u64::from(begun);
        tally.resyncs_ended += u64::from(ended);
        let fills = self.in_use.borrow().as_ref().is_some_and(|it| it.fills);
        tally.fillings += u64::from(fills);
        tally.fillings_ended += u64::from(fills && ended);
    }

    /// Lets some members fail all requests from some moment on, each from its own: at least one,
    /// and as many as the array bears. Those that come back after a crash were lost if the array
    /// noticed.
    pub(crate) fn members_leave(&self, rng: &mut Rng) {
        let mut first = 0;
        for known in &self.known {
            let live = known.lost().into_iter().zip(first..).filter(|(lost, _)| !lost);
            let mut live: Vec<usize> = live.map(|(_, member)| member).collect();
            first += known.lost().len();
            let bears = known.bears() as u64;
            if bears == 0 || (self.known.len() > 1 && rng.one_in(2)) {
                continue;
            }
            for _ in 0..=rng.below(bears) {
                let member = live.swap_remove(to_usize(rng.below(live.len() as u64)));
                leave(&self.each[member], rng.below(LEAVES_WITHIN));
            }
        }
    }

    /// Checks that an array with parity has read no row of logs and structures before a write: the
    /// volume fills them, in one batch.
    ///
    /// # Errors
    /// The first place where it has.
    pub(crate) fn check_rows(&self, layout: &Layout) -> Result<(), String> {
        let in_use = self.in_use.borrow();
        let Some(parity) = in_use.as_ref().and_then(|it| it.parity.as_ref()) else { return Ok(()) };
        let structures = [layout.superblocks(), layout.roots(), layout.snapshots()].concat();
        let mut filled =
            structures.iter().chain(layout.regions()).copied().chain([layout.images()]);
        let read: Vec<Extent> = parity.read_first();
        let is_read = |place: &Extent| read.iter().any(|page| page.overlaps(*place));
        match filled.find(is_read) {
            None => Ok(()),
            Some(place) => Err(format!("the array read rows of {place:?} before it wrote them")),
        }
    }
}

/// From its request number `after` on the drive is gone.
fn leave(disk: &CrashDisk, after: u64) {
    let mut left = after;
    disk.fail_requests(Box::new(move |_| {
        let stays = left > 0;
        left = left.saturating_sub(1);
        (!stays).then_some(IoError::Gone)
    }));
}
