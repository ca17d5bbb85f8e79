//! A lock that tasks hold across awaits.

use std::cell::Cell;
use std::rc::Rc;

use crate::Signal;

/// Lets one task in at a time, in the order of their calls of [`TaskLock::take`]. A task that has
/// called it must not drop the future, or all later ones wait for ever.
#[derive(Clone, Debug, Default)]
pub struct TaskLock(Rc<LockState>);

#[derive(Debug, Default)]
struct LockState {
    asked: Cell<u64>,
    served: Cell<u64>,
    given_back: Signal,
}

/// Gives the lock back when dropped.
#[derive(Debug)]
pub struct TaskGuard(TaskLock);

impl TaskLock {
    /// Resolves when it is the caller's turn.
    pub async fn take(&self) -> TaskGuard {
        let number = self.0.asked.get();
        self.0.asked.set(number + 1);
        while self.0.served.get() != number {
            self.0.given_back.wait().await;
        }
        TaskGuard(self.clone())
    }

    /// Whether a task waits while another has the lock.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.asked.get() > self.0.served.get() + 1
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.0.served.set(self.0.0.served.get() + 1);
        self.0.0.given_back.notify();
    }
}
