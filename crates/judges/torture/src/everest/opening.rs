//! The opening of a base volume in a life: its content is compared, and its clients and operators
//! start.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::Handle;
use manylogs_everest::Offloaded;

use super::clients::{Volume, World};
use super::gone::operate;
use super::leaving::{Operator, Seen};
use super::plan::EverestPlan;
use super::trouble::Trouble;
use super::world::{Machines, read_all};

/// A base volume that is being opened, on a machine that has just started.
pub(super) struct Opening {
    pub(super) base: usize,
    pub(super) clock: Handle,
    pub(super) plan: EverestPlan,
    pub(super) machines: Rc<Machines>,
    pub(super) volume: Volume,
    /// Running clients, once the volume was compared.
    pub(super) running: Rc<Cell<Option<u64>>>,
    pub(super) problem: Rc<RefCell<Option<String>>>,
    /// The open volumes.
    pub(super) opened: Rc<RefCell<Vec<Option<Offloaded>>>>,
    /// How often a store that is gone was forgotten, by open volumes and closed ones.
    pub(super) forgotten: Rc<Cell<u64>>,
    pub(super) forgotten_closed: Rc<Cell<u64>>,
    pub(super) seen: Rc<Seen>,
}

/// Why an attempt to open a volume gave none.
enum Failed {
    /// Another one may succeed.
    ForNow(String),
    /// A promise was broken.
    Wrong(String),
}

impl Opening {
    /// Opens the volume by one of these attempts, and starts whoever uses it.
    pub(super) async fn begin(
        self,
        attempts: Vec<impl Future<Output = Result<Offloaded, String>>>,
    ) {
        let mut failed = String::new();
        for attempt in attempts {
            match self.open(attempt).await {
                Ok(device) => return self.start(&device),
                Err(Failed::ForNow(error)) => failed = error,
                Err(Failed::Wrong(problem)) => return self.note(&problem),
            }
        }
        self.note(&format!("cannot be opened: {failed}"));
    }

    fn note(&self, what: &str) {
        self.problem.borrow_mut().get_or_insert(format!("volume {}: {what}", self.base));
    }

    /// An error that passes where stores and links fail.
    fn error(&self, error: String) -> Failed {
        if self.volume.may_fail { Failed::ForNow(error) } else { Failed::Wrong(error) }
    }

    async fn open(
        &self,
        attempt: impl Future<Output = Result<Offloaded, String>>,
    ) -> Result<Offloaded, Failed> {
        let device = match attempt.await {
            Ok(device) => device,
            Err(error) => {
                self.forget_gone().await.map_err(Failed::Wrong)?;
                return Err(self.error(error));
            }
        };
        self.opened.borrow_mut()[self.base] = Some(device.clone());
        let content = match read_all(&device).await {
            Ok(content) => content,
            Err(error) => {
                device.close().await;
                return Err(self.error(error));
            }
        };
        if self.plan.trouble {
            Trouble::heal(&self.machines.stores[0].disks());
        }
        let checked = self.volume.check_reopened(&content);
        checked.map_err(|wrong| Failed::Wrong(format!("reopened: {wrong}")))?;
        Ok(device)
    }

    /// The operator forgets a store that is gone, without which the volume cannot be opened.
    async fn forget_gone(&self) -> Result<(), String> {
        let gone = self.machines.gone.borrow().clone();
        let Some(gone) = gone.filter(|gone| gone.forget_at <= self.clock.now()) else {
            return Ok(());
        };
        self.machines.forget_closed(&self.clock, self.base, &gone, &self.volume.lost).await?;
        self.forgotten_closed.set(self.forgotten_closed.get() + 1);
        Ok(())
    }

    fn start(&self, device: &Offloaded) {
        if self.plan.loses {
            let gone = Rc::clone(&self.machines.gone);
            let (of, done) = (self.volume.clone(), Rc::clone(&self.forgotten));
            self.run(operate(self.clock.clone(), device.clone(), gone, of, done));
        }
        if self.plan.evacuates {
            let operator = Operator {
                clock: self.clock.clone(),
                volume: device.clone(),
                machines: Rc::clone(&self.machines),
                base: self.base,
                evacuated: self.volume.evacuated.clone(),
                rng: self.volume.rng.borrow_mut().split(),
                seen: Rc::clone(&self.seen),
            };
            self.run(operator.operate());
        }
        self.running.set(Some(self.plan.clients));
        for _ in 0..self.plan.clients {
            let (runtime, device) = (self.clock.clone(), device.clone());
            let world = World { runtime, device, volume: self.volume.clone() };
            let running = Rc::clone(&self.running);
            self.run(async move {
                let ended = world.client().await;
                running.set(running.get().map(|running| running - 1));
                ended
            });
        }
    }

    /// Runs somebody who says what went wrong.
    fn run(&self, work: impl Future<Output = Result<(), String>> + 'static) {
        let (problem, base) = (Rc::clone(&self.problem), self.base);
        self.clock.spawn(async move {
            if let Err(what) = work.await {
                problem.borrow_mut().get_or_insert(format!("volume {base}: {what}"));
            }
        });
    }
}
