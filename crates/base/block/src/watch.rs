//! Tasks that wait for answers and hand them on. They are reused, so a request costs neither an
//! allocation nor a task of its own.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{Completion, Handle, IoResult};

/// Calls a function with each answer as it comes, and with the job that belongs to it.
///
/// Spare tasks beyond a few end once their answers have come, the last ones with the `Watchers`.
pub struct Watchers<J>(Rc<Shared<J>>);

struct Shared<J> {
    runtime: Handle,
    done: fn(J, IoResult),
    idle_max: usize,
    idle: RefCell<Vec<Rc<Slot<J>>>>,
    /// The `Watchers` are gone.
    closed: Cell<bool>,
}

/// Completions that one task waits for.
struct Slot<J> {
    watched: RefCell<Option<(Completion, J)>>,
    waker: RefCell<Option<Waker>>,
}

impl<J: 'static> Watchers<J> {
    /// Calls `done` with each answer, from a task of `runtime` or from within [`Watchers::watch`].
    ///
    /// At most `idle_max` tasks are kept for later requests. A few are enough if the receiver of an
    /// answer sends its next request at once. Bursts of requests need more: making a task costs as
    /// much as all other work for an answer.
    #[must_use]
    pub fn new(runtime: Handle, idle_max: usize, done: fn(J, IoResult)) -> Self {
        let (idle, closed) = (RefCell::default(), Cell::default());
        Self(Rc::new(Shared { runtime, done, idle_max, idle, closed }))
    }

    /// Makes sure that `done` gets the answer of `completion` together with `job`, even if the
    /// `Watchers` are dropped meanwhile.
    pub fn watch(&self, mut completion: Completion, job: J) {
        let idle = self.0.idle.borrow_mut().pop();
        let Some(slot) = idle else {
            let watched = RefCell::new(Some((completion, job)));
            let slot = Rc::new(Slot { watched, waker: RefCell::default() });
            self.0.runtime.spawn(SlotTask { shared: Rc::clone(&self.0), slot });
            return;
        };
        // The answer must wake the slot's task, so the completion is polled with that task's waker.
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

impl<J> Drop for Watchers<J> {
    fn drop(&mut self) {
        self.0.closed.set(true);
        for slot in self.0.idle.take() {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
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

impl<J> SlotTask<J> {
    /// Keeps the task for another request, unless enough tasks wait for one.
    fn is_kept(&self) -> bool {
        let mut idle = self.shared.idle.borrow_mut();
        let kept = !self.shared.closed.get() && idle.len() < self.shared.idle_max;
        if kept {
            idle.push(Rc::clone(&self.slot));
        }
        kept
    }

    /// What the task does while it waits for no answer: it ends with the `Watchers`.
    fn rest(&self) -> Poll<()> {
        if self.shared.closed.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<J> Future for SlotTask<J> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &self.slot;
        slot.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        let mut watched = slot.watched.borrow_mut();
        let Some((completion, _)) = watched.as_mut() else { return self.rest() };
        let Poll::Ready(result) = Pin::new(completion).poll(cx) else { return Poll::Pending };
        let done = watched.take();
        drop(watched);
        let kept = self.is_kept();
        if let Some((_, job)) = done {
            (self.shared.done)(job, result);
        }
        if kept { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completer, LocalTask, Payload, Runtime, Tasks, Time, TimeOfDay, completion};

    const IDLE_MAX: usize = 3;

    /// Tasks without a clock.
    struct Still(Tasks);

    impl Runtime for Still {
        fn now(&self) -> Time {
            Time(0)
        }
        fn time_of_day(&self) -> TimeOfDay {
            TimeOfDay::default()
        }
        fn wake_at(&self, _: Time, _: &Waker) {}
        fn spawn(&self, task: LocalTask) {
            self.0.spawn(0, task);
        }
        fn random(&self) -> u64 {
            0
        }
    }

    struct World {
        still: Rc<Still>,
        answered: Rc<Cell<u32>>,
        watchers: Rc<Watchers<Rc<Cell<u32>>>>,
    }

    impl World {
        fn new() -> Self {
            let still = Rc::new(Still(Tasks::with_nudge(|| {})));
            let runtime = Handle::new(still.clone());
            let count = |answered: Rc<Cell<u32>>, _| answered.set(answered.get() + 1);
            let watchers = Rc::new(Watchers::new(runtime, IDLE_MAX, count));
            Self { still, answered: Rc::default(), watchers }
        }

        fn watch(&self, many: u32) -> Vec<Completer> {
            let pairs = (0..many).map(|_| completion());
            let watched = pairs.map(|(completer, completion)| {
                self.watchers.watch(completion, Rc::clone(&self.answered));
                completer
            });
            watched.collect()
        }

        fn settle(&self) -> usize {
            while self.still.0.run_first() {}
            self.still.0.alive()
        }
    }

    fn answer(requests: Vec<Completer>) {
        requests.into_iter().for_each(|request| request.complete(Ok(Payload::default())));
    }

    #[test]
    fn few_tasks_stay_for_more_requests_and_none_without_watchers() {
        let world = World::new();
        for round in 1..=3 {
            let requests = world.watch(40);
            assert_eq!(world.settle(), 40);
            answer(requests);
            assert_eq!(world.settle(), IDLE_MAX);
            assert_eq!(world.answered.get(), 40 * round);
        }
        world.watchers.watch(Completion::ready(Ok(Payload::default())), world.answered.clone());
        assert_eq!((world.settle(), world.answered.get()), (IDLE_MAX, 121));
        let World { still, watchers, answered } = world;
        drop(watchers);
        while still.0.run_first() {}
        assert_eq!((still.0.alive(), answered.get()), (0, 121));
    }

    #[test]
    fn answers_come_after_the_watchers_are_gone() {
        let world = World::new();
        let requests = world.watch(3);
        assert_eq!(world.settle(), 3);
        let World { still, watchers, answered } = world;
        drop(watchers);
        answer(requests);
        while still.0.run_first() {}
        assert_eq!((still.0.alive(), answered.get()), (0, 3));
    }
}
