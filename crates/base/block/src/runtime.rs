//! The clock and the task spawner that a layer runs on, virtual or real.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{Nanos, Time, TimeOfDay};

/// A task of a single-threaded runtime.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// Clock, timers and tasks. Layers hold a [`Handle`].
pub trait Runtime {
    /// The time since the runtime began.
    fn now(&self) -> Time;
    /// Wall-clock time, which may jump in both directions. Only the operator's schedule may depend
    /// on it.
    fn time_of_day(&self) -> TimeOfDay;
    /// Wakes `waker` once, at `deadline` or as soon after as can be.
    fn wake_at(&self, deadline: Time, waker: &Waker);
    /// Runs `task` until it ends or its node is killed.
    fn spawn(&self, task: LocalTask);
    /// Random bits; under the virtual clock they follow from the seed.
    fn random(&self) -> u64;
}

/// A cheap handle to a [`Runtime`].
#[derive(Clone)]
pub struct Handle(Rc<dyn Runtime>);

impl Handle {
    /// Wraps a runtime.
    #[must_use]
    pub fn new(runtime: Rc<dyn Runtime>) -> Self {
        Self(runtime)
    }

    /// See [`Runtime::now`].
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// See [`Runtime::time_of_day`].
    #[must_use]
    pub fn time_of_day(&self) -> TimeOfDay {
        self.0.time_of_day()
    }

    /// See [`Runtime::random`].
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.random()
    }

    /// See [`Runtime::spawn`].
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(Box::pin(task));
    }

    /// Resolves at `deadline`, at once if it has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep { runtime: self.clone(), deadline, armed: false }
    }

    /// Resolves after `span`.
    pub fn sleep(&self, span: Nanos) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Wakes `waker` at `deadline`; for futures that manage their own timers.
    pub fn wake_at(&self, deadline: Time, waker: &Waker) {
        self.0.wake_at(deadline, waker);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle(at {} ns)", self.now().0)
    }
}

/// See [`Handle::sleep_until`].
#[derive(Debug)]
#[must_use = "a sleep does nothing until awaited"]
pub struct Sleep {
    runtime: Handle,
    deadline: Time,
    armed: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.runtime.now() >= self.deadline {
            return Poll::Ready(());
        }
        // No task moves a sleep to another waker here, so it is armed once.
        if !self.armed {
            self.armed = true;
            self.runtime.wake_at(self.deadline, cx.waker());
        }
        Poll::Pending
    }
}
