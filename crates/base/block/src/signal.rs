//! A wake-up that carries no value: the waiter checks its own condition again.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes every waiting task when something changed. Clones share the waiters.
#[derive(Clone, Debug, Default)]
pub struct Signal(Rc<State>);

#[derive(Debug, Default)]
struct State {
    round: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Wakes everyone who waits now.
    pub fn notify(&self) {
        self.0.round.set(self.0.round.get() + 1);
        if self.0.waiters.borrow().is_empty() {
            return;
        }
        let mut waiters = self.0.waiters.take();
        waiters.drain(..).for_each(Waker::wake);
        // Keeps the memory for later waiters.
        let mut empty = self.0.waiters.borrow_mut();
        if empty.is_empty() {
            *empty = waiters;
        }
    }

    /// Resolves at the first [`Signal::notify`] after this call (not after the first poll).
    pub fn wait(&self) -> Wait {
        Wait { signal: self.clone(), since: self.0.round.get() }
    }
}

/// Lets other tasks that are ready run before the caller goes on.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// See [`Signal::wait`].
#[derive(Debug)]
#[must_use = "a wait does nothing until awaited"]
pub struct Wait {
    signal: Signal,
    since: u64,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.0.round.get() != self.since {
            return Poll::Ready(());
        }
        let mut waiters = self.signal.0.waiters.borrow_mut();
        if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
