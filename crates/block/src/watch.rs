//! Tasks that wait for answers and hand them on. They are reused, so that a request costs neither
//! an allocation nor a task of its own.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{Completion, Handle, IoResult};

/// Calls a function with each answer as it comes, and with what belongs to it.
pub struct Watchers<J>(Rc<Shared<J>>);

struct Shared<J> {
    runtime: Handle,
    done: fn(J, IoResult),
    idle: RefCell<Vec<Rc<Slot<J>>>>,
}

/// What one task waits for.
struct Slot<J> {
    watched: RefCell<Option<(Completion, J)>>,
    waker: RefCell<Option<Waker>>,
}

impl<J: 'static> Watchers<J> {
    /// Calls `done` with each answer, from a task of `runtime` or from within [`Watchers::watch`].
    #[must_use]
    pub fn new(runtime: Handle, done: fn(J, IoResult)) -> Self {
        Self(Rc::new(Shared { runtime, done, idle: RefCell::default() }))
    }

    /// Sees to it that `done` gets the answer of `completion`, together with `job`.
    pub fn watch(&self, mut completion: Completion, job: J) {
        let idle = self.0.idle.borrow_mut().pop();
        let Some(slot) = idle else {
            let watched = RefCell::new(Some((completion, job)));
            let slot = Rc::new(Slot { watched, waker: RefCell::default() });
            self.0.runtime.spawn(SlotTask { shared: Rc::clone(&self.0), slot });
            return;
        };
        // The answer must wake the slot's task, so it is asked for with that task's waker.
        let polled = {
            let waker = slot.waker.borrow();
            let Some(waker) = waker.as_ref() else { unreachable!("idle after its first poll") };
            Pin::new(&mut completion).poll(&mut Context::from_waker(waker))
        };
        match polled {
            Poll::Ready(result) => {
                self.0.idle.borrow_mut().push(slot);
                (self.0.done)(job, result);
            }
            Poll::Pending => *slot.watched.borrow_mut() = Some((completion, job)),
        }
    }
}

impl<J> std::fmt::Debug for Watchers<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchers").field("idle", &self.0.idle.borrow().len()).finish()
    }
}

struct SlotTask<J> {
    shared: Rc<Shared<J>>,
    slot: Rc<Slot<J>>,
}

impl<J> Future for SlotTask<J> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &self.slot;
        slot.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        let mut watched = slot.watched.borrow_mut();
        let Some((completion, _)) = watched.as_mut() else { return Poll::Pending };
        let Poll::Ready(result) = Pin::new(completion).poll(cx) else { return Poll::Pending };
        let done = watched.take();
        drop(watched);
        self.shared.idle.borrow_mut().push(Rc::clone(slot));
        if let Some((_, job)) = done {
            (self.shared.done)(job, result);
        }
        Poll::Pending
    }
}
