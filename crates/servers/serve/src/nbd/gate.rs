//! A lock for changes of the export: shared or exclusive.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::Signal;

/// Orders changes. A change of a part of a sector reads, modifies and writes the whole sector, so
/// no other change may come in between: it is exclusive. Changes of whole sectors share the gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Rc<State>);

#[derive(Debug, Default)]
struct State {
    sharers: Cell<usize>,
    /// An exclusive change waits or is under way.
    closed: Cell<bool>,
    changed: Signal,
}

/// The right to change whole sectors, until dropped.
#[derive(Debug)]
pub(super) struct Shared(Gate);

/// The right to change anything, until dropped.
#[derive(Debug)]
pub(super) struct Alone(Gate);

impl Gate {
    /// The right to change whole sectors, unless an exclusive change waits or is under way.
    pub(super) fn try_share(&self) -> Option<Shared> {
        if self.0.closed.get() {
            return None;
        }
        self.0.sharers.set(self.0.sharers.get() + 1);
        Some(Shared(self.clone()))
    }

    /// Waits until whole sectors may be changed.
    pub(super) async fn share(&self) -> Shared {
        loop {
            let changed = self.0.changed.wait();
            if let Some(shared) = self.try_share() {
                return shared;
            }
            changed.await;
        }
    }

    /// Waits until no other change is under way.
    pub(super) async fn alone(&self) -> Alone {
        loop {
            let changed = self.0.changed.wait();
            if !self.0.closed.replace(true) {
                break;
            }
            changed.await;
        }
        let alone = Alone(self.clone());
        loop {
            let changed = self.0.changed.wait();
            if self.0.sharers.get() == 0 {
                return alone;
            }
            changed.await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.sharers.set(state.sharers.get() - 1);
        if state.closed.get() {
            state.changed.notify();
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.0.closed.set(false);
        self.0.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn one_is_alone_and_many_share() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let (first, second) = (gate.try_share().unwrap(), gate.try_share().unwrap());
        {
            let mut alone = pin!(gate.alone());
            assert!(alone.as_mut().poll(&mut cx).is_pending());
            assert!(gate.try_share().is_none(), "whoever wants to be alone is not starved");
            drop(first);
            assert!(alone.as_mut().poll(&mut cx).is_pending());
            drop(second);
            assert!(alone.as_mut().poll(&mut cx).is_ready());
        }
        // The exclusive change has ended.
        let Poll::Ready(held) = pin!(gate.alone()).poll(&mut cx) else { panic!("nobody shares") };
        let mut share = pin!(gate.share());
        assert!(share.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert!(share.as_mut().poll(&mut cx).is_ready());
    }
}
