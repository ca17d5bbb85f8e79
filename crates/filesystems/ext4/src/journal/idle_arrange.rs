//! Arranging in idle time: what lies in the log in another order than that in which a walk of the
//! tree meets it is renewed in that order.
//!
//! That is done where metadata stays in the log for good ([`Ext4::max_age`] is off). With a bound,
//! metadata goes home in idle time anyway, sorted; and what is renewed would be young again, so
//! that homes became older than the bound.

use std::rc::Rc;

use manylogs_block::{Nanos, first_of};

use super::Journal;
use crate::error::Result;
use crate::metadata::Metadata;
use crate::ops::{Arranging, Ext4, Order, Pace};

/// Time between two looks at the order when nothing else is said.
pub(super) const USUAL: Nanos = Nanos::from_secs(24 * 3600);
/// Longest and shortest time without a request after which the device is idle. The shortest is also
/// the shortest time between two looks.
const IDLE: Nanos = Nanos::from_secs(10);
const IDLE_LEAST: Nanos = Nanos::from_millis(1);
/// Metadata is renewed if at least one block of so many costs a positioning.
const APART_ONE_OF: u64 = 4;
/// And if so many do at least.
const APART_LEAST: u64 = 8;

/// What arranging in idle time has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleArranged {
    /// Looks at the order that came to their end.
    pub looks: u64,
    /// Passes that renewed all that they met.
    pub passes: u64,
    /// Blocks that passes wrote to the journal anew.
    pub blocks: u64,
    /// Blocks in the journal that the last look met.
    pub met: u64,
    /// Of these, how many cost a positioning.
    pub apart: u64,
}

impl Ext4 {
    /// What arranging in idle time has done since the mount; `None` where it is not done.
    #[must_use]
    pub fn idle_arranged(&self) -> Option<IdleArranged> {
        let journal = &self.core.journal;
        let is_done = journal.sink.stays() && journal.max_age.get().is_none();
        let is_done = is_done && journal.arranges_every.get().is_some();
        is_done.then(|| journal.idle_arranged.get())
    }

    /// Sets how often, in idle time, metadata is arranged that lies in the journal in another order
    /// than that of a walk ([`Ext4::arrange`]); a day before this is called. It is done where
    /// metadata stays in the journal for good ([`Ext4::max_age`] is off). `None` is never; a
    /// millisecond is the least.
    ///
    /// A walk looks at the order first, a step at a time, and gives way to all requests. Blocks are
    /// renewed only if a quarter of them cost a positioning, and if a quarter of the journal holds
    /// them all. A crash changes no content.
    pub fn arrange_every(&self, span: Option<Nanos>) {
        self.core.journal.arranges_every.set(span);
        self.core.journal.aging.notify();
    }
}

impl Journal {
    fn note_idle(&self, note: impl FnOnce(&mut IdleArranged)) {
        let mut so_far = self.idle_arranged.get();
        note(&mut so_far);
        self.idle_arranged.set(so_far);
    }

    /// Counts requests that arranging made.
    pub(crate) fn note_arranging(&self, requests: u64) {
        self.arranging_requests.set(self.arranging_requests.get() + requests);
    }

    /// How often metadata is arranged in idle time; `None` where it is not, and when the file
    /// system closes.
    fn arranging_span(&self) -> Option<Nanos> {
        let is_done = self.max_age.get().is_none() && !self.closing.get();
        let span = self.arranges_every.get().filter(|_| is_done)?;
        Some(Nanos(span.0.max(IDLE_LEAST.0)))
    }

    /// Whether metadata is arranged in idle time, and the file system does not close.
    pub(crate) fn arranges_in_idle_time(&self) -> bool {
        self.arranging_span().is_some()
    }
}

impl Metadata {
    /// Waits until no request came for `first`, or else for `idle`. False, and at once, when
    /// metadata is not arranged in idle time any more, or the file system closes.
    pub(crate) async fn is_idle_soon(&self, first: Nanos, idle: Nanos) -> bool {
        let mut pause = first;
        loop {
            let requests = self.requests();
            if !self.sleep_before_arranging(pause).await {
                return false;
            }
            if self.requests() == requests {
                return true;
            }
            pause = idle;
        }
    }

    /// Sleeps so long, whatever is set meanwhile. False, and at once, as
    /// [`Metadata::is_idle_soon`].
    async fn sleep_before_arranging(&self, span: Nanos) -> bool {
        let end = self.runtime.now() + span;
        loop {
            // The wait comes first: what changes after the question ends it.
            let change = self.journal.aging.wait();
            if !self.journal.arranges_in_idle_time() {
                return false;
            }
            if self.runtime.now() >= end {
                return true;
            }
            first_of(change, self.runtime.sleep_until(end)).await;
        }
    }

    /// Arranges metadata in idle time, as long as the file system is mounted. The time to the first
    /// look counts from the mount.
    pub(super) async fn arrange_forever(self: Rc<Self>) {
        let (mut looked_at, mut since) = (None, self.runtime.now());
        while self.journal.is_sound() {
            let change = self.journal.aging.wait();
            if self.journal.closing.get() {
                return;
            }
            let Some(span) = self.journal.arranging_span() else {
                change.await;
                continue;
            };
            if self.runtime.now() < since + span {
                first_of(change, self.runtime.sleep_until(since + span)).await;
                continue;
            }
            // Nothing lies elsewhere if nothing was logged.
            if looked_at != Some(self.journal.sink.stats().log_bytes) {
                let idle = Nanos((span.0 / 4).clamp(IDLE_LEAST.0, IDLE.0));
                if !self.is_idle_soon(idle, idle).await {
                    continue;
                }
                // Whoever asks for damaged blocks hears of them; a failed journal ends the loop.
                drop(self.arrange_if_it_gains(Pace::Meanwhile { idle }).await);
                looked_at = Some(self.journal.sink.stats().log_bytes);
            }
            since = self.runtime.now();
        }
    }

    async fn arrange_if_it_gains(&self, pace: Pace) -> Result<()> {
        let Some(Order { met, apart, .. }) = Arranging::looking(self, pace).await? else {
            return Ok(());
        };
        self.journal.note_idle(|so_far| so_far.looks += 1);
        self.journal.note_idle(|so_far| (so_far.met, so_far.apart) = (met, apart));
        let gains = apart >= APART_LEAST && apart * APART_ONE_OF >= met;
        // The other half of what an operator may arrange is left to what comes in meanwhile.
        let most = self.journal.sink.arranges().map_or(0, |most| most / 2);
        if !gains || met > most {
            return Ok(());
        }
        let done = Arranging::renewing(self, pace, most).await?;
        self.journal.note_idle(|so_far| {
            so_far.passes += u64::from(done.is_whole);
            so_far.blocks += done.blocks;
        });
        Ok(())
    }
}
