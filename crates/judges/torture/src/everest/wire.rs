//! The link between a client and a store: messages are lost, doubled or late, and overtake one
//! another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, Sectors, Signal};
use manylogs_everest::{Answer, Ask, Call, Lender, LenderError, Lending, Load, Reply, StoreId};

use super::plan::NetPlan;

/// The longest delay of late messages.
const LATE: Nanos = Nanos::from_secs(4);

/// What a store's machine runs now; nothing if it is down.
#[derive(Clone, Default)]
pub(super) struct Serving(Rc<RefCell<Option<(Handle, Lending)>>>);

impl Serving {
    pub(super) fn set(&self, what: Option<(Handle, Lending)>) {
        self.0.replace(what);
    }

    pub(super) fn get(&self) -> Option<(Handle, Lending)> {
        self.0.borrow().clone()
    }

    /// Name of the store, and its longest write. The store must be up.
    pub(super) fn identity(&self) -> (StoreId, Sectors) {
        let serving = self.0.borrow();
        let known = |(_, lending): &(Handle, Lending)| (lending.id(), lending.longest_write());
        serving.as_ref().map(known).unwrap_or_default()
    }

    pub(super) fn is_up(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// A link. Clones are the same link.
#[derive(Clone)]
pub(super) struct Wire(Rc<State>);

struct State {
    net: Handle,
    plan: NetPlan,
    rng: RefCell<Rng>,
    id: StoreId,
    longest: Sectors,
    serving: Serving,
    /// Whether messages to the store are lost, and those back.
    cut: Cell<[bool; 2]>,
    /// Calls on their way to the store.
    under_way: RefCell<BTreeMap<u64, Call>>,
    sent: Cell<u64>,
    progress: Signal,
    /// Whether the store takes no more writes of this base volume.
    barred: Cell<bool>,
    /// What went wrong in this world.
    problem: Rc<RefCell<Option<String>>>,
}

/// An answer: the first of several counts.
#[derive(Clone, Default)]
struct First(Rc<RefCell<Option<Result<Reply, LenderError>>>>, Signal);

impl First {
    fn answer(&self, result: Result<Reply, LenderError>) {
        self.0.borrow_mut().get_or_insert(result);
        self.1.notify();
    }
}

impl Wire {
    pub(super) fn new(
        net: Handle,
        plan: NetPlan,
        rng: Rng,
        id: StoreId,
        longest: Sectors,
        (serving, problem): (Serving, Rc<RefCell<Option<String>>>),
    ) -> Self {
        Self(Rc::new(State {
            net,
            plan,
            rng: RefCell::new(rng),
            id,
            longest,
            serving,
            cut: Cell::default(),
            under_way: RefCell::default(),
            sent: Cell::default(),
            progress: Signal::default(),
            barred: Cell::default(),
            problem,
        }))
    }

    /// From now on the store may get no writes, or may again.
    pub(super) fn bar(&self, barred: bool) {
        self.0.barred.set(barred);
    }

    pub(super) fn set_cut(&self, cut: [bool; 2]) {
        self.0.cut.set(cut);
        self.0.progress.notify();
    }

    /// Calls that may still arrive.
    pub(super) fn under_way(&self) -> Vec<Call> {
        self.0.under_way.borrow().values().cloned().collect()
    }

    /// The time that a message takes; `None` if it is lost.
    fn delay(&self) -> Option<Nanos> {
        let (mut rng, plan) = (self.0.rng.borrow_mut(), self.0.plan);
        if rng.one_in(plan.lost) {
            return None;
        }
        let most = if rng.one_in(plan.late) { LATE } else { plan.delay_max };
        Some(Nanos(1 + rng.below(most.0)))
    }

    /// Carries one message to the store, and the answer back.
    async fn carry(self, number: u64, call: Call, first: First) {
        let there = self.delay();
        if let Some(there) = there {
            self.0.net.sleep(there).await;
        }
        self.0.under_way.borrow_mut().remove(&number);
        if there.is_none() || self.0.cut.get()[0] {
            return;
        }
        let Some((machine, lending)) = self.0.serving.get() else { return };
        let (wire, served) = (self.clone(), lending.call(call));
        machine.spawn(async move {
            let answer = served.await;
            let Some(back) = wire.delay() else { return };
            let net = wire.0.net.clone();
            net.spawn(async move {
                wire.0.net.sleep(back).await;
                if answer != Err(LenderError::Repeated) && !wire.0.cut.get()[1] {
                    first.answer(answer);
                    wire.0.progress.notify();
                }
            });
        });
    }
}

impl Lender for Wire {
    fn id(&self) -> StoreId {
        self.0.id
    }

    fn longest_write(&self) -> Sectors {
        self.0.longest
    }

    fn call(&self, call: Call) -> Answer<Reply> {
        if self.0.barred.get() && matches!(call.ask, Ask::Write { .. }) {
            let wrong = || "a write goes to a store that was evacuated".to_owned();
            self.0.problem.borrow_mut().get_or_insert_with(wrong);
        }
        let first = First::default();
        let copies = 1 + u64::from(self.0.rng.borrow_mut().one_in(self.0.plan.doubled));
        for _ in 0..copies {
            let number = self.0.sent.get();
            self.0.sent.set(number + 1);
            self.0.under_way.borrow_mut().insert(number, call.clone());
            self.0.net.spawn(self.clone().carry(number, call.clone(), first.clone()));
        }
        let (late, net, timeout) = (first.clone(), self.0.net.clone(), self.0.plan.timeout);
        self.0.net.spawn(async move {
            net.sleep(timeout).await;
            late.answer(Err(LenderError::Unreachable));
        });
        Box::pin(async move {
            loop {
                let answered = first.1.wait();
                if let Some(answer) = first.0.borrow_mut().take() {
                    return answer;
                }
                answered.await;
            }
        })
    }

    fn load(&self) -> Load {
        let in_flight = self.0.under_way.borrow().len() as u64;
        Load { in_flight, wait: Nanos(1000 * in_flight) }
    }

    fn progress(&self) -> &Signal {
        &self.0.progress
    }
}
