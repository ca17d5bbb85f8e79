//! A lock for many readers or one writer, in the order in which they asked.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::Signal;

/// The lock: see the module. Clones are the same lock. A task must not drop the future of a request
/// before it resolves.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLock(Rc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Cell<u64>,
    /// The ticket whose turn it is to enter.
    turn: Cell<u64>,
    readers: Cell<u64>,
    writer: Cell<bool>,
    changed: Signal,
}

/// A reader's hold on the lock; ends when dropped.
#[derive(Debug)]
pub(crate) struct ReadGuard(SharedLock);

/// A writer's hold on the lock; ends when dropped.
#[derive(Debug)]
pub(crate) struct WriteGuard(SharedLock);

impl SharedLock {
    /// Resolves when no writer has the lock or asked for it earlier.
    pub(crate) async fn read(&self) -> ReadGuard {
        self.enter(|state| !state.writer.get()).await;
        self.0.readers.set(self.0.readers.get() + 1);
        ReadGuard(self.clone())
    }

    /// A reader's hold, if nobody writes or waits.
    pub(crate) fn read_now(&self) -> Option<ReadGuard> {
        let (state, ticket) = (&self.0, self.0.asked.get());
        if state.writer.get() || state.turn.get() != ticket {
            return None;
        }
        state.asked.set(ticket + 1);
        state.turn.set(ticket + 1);
        state.readers.set(state.readers.get() + 1);
        Some(ReadGuard(self.clone()))
    }

    /// Resolves when nobody else has the lock, and all earlier requests were served.
    pub(crate) async fn write(&self) -> WriteGuard {
        self.enter(|state| !state.writer.get() && state.readers.get() == 0).await;
        self.0.writer.set(true);
        WriteGuard(self.clone())
    }

    async fn enter(&self, may: impl Fn(&State) -> bool) {
        let ticket = self.0.asked.get();
        self.0.asked.set(ticket + 1);
        while self.0.turn.get() != ticket || !may(&self.0) {
            self.0.changed.wait().await;
        }
        self.0.turn.set(ticket + 1);
        if self.0.asked.get() > ticket + 1 {
            self.0.changed.notify();
        }
    }
}

impl ReadGuard {
    /// Whether a task waits for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.0.asked.get() > self.0.0.turn.get()
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.readers.set(state.readers.get() - 1);
        state.changed.notify();
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.0.writer.set(false);
        self.0.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use manylogs_block::Nanos;
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn readers_share_writers_do_not_and_nobody_is_passed() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (node, lock) = (sim.node(), SharedLock::default());
        let trail = Rc::new(RefCell::new(Vec::new()));
        for (number, writes) in [false, false, true, false, true, true].into_iter().enumerate() {
            let (runtime, lock, trail) = (sim.handle(node), lock.clone(), Rc::clone(&trail));
            sim.handle(node).spawn(async move {
                let guards = if writes {
                    (None, Some(lock.write().await))
                } else {
                    (Some(lock.read().await), None)
                };
                runtime.sleep(Nanos(10)).await;
                trail.borrow_mut().push((number, runtime.now().0));
                drop(guards);
            });
        }
        sim.run_until(|| trail.borrow().len() == 6);
        let expected = [(0, 10), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50)];
        assert_eq!(*trail.borrow(), expected);
    }
}
