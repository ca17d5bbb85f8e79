//! The executor of virtual time.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use manylogs_block::{Handle, LocalTask, Rng, Runtime, Time};

/// Which of several ready tasks runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that became ready first.
    Fifo,
    /// One drawn from the seed: finds orders that nobody thought of.
    Shuffled,
}

/// A machine of the simulated world: its tasks die together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// Why [`Sim::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The condition held.
    Condition,
    /// No task is ready and no timer is armed.
    Stalled,
}

/// A simulated world with its own time.
pub struct Sim {
    shared: Rc<Shared>,
}

struct Shared {
    now: Cell<Time>,
    order: Order,
    rng: RefCell<Rng>,
    tasks: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
    /// Woken tasks that were taken over from `woken`, in order.
    ready: RefCell<VecDeque<u32>>,
    woken: Arc<WokenQueue>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    timer_count: Cell<u64>,
    node_count: Cell<u32>,
}

struct TaskSlot {
    /// `None` while the task runs, and after its end.
    future: Option<LocalTask>,
    waker: Waker,
    /// The same waker, to mark the task as no longer queued.
    link: Arc<TaskLink>,
    node: NodeId,
    alive: bool,
}

/// Slots are reused together with their wakers: a waker kept from a slot's former task causes one
/// needless poll, which futures must bear anyway.
struct TaskLink {
    index: u32,
    queued: AtomicBool,
    queue: Arc<WokenQueue>,
}

/// Where wakers put tasks. They may do so from any thread, but hardly ever do: the flag lets the
/// executor look without locking.
#[derive(Default)]
struct WokenQueue {
    tasks: Mutex<Vec<u32>>,
    any: AtomicBool,
}

struct Timer {
    deadline: Time,
    order: u64,
    waker: Waker,
}

impl Wake for TaskLink {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Two threads may both find the task not queued: then it is polled once too often.
        if !self.queued.load(Ordering::Relaxed) {
            self.queued.store(true, Ordering::Relaxed);
            self.queue.push(self.index);
        }
    }
}

impl WokenQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // Nothing panics while the lock is held, so the queue is whole even when poisoned.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, index: u32) {
        let mut tasks = self.lock();
        tasks.push(index);
        self.any.store(true, Ordering::Release);
    }

    /// Moves what was woken behind `ready`.
    fn move_to(&self, ready: &mut VecDeque<u32>) {
        if self.any.load(Ordering::Acquire) {
            let mut tasks = self.lock();
            ready.extend(tasks.drain(..));
            self.any.store(false, Ordering::Relaxed);
        }
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.order).cmp(&(other.deadline, other.order))
    }
}

impl Sim {
    /// A world at time zero.
    #[must_use]
    pub fn new(seed: u64, order: Order) -> Self {
        Self {
            shared: Rc::new(Shared {
                now: Cell::default(),
                order,
                rng: RefCell::new(Rng::new(seed)),
                tasks: RefCell::default(),
                free: RefCell::default(),
                ready: RefCell::default(),
                woken: Arc::default(),
                timers: RefCell::default(),
                timer_count: Cell::default(),
                node_count: Cell::default(),
            }),
        }
    }

    /// A new node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        let id = self.shared.node_count.get();
        self.shared.node_count.set(id + 1);
        NodeId(id)
    }

    /// The runtime as `node` sees it.
    #[must_use]
    pub fn handle(&self, node: NodeId) -> Handle {
        Handle::new(Rc::new(NodeRuntime { shared: Rc::clone(&self.shared), node }))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.now.get()
    }

    /// Ends every task of `node` where it stands, as `kill -9` or a power cut does.
    pub fn kill(&self, node: NodeId) {
        let count = self.shared.tasks.borrow().len();
        for index in 0..count {
            let doomed = {
                let mut tasks = self.shared.tasks.borrow_mut();
                let slot = &mut tasks[index];
                if !slot.alive || slot.node != node {
                    continue;
                }
                slot.alive = false;
                slot.future.take()
            };
            // Destructors run without the borrow: they may wake or spawn.
            drop(doomed);
            self.shared.free.borrow_mut().push(index_u32(index));
        }
    }

    /// Runs `main` on `node`, and all else, until `main` ends.
    ///
    /// # Panics
    /// If nothing can run any more while `main` waits: a deadlock in the code under test.
    pub fn block_on<T: 'static>(&self, node: NodeId, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.handle(node).spawn(async move {
            let value = main.await;
            *slot.borrow_mut() = Some(value);
        });
        let stopped = self.run_until(|| result.borrow().is_some());
        assert!(stopped == Stopped::Condition, "deadlock: no task is ready and no timer is armed");
        let value = result.borrow_mut().take();
        value.unwrap_or_else(|| unreachable!("the condition was that the value is there"))
    }

    /// Runs until `done` holds, asked after every step of a task.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> Stopped {
        loop {
            if done() {
                return Stopped::Condition;
            }
            if !self.shared.step() {
                return Stopped::Stalled;
            }
        }
    }

    /// Lets one ready task run, or jumps to the next timer; false if there is neither.
    pub fn step(&self) -> bool {
        self.shared.step()
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim(at {} ns)", self.now().0)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Tasks hold handles, and handles hold the world: break the circle.
        let tasks = std::mem::take(&mut *self.shared.tasks.borrow_mut());
        drop(tasks);
        self.shared.timers.borrow_mut().clear();
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or_else(|_| panic!("more than 2^32 tasks"))
}

impl Shared {
    fn step(&self) -> bool {
        match self.next_ready() {
            Some(index) => self.poll(index),
            None => return self.jump_to_next_timer(),
        }
        true
    }

    fn next_ready(&self) -> Option<u32> {
        let mut queue = self.ready.borrow_mut();
        self.woken.move_to(&mut queue);
        match self.order {
            Order::Fifo => queue.pop_front(),
            Order::Shuffled if queue.is_empty() => None,
            Order::Shuffled => {
                let pick = self.rng.borrow_mut().below(queue.len() as u64);
                queue.swap_remove_back(manylogs_block::to_usize(pick))
            }
        }
    }

    fn poll(&self, index: u32) {
        let position = index as usize;
        let (mut future, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let slot = &mut tasks[position];
            slot.link.queued.store(false, Ordering::Relaxed);
            let Some(future) = slot.future.take() else { return };
            // Taken, not cloned: counting references is a good part of a poll's cost.
            (future, std::mem::replace(&mut slot.waker, Waker::noop().clone()))
        };
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        let slot = &mut tasks[position];
        slot.waker = waker;
        // A task may have killed its own node.
        if slot.alive && !ended {
            slot.future = Some(future);
            return;
        }
        if slot.alive {
            slot.alive = false;
            self.free.borrow_mut().push(index);
        }
        drop(tasks);
        drop(future);
    }

    fn jump_to_next_timer(&self) -> bool {
        let mut timers = self.timers.borrow_mut();
        let Some(Reverse(first)) = timers.pop() else { return false };
        self.now.set(self.now.get().max(first.deadline));
        first.waker.wake();
        while timers.peek().is_some_and(|Reverse(timer)| timer.deadline == first.deadline) {
            if let Some(Reverse(timer)) = timers.pop() {
                timer.waker.wake();
            }
        }
        true
    }

    fn spawn(&self, node: NodeId, task: LocalTask) {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let index = index_u32(tasks.len());
            let link = Arc::new(TaskLink {
                index,
                queued: AtomicBool::new(false),
                queue: Arc::clone(&self.woken),
            });
            let waker = Waker::from(Arc::clone(&link));
            tasks.push(TaskSlot { future: None, waker, link, node, alive: false });
            index
        });
        let slot = &mut tasks[index as usize];
        slot.future = Some(task);
        slot.node = node;
        slot.alive = true;
        // Not by the slot's waker: the slot may be that of the task that runs now.
        slot.link.wake_by_ref();
    }
}

struct NodeRuntime {
    shared: Rc<Shared>,
    node: NodeId,
}

impl Runtime for NodeRuntime {
    fn now(&self) -> Time {
        self.shared.now.get()
    }

    fn wake_at(&self, deadline: Time, waker: &Waker) {
        let order = self.shared.timer_count.get();
        self.shared.timer_count.set(order + 1);
        self.shared.timers.borrow_mut().push(Reverse(Timer {
            deadline,
            order,
            waker: waker.clone(),
        }));
    }

    fn spawn(&self, task: LocalTask) {
        self.shared.spawn(self.node, task);
    }

    fn random(&self) -> u64 {
        self.shared.rng.borrow_mut().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_block::{Nanos, Signal};

    #[test]
    fn time_jumps_to_the_next_timer() {
        let sim = Sim::new(1, Order::Fifo);
        let node = sim.node();
        let handle = sim.handle(node);
        let clock = handle.clone();
        let at = sim.block_on(node, async move {
            handle.sleep(Nanos::from_secs(3600)).await;
            clock.now()
        });
        assert_eq!(at, Time(3_600_000_000_000));
    }

    #[test]
    fn a_killed_node_runs_no_further_and_the_others_do() {
        let sim = Sim::new(1, Order::Shuffled);
        let (doomed, survivor) = (sim.node(), sim.node());
        let count = Rc::new(Cell::new([0, 0]));
        for (node, index) in [(doomed, 0), (survivor, 1)] {
            let (handle, count) = (sim.handle(node), Rc::clone(&count));
            sim.handle(node).spawn(async move {
                loop {
                    handle.sleep(Nanos::from_millis(1)).await;
                    let mut now = count.get();
                    now[index] += 1;
                    count.set(now);
                }
            });
        }
        sim.run_until(|| count.get()[0] == 5);
        sim.kill(doomed);
        sim.run_until(|| count.get()[1] == 50);
        assert_eq!(count.get(), [5, 50]);
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order_of = |seed| {
            let sim = Sim::new(seed, Order::Shuffled);
            let node = sim.node();
            let (trail, start) = (Rc::new(RefCell::new(Vec::new())), Signal::default());
            for i in 0..20 {
                let (trail, wait) = (Rc::clone(&trail), start.wait());
                sim.handle(node).spawn(async move {
                    wait.await;
                    trail.borrow_mut().push(i);
                });
            }
            start.notify();
            sim.run_until(|| trail.borrow().len() == 20);
            trail.take()
        };
        assert_eq!(order_of(7), order_of(7));
        assert_ne!(order_of(7), order_of(8));
    }
}
