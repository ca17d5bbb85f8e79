//! Records: entries that wait share one, and records follow one another at the head of the ring.

use std::rc::Rc;

use manylogs_block::Request;
use manylogs_logstore::store::Choice;
use manylogs_logstore::{AppendSlot, Log, LogId, RecordSequence};

use crate::ring::Ring;
use crate::store::{Inner, State};

/// Records in flight at most.
const IN_FLIGHT: usize = 8;

/// Next step of the committer.
#[allow(clippy::large_enum_variant, reason = "one at a time, on its way to the device")]
enum Step {
    Append(LogId, RecordSequence, AppendSlot),
    /// The log must begin its epoch before it takes entries.
    Begin(LogId),
}

impl Inner {
    pub(crate) async fn run_committer(self: Rc<Self>) {
        loop {
            let signal = self.commit.wait();
            while let Some(step) = self.next_step() {
                match step {
                    Step::Append(log, sequence, slot) => {
                        self.runtime.spawn(Rc::clone(&self).write(log, sequence, slot));
                    }
                    Step::Begin(log) => self.begin(log).await,
                }
            }
            if self.closed.get() {
                return;
            }
            signal.await;
        }
    }

    fn next_step(&self) -> Option<Step> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.store.read_only.is_some() || state.store.entries.records.len() >= IN_FLIGHT {
            return None;
        }
        match state.store.choose_log(&Ring { head: state.head })? {
            Choice::Log { log, .. } => {
                state.advance(log);
                let slots = state.store.gather(log, self.record);
                let (sequence, slot) = state.store.append(log, slots);
                Some(Step::Append(log, sequence, slot))
            }
            Choice::Open(log) => Some(Step::Begin(log)),
            Choice::Wait => None,
            Choice::Nowhere => {
                state.store.fail("no log accepts records any more");
                self.progress.notify();
                None
            }
        }
    }

    /// Makes the begin of an epoch durable, so that entries may follow.
    async fn begin(self: &Rc<Self>, log: LogId) {
        let begun = self.state.borrow_mut().store.begin_epoch(log);
        if let Some((sequence, slot)) = begun {
            Rc::clone(self).write(log, sequence, slot).await;
        }
    }

    async fn write(self: Rc<Self>, log: LogId, sequence: RecordSequence, slot: AppendSlot) {
        let device = self.state.borrow().store.logs.device(log);
        let device = &self.devices[usize::from(device.0)];
        let written = device.submit(Request::write_fua(slot.target, slot.payload)).await;
        {
            let mut state = self.state.borrow_mut();
            let store = &mut state.store;
            match written {
                Ok(_) => store.record_written(log, sequence),
                Err(error) => {
                    store.record_failed(log, sequence);
                    if !error.is_local() {
                        store.fail_for(&error, "records cannot be written");
                    }
                }
            }
        }
        self.progress.notify();
        self.commit.notify();
        self.wanted.notify();
    }
}

impl State {
    /// Moves the head to `log`. The rest of the log before it stays unused.
    fn advance(&mut self, log: LogId) {
        if log != self.head {
            let blank = crate::ring::is_blank(&self.store.logs, self.head);
            if !blank {
                self.store.logs.with(self.head, Log::seal);
            }
            self.head = log;
        }
    }
}
