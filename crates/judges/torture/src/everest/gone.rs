//! A store that is gone for good: its machine never comes back. The operator of each base volume
//! forgets it, while the volume is open or after a crash of its machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Time};
use manylogs_everest::{BaseId, OffloadError, Offloaded, StoreId};

use super::clients::Volume;

/// Pause between two attempts to forget a store.
const AGAIN: Nanos = Nanos::from_millis(200);

/// What is known of the store that is gone.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    /// Its number, and its name.
    pub(super) store: usize,
    pub(super) id: StoreId,
    /// When its operators forget it. Until then they hope.
    pub(super) forget_at: Time,
    /// What it held when it went, of each base volume, and was not written since.
    pub(super) held: Vec<(BaseId, Lost)>,
    /// What it held when it went, of each base volume, whatever was written since.
    pub(super) had: Vec<(BaseId, BTreeSet<u64>)>,
}

impl Gone {
    /// The sectors that it held of a base volume.
    fn of(&self, base: BaseId) -> BTreeSet<u64> {
        let found = self.held.iter().find(|(of, _)| *of == base);
        found.map(|(_, held)| held.0.borrow().clone()).unwrap_or_default()
    }

    /// Judges what is said to be lost: nothing but what the store held.
    fn judge(&self, base: BaseId, lost: &[Extent]) -> Result<(), String> {
        judge(&self.of(base), lost)
    }

    /// Judges what a note says is lost: nothing but what the store held when it went. Another store
    /// may have got a newer version since, which the note knows nothing of.
    fn judge_note(&self, base: BaseId, lost: &[Extent]) -> Result<(), String> {
        let had = self.had.iter().find(|(of, _)| *of == base).map(|(_, had)| had);
        judge(had.unwrap_or(&BTreeSet::new()), lost)
    }
}

fn judge(held: &BTreeSet<u64>, lost: &[Extent]) -> Result<(), String> {
    let too_much =
        lost.iter().flat_map(|extent| extent.range()).find(|sector| !held.contains(sector));
    match too_much {
        None => Ok(()),
        Some(sector) => Err(format!(
            "sector {sector} is lost with a store that does not have its newest version"
        )),
    }
}

/// Sectors of a base volume that are lost, or may be, and were not written since.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Rc<RefCell<BTreeSet<u64>>>);

impl Lost {
    pub(super) fn add(&self, sectors: impl IntoIterator<Item = u64>) {
        self.0.borrow_mut().extend(sectors);
    }

    /// Adds sectors that may be lost. Returns those that are new.
    fn suspect(&self, sectors: BTreeSet<u64>) -> BTreeSet<u64> {
        let mut lost = self.0.borrow_mut();
        sectors.into_iter().filter(|sector| lost.insert(*sector)).collect()
    }

    /// Another set with the same sectors.
    pub(super) fn copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// A write of the extent was acknowledged.
    pub(super) fn written(&self, extent: Extent) {
        let mut lost = self.0.borrow_mut();
        extent.range().for_each(|sector| {
            lost.remove(&sector);
        });
    }

    /// Of the suspected sectors only those of `lost` are.
    fn clear(&self, suspected: BTreeSet<u64>, lost: &[Extent]) {
        let lost: BTreeSet<u64> = lost.iter().flat_map(|extent| extent.range()).collect();
        let mut known = self.0.borrow_mut();
        for sector in suspected.difference(&lost) {
            known.remove(sector);
        }
    }

    pub(super) fn has(&self, sector: u64) -> bool {
        self.0.borrow().contains(&sector)
    }

    /// Whether a part of the extent may be a read error.
    pub(super) fn may_fail(&self, extent: Extent) -> bool {
        extent.range().any(|sector| self.has(sector))
    }
}

/// The operator of an open base volume: waits until the store is gone for long enough, and forgets
/// it. `done` counts the stores that were forgotten while their base volumes were open.
///
/// # Errors
/// If more is lost than the store held, or it cannot be forgotten.
pub(super) async fn operate(
    clock: Handle,
    volume: Offloaded,
    gone: Rc<RefCell<Option<Gone>>>,
    of: Volume,
    done: Rc<Cell<u64>>,
) -> Result<(), String> {
    loop {
        clock.sleep(AGAIN).await;
        let Some(gone) = gone.borrow().clone() else { continue };
        if clock.now() < gone.forget_at {
            continue;
        }
        // Reads may fail before the answer has come.
        let suspected = of.lost.suspect(gone.of(volume.id()));
        match volume.forget(gone.id, true).await {
            Ok(forgotten) => {
                gone.judge(volume.id(), &forgotten.lost)?;
                of.lost.clear(suspected, &forgotten.lost);
                of.evacuated.forget(gone.id);
                done.set(done.get() + 1);
                return Ok(());
            }
            // The client has not noticed yet.
            Err(OffloadError::Answers { .. }) => of.lost.clear(suspected, &[]),
            Err(error) => return Err(format!("forget: {error}")),
        }
    }
}

/// Forgets the store of a base volume that is closed, if it is listed there. Tells `lose` what is
/// lost before that is durable. Returns whether a note said what it alone had: nothing else is lost
/// then.
///
/// # Errors
/// If the device fails.
pub(super) async fn forget_closed(
    clock: &Handle,
    base: Rc<dyn BlockDevice>,
    gone: &Gone,
    (id, whole): (BaseId, Extent),
    lose: impl FnOnce(BTreeSet<u64>),
) -> Result<bool, String> {
    let forget = |accept| Offloaded::forget_closed(clock, Rc::clone(&base), gone.id, accept);
    let told = match forget(false).await {
        Ok(told) => told,
        Err(OffloadError::Unknown { .. }) => return Ok(false),
        Err(error) => return Err(format!("forget: {error}")),
    };
    let is_known = told.lost != [whole];
    let mut lost: BTreeSet<u64> = told.lost.iter().flat_map(|extent| extent.range()).collect();
    if is_known {
        gone.judge_note(id, &told.lost)?;
        // What was written since must be there all the same.
        let held = gone.of(id);
        lost.retain(|sector| held.contains(sector));
    }
    lose(lost);
    match forget(true).await {
        Ok(done) if done.lost == told.lost => Ok(is_known),
        Ok(done) => Err(format!("{:?} are lost, not {:?}", done.lost, told.lost)),
        // Nothing was lost, and so it was forgotten at once.
        Err(OffloadError::Unknown { .. }) if told.done => Ok(is_known),
        Err(error) => Err(format!("forget: {error}")),
    }
}
