//! The operator of an open base volume who evacuates stores under load, and calls most of them
//! back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{Handle, IoError, Nanos, Rng};
use manylogs_everest::{Lender, OffloadError, Offloaded, StoreId, StoreState};

use super::wire::Wire;
use super::world::Machines;

/// The longest pause between two evacuations, and the longest that one is waited for.
const PAUSE_MAX: Nanos = Nanos::from_millis(500);
const WAIT_MAX: Nanos = Nanos::from_secs(2);
/// Pause between two looks at what is left.
const LOOK: Nanos = Nanos::from_millis(5);
/// Taking an evacuated store off is a change of the header.
const REMOVED_WITHIN: Nanos = Nanos::from_secs(1);
/// Where stores are does not matter here.
const ADDRESS: &str = "unix:store";

/// The stores that take no more writes of a base volume, whatever crashes. Clones are the same set.
#[derive(Clone, Debug, Default)]
pub(super) struct Evacuated(Rc<RefCell<BTreeSet<StoreId>>>);

impl Evacuated {
    pub(super) fn has(&self, store: StoreId) -> bool {
        self.0.borrow().contains(&store)
    }

    /// The first of them that is not among `leaving`.
    pub(super) fn forgotten(&self, leaving: &[StoreId]) -> Option<StoreId> {
        self.0.borrow().iter().copied().find(|store| !leaving.contains(store))
    }

    /// The store takes no more writes, or does again.
    fn set(&self, wire: &Wire, evacuated: bool) {
        match evacuated {
            true => self.0.borrow_mut().insert(wire.id()),
            false => self.0.borrow_mut().remove(&wire.id()),
        };
        wire.bar(evacuated);
    }

    /// The store was forgotten.
    pub(super) fn forget(&self, store: StoreId) {
        self.0.borrow_mut().remove(&store);
    }
}

/// What operators saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Stores that were emptied.
    pub(super) emptied: Cell<u64>,
    /// Ranges that went to other stores meanwhile.
    pub(super) moved: Cell<u64>,
}

/// The operator of a base volume.
pub(super) struct Operator {
    pub(super) clock: Handle,
    pub(super) volume: Offloaded,
    pub(super) machines: Rc<Machines>,
    pub(super) base: usize,
    pub(super) evacuated: Evacuated,
    pub(super) rng: Rng,
    pub(super) seen: Rc<Seen>,
}

impl Operator {
    /// Evacuates one store after the other.
    ///
    /// # Errors
    /// If one cannot be evacuated, or is empty and holds something, or is not removed at once then.
    pub(super) async fn operate(mut self) -> Result<(), String> {
        loop {
            match self.evacuate_one().await {
                Ok(()) | Err(OffloadError::Unknown { .. }) => {}
                // The base volume is closed or fenced, or this store holds what it must not.
                Err(OffloadError::Base(IoError::Gone)) => return Ok(()),
                Err(error) => return Err(format!("evacuate: {error}")),
            }
        }
    }

    async fn evacuate_one(&mut self) -> Result<(), OffloadError> {
        let store = manylogs_block::to_usize(self.rng.below(self.machines.stores.len() as u64));
        let wire = self.machines.wires.borrow()[self.base][store].clone();
        self.clock.sleep(Nanos(1 + self.rng.below(PAUSE_MAX.0))).await;
        let before = self.volume.figures().moved;
        self.volume.evacuate(wire.id()).await?;
        self.evacuated.set(&wire, true);
        let until = self.clock.now() + Nanos(self.rng.below(WAIT_MAX.0));
        let mut is_empty = self.is_empty(&wire, store);
        while self.clock.now() < until && !is_empty {
            self.clock.sleep(LOOK).await;
            is_empty = self.is_empty(&wire, store);
        }
        let moved = self.volume.figures().moved - before;
        self.seen.moved.set(self.seen.moved.get() + moved);
        self.seen.emptied.set(self.seen.emptied.get() + u64::from(is_empty));
        match self.rng.below(8) {
            0 => {}
            1 if is_empty => self.remove(&wire).await?,
            _ => {
                self.evacuated.set(&wire, false);
                self.volume.add(Rc::new(wire.clone()), ADDRESS).await?;
            }
        }
        Ok(())
    }

    /// Whether the base volume says that the store is empty. Then it is.
    fn is_empty(&self, wire: &Wire, store: usize) -> bool {
        let stores = self.volume.stores();
        let is_it = |one: &&manylogs_everest::StoreFigures| one.id == wire.id();
        if stores.iter().find(is_it).is_none_or(|one| one.state != StoreState::Empty) {
            return false;
        }
        let held = self.machines.serving[store].get().map(|(_, lending)| {
            let held = lending.held(self.volume.id());
            held.len()
        });
        if held.is_some_and(|held| held > 0) {
            self.machines.object(format!("store {store} is empty, and holds {held:?} ranges"));
        }
        true
    }

    async fn remove(&self, wire: &Wire) -> Result<(), OffloadError> {
        self.evacuated.set(wire, false);
        let from = self.clock.now();
        self.volume.remove(wire.id(), false).await?;
        let took = self.clock.now().since(from);
        if took > REMOVED_WITHIN {
            self.machines.object(format!("removing an empty store took {} ms", took.0 / 1_000_000));
        }
        Ok(())
    }
}
