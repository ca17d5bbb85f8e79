//! Parts that all executors share: tasks, their wakers and their timers.
//!
//! The virtual clock and the real one differ only in which ready task runs next, and in what
//! happens when none is ready. All else is here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::timers::Timers;
use crate::{LocalTask, Time, to_usize};

/// The tasks and timers of a single-threaded executor.
///
/// Wakers may be used from any thread. An executor sleeps only between [`Tasks::park`] and
/// [`Tasks::unpark`].
#[derive(Default)]
pub struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// Woken tasks that were taken over from `woken`, in order.
    ready: RefCell<VecDeque<u32>>,
    woken: Arc<WokenQueue>,
    timers: RefCell<Timers>,
}

struct Slot {
    /// `None` while the task runs, and after its end.
    future: Option<LocalTask>,
    waker: Waker,
    /// The same waker, to mark the task as no longer queued.
    link: Arc<TaskLink>,
    group: u32,
    alive: bool,
}

/// Slots are reused together with their wakers. A waker that a slot's former task left behind
/// causes one needless poll, which futures must bear anyway.
struct TaskLink {
    index: u32,
    queued: AtomicBool,
    queue: Arc<WokenQueue>,
}

/// Where wakers put tasks. They may do so from any thread, but seldom do: the flag lets the
/// executor look without locking.
#[derive(Default)]
struct WokenQueue {
    woken: Mutex<Woken>,
    any: AtomicBool,
    /// Ends the sleep of a parked executor.
    nudge: Option<Nudge>,
}

#[derive(Default)]
struct Woken {
    tasks: Vec<u32>,
    parked: bool,
}

type Nudge = Box<dyn Fn() + Send + Sync>;

impl Wake for TaskLink {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Two threads may both find the task not queued: then it is polled once more than needed.
        if !self.queued.load(Ordering::Relaxed) {
            self.queued.store(true, Ordering::Relaxed);
            self.queue.push(self.index);
        }
    }
}

impl WokenQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Woken> {
        // Nothing panics while the lock is held, so the queue is whole even when poisoned.
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn push(&self, index: u32) {
        let mut woken = self.lock();
        woken.tasks.push(index);
        self.any.store(true, Ordering::Release);
        if woken.parked {
            woken.parked = false;
            drop(woken);
            self.nudge();
        }
    }

    #[cold]
    fn nudge(&self) {
        if let Some(nudge) = &self.nudge {
            nudge();
        }
    }

    /// Appends the woken tasks to `ready`.
    #[inline]
    fn move_to(&self, ready: &mut VecDeque<u32>) {
        if self.any.load(Ordering::Acquire) {
            let mut woken = self.lock();
            // Usually one task was woken, which moves faster without a drain.
            if let [task] = *woken.tasks.as_slice() {
                ready.push_back(task);
                woken.tasks.clear();
            } else {
                ready.extend(woken.tasks.drain(..));
            }
            self.any.store(false, Ordering::Relaxed);
        }
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or_else(|_| panic!("more than 2^32 tasks"))
}

impl Tasks {
    /// No tasks yet. `nudge` ends the sleep of a parked executor when a task is woken; it is called
    /// on the thread that wakes the task.
    #[must_use]
    pub fn with_nudge(nudge: impl Fn() + Send + Sync + 'static) -> Self {
        let woken = WokenQueue { nudge: Some(Box::new(nudge)), ..WokenQueue::default() };
        Self { woken: Arc::new(woken), ..Self::default() }
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.slots.borrow().iter().filter(|slot| slot.alive).count()
    }

    /// Timers that are set, including those whose tasks no longer wait for them.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.timers.borrow().len()
    }

    /// Adds a task and makes it ready. The tasks of a group can be ended together.
    pub fn spawn(&self, group: u32, task: LocalTask) {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let index = index_u32(slots.len());
            let queued = AtomicBool::new(false);
            let link = Arc::new(TaskLink { index, queued, queue: Arc::clone(&self.woken) });
            let waker = Waker::from(Arc::clone(&link));
            slots.push(Slot { future: None, waker, link, group, alive: false });
            index
        });
        let slot = &mut slots[index as usize];
        slot.future = Some(task);
        slot.group = group;
        slot.alive = true;
        slot.link.wake_by_ref();
    }

    /// Ends every task of `group` at once; if the caller is one of them, it ends when it next
    /// waits.
    pub fn kill(&self, group: u32) {
        let count = self.slots.borrow().len();
        for index in 0..count {
            let doomed = {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[index];
                if !slot.alive || slot.group != group {
                    continue;
                }
                slot.alive = false;
                slot.future.take()
            };
            // The slot of a running task is not free before its poll returns: a task spawned into
            // it would be taken for the running one.
            if doomed.is_some() {
                // Destructors run without the borrow: they may wake or spawn.
                drop(doomed);
                self.free.borrow_mut().push(index_u32(index));
            }
        }
    }

    /// Lets the task run that became ready first; false if none is ready.
    #[inline]
    pub fn run_first(&self) -> bool {
        let index = {
            let mut ready = self.ready.borrow_mut();
            // Tasks in `ready` were woken before those that are still in `woken`.
            if ready.is_empty() {
                self.woken.move_to(&mut ready);
            }
            ready.pop_front()
        };
        index.map(|index| self.poll(index)).is_some()
    }

    /// Lets one ready task run, chosen by `pick` from their number (at least one); false if none
    /// is ready. The order of the others may change.
    #[inline]
    pub fn run_picked(&self, pick: impl FnOnce(u64) -> u64) -> bool {
        let index = {
            let mut ready = self.ready.borrow_mut();
            self.woken.move_to(&mut ready);
            let count = ready.len() as u64;
            if count == 0 { None } else { ready.swap_remove_back(to_usize(pick(count))) }
        };
        index.map(|index| self.poll(index)).is_some()
    }

    fn poll(&self, index: u32) {
        let position = index as usize;
        let (mut future, waker) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[position];
            slot.link.queued.store(false, Ordering::Relaxed);
            let Some(future) = slot.future.take() else { return };
            // Taken, not cloned: counting references is a good part of the cost of a poll.
            (future, std::mem::replace(&mut slot.waker, Waker::noop().clone()))
        };
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut slots = self.slots.borrow_mut();
        // All tasks are gone if the executor was emptied meanwhile.
        let Some(slot) = slots.get_mut(position) else { return };
        slot.waker = waker;
        // A task may have killed its own group.
        if slot.alive && !ended {
            slot.future = Some(future);
            return;
        }
        slot.alive = false;
        self.free.borrow_mut().push(index);
        drop(slots);
        drop(future);
    }

    /// Wakes `waker` once `deadline` is reached and [`Tasks::fire_until`] is called.
    #[inline]
    pub fn wake_at(&self, deadline: Time, waker: &Waker) {
        self.timers.borrow_mut().push(deadline, waker.clone());
    }

    /// The earliest deadline of a timer.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.borrow().next_deadline()
    }

    /// Fires every timer whose deadline is `now` or earlier.
    pub fn fire_until(&self, now: Time) {
        let mut timers = self.timers.borrow_mut();
        while timers.next_deadline().is_some_and(|deadline| deadline <= now) {
            timers.pop().into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Fires the timers of the earliest deadline and returns it, if there is any.
    #[inline]
    pub fn fire_first(&self) -> Option<Time> {
        let mut timers = self.timers.borrow_mut();
        let (first, waker) = timers.pop()?;
        waker.wake();
        while timers.next_deadline() == Some(first) {
            timers.pop().into_iter().for_each(|(_, waker)| waker.wake());
        }
        Some(first)
    }

    /// Whether a task is ready.
    #[must_use]
    pub fn any_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || self.woken.any.load(Ordering::Acquire)
    }

    /// Announces that the executor is about to sleep: from now on the first wake nudges. False if
    /// it must not sleep because a task is ready.
    #[must_use]
    pub fn park(&self) -> bool {
        let mut woken = self.woken.lock();
        woken.parked = woken.tasks.is_empty() && self.ready.borrow().is_empty();
        woken.parked
    }

    /// The executor is awake again.
    pub fn unpark(&self) {
        self.woken.lock().parked = false;
    }

    /// Drops every task and timer. This breaks a cycle: tasks hold handles, which hold the
    /// executor.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        self.free.borrow_mut().clear();
        drop(slots);
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop(timers);
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}
