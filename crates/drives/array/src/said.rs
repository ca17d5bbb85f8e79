//! An array whose shape only its user knows.

use std::fmt;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Request};

/// A device that is an array of this shape, as its user says: a controller's array looks like one
/// disk to Linux.
pub struct Said {
    below: Rc<dyn BlockDevice>,
    geometry: Geometry,
}

impl Said {
    /// The device `below`, which deals its addresses out as `geometry` says.
    #[must_use]
    pub fn new(below: Rc<dyn BlockDevice>, geometry: Geometry) -> Self {
        Self { below, geometry }
    }
}

impl BlockDevice for Said {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.below.submit(request)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.below.submit_urgent(request)
    }

    fn has_priorities(&self) -> bool {
        self.below.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies() || self.geometry.copies > 1 || self.geometry.parity > 0
    }

    fn geometry(&self) -> Option<Geometry> {
        Some(self.geometry)
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}
