//! The executor of virtual time.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::Waker;

use manylogs_block::{Handle, LocalTask, Rng, Runtime, Tasks, Time, TimeOfDay};

/// Which of several ready tasks runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOrder {
    /// The one that became ready first.
    Fifo,
    /// A random order drawn from the seed, which finds unforeseen interleavings.
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
    /// The time of day at time zero.
    began: Cell<TimeOfDay>,
    order: TaskOrder,
    rng: RefCell<Rng>,
    tasks: Tasks,
    node_count: Cell<u32>,
}

impl Sim {
    /// A world at time zero.
    #[must_use]
    pub fn new(seed: u64, order: TaskOrder) -> Self {
        Self {
            shared: Rc::new(Shared {
                now: Cell::default(),
                began: Cell::default(),
                order,
                rng: RefCell::new(Rng::new(seed)),
                tasks: Tasks::default(),
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

    /// Number of tasks that have not ended, and of timers that are set.
    #[must_use]
    pub fn tasks_and_timers(&self) -> (usize, usize) {
        (self.shared.tasks.alive(), self.shared.tasks.timers())
    }

    /// Sets the wall clock. It showed 00:00 at time zero, and goes as fast as [`Sim::now`].
    pub fn set_time_of_day(&self, now: TimeOfDay) {
        // The clock repeats every day, so whole days that have passed are left out.
        let gone = TimeOfDay::from_seconds(self.now().0 / 1_000_000_000).seconds();
        let began = TimeOfDay::from_seconds(now.seconds() + TimeOfDay::DAY_S - gone);
        self.shared.began.set(began);
    }

    /// Ends every task of `node` where it stands, as `kill -9` or a power cut does.
    pub fn kill(&self, node: NodeId) {
        self.shared.tasks.kill(node.0);
    }

    /// Runs all tasks until `main`, spawned on `node`, ends.
    ///
    /// # Panics
    /// If no task is ready and no timer is set while `main` waits: a deadlock in the code under
    /// test.
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

    /// Runs until `done` returns true. `done` is called before every step of a task.
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
        self.shared.tasks.clear();
    }
}

impl Shared {
    fn step(&self) -> bool {
        let ran = match self.order {
            TaskOrder::Fifo => self.tasks.run_first(),
            TaskOrder::Shuffled => {
                self.tasks.run_picked(|count| self.rng.borrow_mut().below(count))
            }
        };
        ran || self.jump_to_next_timer()
    }

    fn jump_to_next_timer(&self) -> bool {
        // Tasks that the timers wake run later, when the time is set.
        let Some(deadline) = self.tasks.fire_first() else { return false };
        self.now.set(self.now.get().max(deadline));
        true
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

    fn time_of_day(&self) -> TimeOfDay {
        let gone = self.shared.now.get().0 / 1_000_000_000;
        TimeOfDay::from_seconds(self.shared.began.get().seconds() + gone)
    }

    fn wake_at(&self, deadline: Time, waker: &Waker) {
        self.shared.tasks.wake_at(deadline, waker);
    }

    fn spawn(&self, task: LocalTask) {
        self.shared.tasks.spawn(self.node.0, task);
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
        let sim = Sim::new(1, TaskOrder::Fifo);
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
    fn clocks_on_the_wall_go_on_from_where_they_are_set() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let handle = sim.handle(sim.node());
        assert_eq!(handle.time_of_day().seconds(), 0);
        let clock = handle.clone();
        sim.block_on(sim.node(), async move { clock.sleep(Nanos::from_secs(7)).await });
        assert_eq!(handle.time_of_day().seconds(), 7);
        sim.set_time_of_day(TimeOfDay::from_seconds(86_390));
        assert_eq!(handle.time_of_day().seconds(), 86_390);
        let clock = handle.clone();
        sim.block_on(sim.node(), async move { clock.sleep(Nanos::from_secs(15)).await });
        assert_eq!(handle.time_of_day().seconds(), 5);
    }

    #[test]
    fn a_killed_node_runs_no_further_and_the_others_do() {
        let sim = Sim::new(1, TaskOrder::Shuffled);
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
    fn a_task_that_kills_its_own_node_does_not_run_again_in_the_guise_of_what_it_spawned() {
        let sim = Rc::new(Sim::new(1, TaskOrder::Fifo));
        let (doomed, survivor) = (sim.node(), sim.node());
        let trail = Rc::new(RefCell::new(Vec::new()));
        let (world, record) = (Rc::clone(&sim), Rc::clone(&trail));
        sim.handle(doomed).spawn(async move {
            world.kill(doomed);
            let spawned = Rc::clone(&record);
            world.handle(survivor).spawn(async move { spawned.borrow_mut().push("spawned") });
            world.handle(doomed).sleep(Nanos(1)).await;
            record.borrow_mut().push("killed");
        });
        assert_eq!(sim.run_until(|| false), Stopped::Stalled);
        assert_eq!(trail.take(), ["spawned"]);
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order_of = |seed| {
            let sim = Sim::new(seed, TaskOrder::Shuffled);
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
