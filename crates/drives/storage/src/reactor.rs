//! The runtime of the real clock.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use manylogs_block::{Handle, LocalTask, Nanos, Rng, Runtime, Tasks, Time, TimeOfDay};
use rustix::rand::GetRandomFlags;

use crate::driver::Driver;
use crate::event::Event;
use crate::wall_clock::time_of_day;

/// Polls between two checks of the kernel, while tasks keep each other busy.
const POLLS_PER_ROUND: u32 = 64;
/// The group of all reactor tasks.
const GROUP: u32 = 0;

/// Runs tasks on the calling thread. Waits for I/O, timers, and wakers called by other threads.
///
/// Dropping it ends its tasks where they stand, and waits for I/O in flight.
pub struct Reactor {
    shared: Rc<Shared>,
}

struct Shared {
    started: Instant,
    rng: RefCell<Rng>,
    tasks: Tasks,
    driver: Rc<Driver>,
    /// See [`Reactor::spin_before_timers`].
    spin: Cell<Nanos>,
}

impl Reactor {
    /// A reactor; its clock starts now.
    ///
    /// # Errors
    /// If the system has no file descriptors or random numbers left.
    pub fn new() -> io::Result<Self> {
        let event = Arc::new(Event::new()?);
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, GetRandomFlags::empty())?;
        let nudged = Arc::clone(&event);
        let shared = Shared {
            started: Instant::now(),
            rng: RefCell::new(Rng::new(u64::from_ne_bytes(seed))),
            tasks: Tasks::with_nudge(move || nudged.notify()),
            driver: Rc::new(Driver::new(event)),
            spin: Cell::default(),
        };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// The runtime as layers see it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Rc::clone(&self.shared) as Rc<dyn Runtime>)
    }

    /// Runs all tasks until `main` ends. The other tasks go on with the next call.
    pub fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(Cell::new(None));
        let slot = Rc::clone(&result);
        self.handle().spawn(async move { slot.set(Some(main.await)) });
        loop {
            if let Some(value) = result.take() {
                // Operations that the last tasks queued must not wait for another call.
                self.shared.driver.submit();
                return value;
            }
            self.shared.run_once(&|| {
                let value = result.take();
                let ended = value.is_some();
                result.set(value);
                ended
            });
        }
    }

    /// From now on the thread does not sleep in the last `span` before a timer is due. Instead it
    /// keeps checking for ended operations and the clock. A sleep ends some 30 us (in a ring) to 90
    /// us late, because the kernel's timers have 50 us of slack. With a `span` of 100 us timers
    /// fire within a few microseconds of their time, at the cost of that much processor time for
    /// each. Zero is the default. Neither helps if the thread has to wait for a processor: see
    /// [`crate::prefer_this_thread`].
    pub fn spin_before_timers(&self, span: Nanos) {
        self.shared.spin.set(span);
    }

    pub(crate) fn driver(&self) -> &Rc<Driver> {
        &self.shared.driver
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reactor(at {} ns)", self.shared.now().0)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.shared.tasks.clear();
        self.shared.driver.drain();
    }
}

impl Shared {
    /// Lets tasks run, or sleeps until a task is ready.
    fn run_once(&self, ended: &dyn Fn() -> bool) {
        let mut polls = 0;
        while polls < POLLS_PER_ROUND && self.tasks.run_first() {
            polls += 1;
            if ended() {
                return;
            }
        }
        self.driver.reap();
        self.tasks.fire_until(self.now());
        if self.tasks.any_ready() {
            self.driver.submit();
        } else {
            self.sleep();
        }
    }

    fn sleep(&self) {
        let now = self.now();
        let left = self.tasks.next_deadline().map(|deadline| deadline.since(now));
        let spin = self.spin.get();
        if left.is_some_and(|left| left <= spin) {
            // Operations queued meanwhile start now; `run_once` reaps them and looks at the clock.
            self.driver.submit();
            std::hint::spin_loop();
            return;
        }
        let timeout = left.map(|left| Duration::from_nanos(left.0 - spin.0));
        if self.tasks.park() {
            self.driver.wait(timeout);
            self.tasks.unpark();
        }
    }
}

impl Runtime for Shared {
    fn now(&self) -> Time {
        // 2^64 ns are five hundred years.
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn time_of_day(&self) -> TimeOfDay {
        time_of_day()
    }

    fn wake_at(&self, deadline: Time, waker: &Waker) {
        self.tasks.wake_at(deadline, waker);
    }

    fn spawn(&self, task: LocalTask) {
        self.tasks.spawn(GROUP, task);
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::Poll;

    use manylogs_block::Signal;

    use super::*;

    /// Reactors with and without a ring to wait in.
    fn reactors() -> Vec<Reactor> {
        let (plain, ringed) = (Reactor::new().unwrap(), Reactor::new().unwrap());
        match ringed.driver().open_ring() {
            Ok(()) => vec![plain, ringed],
            Err(_) => vec![plain],
        }
    }

    #[test]
    fn timers_fire_in_their_order_and_never_early() {
        for reactor in reactors() {
            let runtime = reactor.handle();
            let trail = Rc::new(RefCell::new(Vec::new()));
            for millis in [30, 10, 20] {
                let (runtime, trail) = (runtime.clone(), Rc::clone(&trail));
                reactor.handle().spawn(async move {
                    runtime.sleep(Nanos::from_millis(millis)).await;
                    trail.borrow_mut().push(millis);
                });
            }
            let at = reactor.block_on(async move {
                let deadline = runtime.now() + Nanos::from_millis(40);
                runtime.sleep_until(deadline).await;
                (runtime.now(), deadline)
            });
            assert!(at.0 >= at.1);
            assert_eq!(trail.take(), [10, 20, 30]);
        }
    }

    #[test]
    fn a_reactor_that_spins_notices_wakers_and_timers() {
        for reactor in reactors() {
            // Longer than every wait here: the thread never sleeps while a timer is set.
            reactor.spin_before_timers(Nanos::from_secs(3600));
            let runtime = reactor.handle();
            let signal = Signal::default();
            let heard = signal.wait();
            let sleeper = runtime.clone();
            reactor.handle().spawn(async move {
                sleeper.sleep(Nanos::from_millis(2)).await;
                signal.notify();
            });
            let at = reactor.block_on(async move {
                heard.await;
                runtime.now()
            });
            assert!(at >= Time(2_000_000));
        }
    }

    #[test]
    fn another_thread_wakes_a_reactor_that_sleeps() {
        for reactor in reactors() {
            for _ in 0..200 {
                let shared = Arc::new(Mutex::new((false, None::<Waker>)));
                let other = Arc::clone(&shared);
                let thread = std::thread::spawn(move || {
                    let waker = {
                        let mut state = other.lock().unwrap();
                        state.0 = true;
                        state.1.take()
                    };
                    waker.inspect(Waker::wake_by_ref);
                });
                // No timer is armed: without the wake this sleeps for ever.
                reactor.block_on(std::future::poll_fn(move |cx| {
                    let mut state = shared.lock().unwrap();
                    if state.0 {
                        return Poll::Ready(());
                    }
                    state.1 = Some(cx.waker().clone());
                    Poll::Pending
                }));
                thread.join().unwrap();
            }
        }
    }

    #[test]
    fn tasks_that_keep_each_other_busy_do_not_starve_timers() {
        for reactor in reactors() {
            let (ping, pong) = (Signal::default(), Signal::default());
            for (hear, say) in [(ping.clone(), pong.clone()), (pong.clone(), ping.clone())] {
                reactor.handle().spawn(async move {
                    loop {
                        let heard = hear.wait();
                        say.notify();
                        heard.await;
                    }
                });
            }
            let runtime = reactor.handle();
            reactor.block_on(async move { runtime.sleep(Nanos::from_millis(1)).await });
        }
    }

    #[test]
    fn a_waker_may_outlive_its_reactor() {
        for reactor in reactors() {
            let kept = Rc::new(RefCell::new(None));
            let slot = Rc::clone(&kept);
            reactor.block_on(std::future::poll_fn(move |cx| {
                *slot.borrow_mut() = Some(cx.waker().clone());
                Poll::Ready(())
            }));
            drop(reactor);
            kept.take().unwrap().wake();
        }
    }

    #[test]
    fn random_numbers_differ_from_reactor_to_reactor() {
        let draw = || Reactor::new().unwrap().handle().random();
        assert_ne!(draw(), draw());
    }
}
