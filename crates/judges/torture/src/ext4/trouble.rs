//! A device that fails requests while a file system with its journal near the head is mounted or
//! used.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs::Layout;
use manylogs_block::{Handle, Rng};

use super::world::Mounted;
use crate::tally::Tally;
use crate::volume::disks::Disks;
use crate::volume::trouble::{Loss, Told, any_trouble, opening_trouble};
use crate::volume::victims::heal;

/// In one mount out of this number the device fails reads; in the others it fails later.
const OPENINGS: u64 = 3;

/// The trouble of one incarnation.
#[derive(Clone)]
pub(super) struct Trouble {
    disks: Disks,
    clock: Handle,
    /// Layout of the logs, once the file system has been mounted.
    layout: Rc<RefCell<Option<Layout>>>,
    rng: Rc<RefCell<Rng>>,
    /// The failures so far.
    pub(super) told: Told,
    /// A description of the trouble.
    words: Rc<RefCell<Option<String>>>,
    counts: Rc<RefCell<Tally>>,
}

impl Trouble {
    /// Trouble that has not begun.
    pub(super) fn new(
        disks: &Disks,
        clock: Handle,
        layout: Rc<RefCell<Option<Layout>>>,
        seed: u64,
    ) -> Self {
        Self {
            disks: disks.clone(),
            clock,
            layout,
            rng: Rc::new(RefCell::new(Rng::new(seed ^ 0x7_20b1e))),
            told: Told::default(),
            words: Rc::default(),
            counts: Rc::default(),
        }
    }

    /// Mounts, perhaps while reads fail. If that prevents the mount, it must succeed once the
    /// device is sound. Other trouble begins with [`Trouble::begin`].
    pub(super) async fn mount(
        &self,
        mounting: impl Future<Output = Result<Mounted, String>>,
        again: impl Future<Output = Result<Mounted, String>>,
    ) -> Result<Mounted, String> {
        let layout = self.layout.borrow().clone();
        let opens = self.rng.borrow_mut().one_in(OPENINGS);
        let Some(layout) = layout.filter(|_| opens) else { return mounting.await };
        let victims = self.disks.victims(&self.clock, &mut self.rng.borrow_mut());
        let words = {
            let with = (&mut *self.rng.borrow_mut(), Loss::Never);
            opening_trouble(&victims.disks, &layout, with, &self.told)
        };
        self.words.replace(Some(words));
        let mounted = mounting.await;
        heal(&victims.disks);
        let failed = self.told.failed.get();
        match mounted {
            Ok(mounted) => {
                self.counts.borrow_mut().troubled_openings += u64::from(failed > 0);
                Ok(mounted)
            }
            Err(error) if failed == 0 => Err(error),
            Err(error) if victims.are_hidden => Err(format!("without a member: {error}")),
            Err(_) => {
                self.counts.borrow_mut().refused_openings += 1;
                let mounted = again.await;
                mounted.map_err(|error| format!("after the device healed: {error}"))
            }
        }
    }

    /// Makes the device fail from now on, unless it failed during the mount.
    pub(super) fn begin(&self, mounted: &Mounted) {
        let Some(layout) = mounted.layout() else { return };
        self.layout.replace(Some(layout.clone()));
        if self.words.borrow().is_some() {
            return;
        }
        let victims = self.disks.victims(&self.clock, &mut self.rng.borrow_mut());
        let words = {
            let with = (&mut *self.rng.borrow_mut(), Loss::Never);
            any_trouble(&victims.disks, &layout, with, &self.told)
        };
        self.words.replace(Some(words));
        self.counts.borrow_mut().troubled += 1;
    }

    /// The problem, with a description of what the device did.
    pub(super) fn explain(&self, problem: String) -> String {
        match &*self.words.borrow() {
            Some(words) => format!("{problem} ({words})"),
            None => problem,
        }
    }

    /// Adds the counts of the trouble.
    pub(super) fn count(&self, tally: &mut Tally) {
        let counts = self.counts.borrow();
        tally.troubled += counts.troubled;
        tally.failed_requests += self.told.failed.get();
        tally.transient_errors += self.told.transient.get();
        tally.troubled_openings += counts.troubled_openings;
        tally.refused_openings += counts.refused_openings;
    }
}
