//! One history: clients on one disk, and forks at its events.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::Rng;
use manylogs_sim::DiskImage;

use crate::client::Client;
use crate::common::{SMALL_MIB, World, mount};
use crate::judge;
use crate::model::Model;

/// What a history does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) steps: u64,
    /// One event in so many is a crash.
    pub(crate) fork_every: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) states: u64,
    pub(crate) nested: u64,
}

impl Plan {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clients = 1 + manylogs_block::to_usize(rng.below(3));
        // Long ones fill the log.
        let longer = if rng.one_in(4) { 8 } else { 1 };
        let steps = longer * (20 + rng.below(100));
        Self { seed, clients, steps, fork_every: longer * (10 + rng.below(40)) }
    }
}

/// Runs the history of `plan` on `image`.
///
/// # Errors
/// What did not hold.
pub(crate) fn run(plan: &Plan, image: &DiskImage) -> Result<Report, String> {
    let world = World::new(plan.seed, SMALL_MIB, image.clone());
    let models: Vec<_> = (0..plan.clients).map(|_| Rc::new(RefCell::new(Model::new()))).collect();
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let problem = Rc::new(RefCell::new(None));
    let running = Rc::new(Cell::new(plan.clients));
    let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
    let start = Start {
        runtime: world.runtime(),
        models: models.clone(),
        problem: Rc::clone(&problem),
        running: Rc::clone(&running),
        plan: *plan,
    };
    let noted = Rc::clone(&problem);
    world.sim.handle(world.user).spawn(async move {
        match mounting.await {
            Ok(fs) => start.clients(&fs),
            Err(error) => *noted.borrow_mut() = Some(format!("mount: {error}")),
        }
    });
    let (mut report, mut wrong, mut seen, mut steps) = (Report::default(), None, 0, 0_u64);
    world.sim.run_until(|| {
        steps += 1;
        let events = world.disk.events();
        if events != seen {
            seen = events;
            if rng.one_in(plan.fork_every)
                && let Err(problem) = fork(&world, &models, &mut rng, &mut report)
            {
                wrong = Some(format!("event {events}: {problem}"));
            }
        }
        let hangs = steps > 4_000_000;
        if hangs {
            wrong.get_or_insert_with(|| "the clients hang".to_owned());
        }
        wrong.is_some() || problem.borrow().is_some() || running.get() == 0
    });
    match wrong.or_else(|| problem.borrow_mut().take()) {
        Some(problem) => Err(problem),
        None if running.get() > 0 => Err("the clients wait for ever".to_owned()),
        None => Ok(report),
    }
}

/// What is needed to set the clients to work.
struct Start {
    runtime: manylogs_block::Handle,
    models: Vec<Rc<RefCell<Model>>>,
    problem: Rc<RefCell<Option<String>>>,
    running: Rc<Cell<usize>>,
    plan: Plan,
}

impl Start {
    fn clients(self, fs: &manylogs_ext4::Ext4) {
        for (number, model) in self.models.iter().enumerate() {
            let client = Client {
                fs: fs.clone(),
                runtime: self.runtime.clone(),
                name: format!("client {number}").into_bytes(),
                model: Rc::clone(model),
                rng: RefCell::new(Rng::new(self.plan.seed + 1000 * number as u64)),
                next: Cell::new(number as u64 * 1_000_000),
                open: Cell::new(None),
            };
            let (problem, running) = (Rc::clone(&self.problem), Rc::clone(&self.running));
            let steps = self.plan.steps;
            self.runtime.spawn(async move {
                if let Err(error) = client.run(steps).await {
                    *problem.borrow_mut() = Some(format!("client {number}: {error}"));
                }
                running.set(running.get() - 1);
            });
        }
    }
}

fn fork(
    world: &World,
    models: &[Rc<RefCell<Model>>],
    rng: &mut Rng,
    report: &mut Report,
) -> Result<(), String> {
    let models: Vec<Model> = models.iter().map(|model| model.borrow().clone()).collect();
    let mut image = world.disk.after_power_cut(judge::survival(rng), rng);
    while rng.one_in(4) {
        image = judge::crash_in_recovery(&image, rng);
        report.nested += 1;
    }
    report.states += 1;
    if rng.one_in(3) {
        judge::by_e2fsck(&image, &models, rng.next_u64())
    } else {
        judge::by_ourselves(&image, &models, rng.next_u64())
    }
}
