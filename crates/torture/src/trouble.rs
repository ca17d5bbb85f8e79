//! A device that fails requests while it is used.

use std::cell::Cell;
use std::rc::Rc;

use manylogs::Layout;
use manylogs_block::{Extent, IoError, Request, Rng};
use manylogs_sim::CrashDisk;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Writes to logs fail.
    Appends,
    /// Writes to the roots fail.
    Roots,
    /// Writes to one place outside the logs fail.
    Home(Extent),
    /// Reads of a place fail.
    Reads(Extent),
    Flushes,
    /// All requests fail.
    Gone,
}

/// Lets the device fail some requests from some moment on; the count of those grows in `failed`.
/// Returns what it does, in words.
pub(crate) fn trouble(
    disk: &CrashDisk,
    layout: &Layout,
    rng: &mut Rng,
    failed: &Rc<Cell<u64>>,
) -> String {
    let place = |rng: &mut Rng| {
        let start = rng.below(layout.device().0);
        Extent::new(start, 1 + rng.below(layout.device().0 / 4))
    };
    let kind = match rng.below(12) {
        0..4 => Trouble::Appends,
        4..6 => Trouble::Home(place(rng)),
        6..8 => Trouble::Reads(place(rng)),
        8 => Trouble::Flushes,
        9 => Trouble::Gone,
        _ => Trouble::Roots,
    };
    // Roots are not written that often.
    let mut passed = rng.below(if kind == Trouble::Roots { 12 } else { 40 });
    let mut left = if rng.one_in(3) || kind == Trouble::Gone { u64::MAX } else { 1 + rng.below(3) };
    let words = format!("the device fails {kind:?} {left} times after {passed} requests");
    let (layout, failed) = (layout.clone(), Rc::clone(failed));
    disk.fail_requests(Box::new(move |request| {
        if !kind.hits(request, &layout) || left == 0 {
            return None;
        }
        if passed > 0 {
            passed -= 1;
            return None;
        }
        left -= 1;
        failed.set(failed.get() + 1);
        let extent = request.extent().unwrap_or_default();
        Some(if kind == Trouble::Gone { IoError::Gone } else { IoError::Medium { extent } })
    }));
    words
}

impl Trouble {
    fn hits(self, request: &Request, layout: &Layout) -> bool {
        let is_log = |extent: &Extent| layout.is_log(extent.start);
        let is_root = |extent: &Extent| layout.roots().iter().any(|root| root.overlaps(*extent));
        match (self, request) {
            (Self::Gone, _) | (Self::Flushes, Request::Flush) => true,
            (Self::Appends, Request::Write { extent, .. }) => is_log(extent),
            (Self::Roots, Request::Write { extent, .. }) => is_root(extent),
            (Self::Home(place), Request::Write { extent, .. }) => {
                !is_log(extent) && extent.overlaps(place)
            }
            (Self::Reads(place), Request::Read { extent }) => extent.overlaps(place),
            _ => false,
        }
    }
}
