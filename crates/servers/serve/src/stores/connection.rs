//! A connection to a store that is in use, and the calls on it that wait for their answers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Signal, Time};
use manylogs_everest::{LenderError, Reply};
use manylogs_plant::{self as plant, Bug};

use super::frames::Line;

/// A store that sends nothing for so long is taken as gone; it sends its load more often than this.
pub(super) const SILENCE: Nanos = Nanos::from_millis(1500);
/// A call that takes longer ends the connection; its outcome is learned on the next connection.
const CALL_MAX: Nanos = Nanos::from_secs(30);
/// Interval at which silence and late answers are checked.
const WATCH: Nanos = Nanos::from_millis(100);

/// A connection in use.
pub(super) struct Connection {
    pub(super) line: Rc<Line>,
    pub(super) calls: RefCell<BTreeMap<u64, Waiting>>,
    pub(super) sent: Cell<u64>,
    pub(super) heard: Cell<Time>,
}

/// A call that waits for its answer.
#[derive(Clone)]
pub(super) struct Waiting(Rc<Slot>);

struct Slot {
    answer: RefCell<Option<Result<Reply, LenderError>>>,
    answered: Signal,
    since: Time,
}

impl Waiting {
    /// A call that is sent now.
    pub(super) fn since(since: Time) -> Self {
        Self(Rc::new(Slot { answer: RefCell::default(), answered: Signal::default(), since }))
    }

    /// The answer, when it comes.
    pub(super) async fn wait(&self) -> Result<Reply, LenderError> {
        loop {
            let answered = self.0.answered.wait();
            if let Some(answer) = self.0.answer.borrow_mut().take() {
                return answer;
            }
            answered.await;
        }
    }

    /// Answers the call.
    pub(super) fn answer(&self, answer: Result<Reply, LenderError>) {
        *self.0.answer.borrow_mut() = Some(answer);
        self.0.answered.notify();
    }
}

impl Connection {
    /// For how long nothing was heard of the store.
    pub(super) fn silence(&self, now: Time) -> Nanos {
        now.since(self.heard.get())
    }

    /// Ends the connection if the store is silent or a call is not answered in time.
    pub(super) async fn watch(&self, runtime: &Handle) {
        while !self.line.is_over() {
            runtime.sleep(WATCH).await;
            let now = runtime.now();
            let oldest = self.calls.borrow().values().next().map(|call| call.0.since);
            let late = oldest.is_some_and(|since| now.since(since) > CALL_MAX);
            let silent = self.silence(now) > SILENCE && !plant::is(Bug::SilenceUnnoticed);
            if silent || late {
                self.line.end();
            }
        }
    }
}
