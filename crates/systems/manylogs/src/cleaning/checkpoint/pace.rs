//! Controls the speed of a checkpoint, and whether it may continue.

use std::rc::Rc;

use manylogs_block::{Nanos, Sectors, Time};
use manylogs_engine::System;
use manylogs_plant::{self as plant, Bug};

use super::ration::Ration;
use super::{AT_ONCE_PRESSED, Pace, Pass};
use crate::error::VolumeError;
use crate::state::{Inner, State};

/// A waiting pass checks at least this often whether it should hurry or end.
const LOOK: Nanos = Nanos::from_millis(500);
impl State {
    /// Whether a checkpoint must go as fast as it can: writes wait for room, or soon will.
    pub(crate) fn is_pressed(&self, watermark: f64) -> bool {
        let crowded = self.store.is_table_crowded();
        // A pass frees no kept versions, so their share does not count.
        let others = self.store.logs().occupancy() - self.pinned_share;
        let full = others / (1.0 - self.pinned_share) >= watermark;
        !self.starved.is_empty() || crowded || full
    }
}

impl Inner {
    /// The present pace of the pass, which is urgent if requests have begun to wait for it.
    fn pace_now(&self, pass: Pass) -> Pace {
        let pressed = self.engine.state.borrow().is_pressed(self.config().watermark);
        if pressed || self.cleaning.is_wanted() { Pace::Urgent } else { pass.pace }
    }

    /// Gives out room in proportion to the progress of the pass, once the pass must hurry. `found`
    /// versions are done, and a batch of `batch` versions begins.
    pub(super) fn give_out_room(&self, pass: Pass, found: u64, batch: u64) {
        let pressed = self.pace_now(pass) == Pace::Urgent;
        let now = self.engine.runtime.now();
        let mut guard = self.engine.state.borrow_mut();
        let state = &mut *guard;
        if state.ration.is_none() && pressed {
            let room = Sectors(state.store.logs().room());
            let versions = (state.store.map().len() as u64).saturating_sub(found);
            state.ration = Some(Ration::new(room, versions, state.home_pace, now));
        }
        let Some(ration) = &mut state.ration else { return };
        ration.next_batch(batch, now);
        state.home_pace = ration.pace();
        drop(guard);
        self.offer_room();
    }

    /// Number of reads, or writes, of a batch that may be in the device together.
    pub(super) fn at_once(&self) -> usize {
        if self.engine.state.borrow().ration.is_some() { AT_ONCE_PRESSED } else { usize::MAX }
    }

    /// Whether the pass may go on.
    ///
    /// # Errors
    /// If the volume takes no more writes, or is being closed.
    pub(super) fn may_go_on(&self, pass: Pass) -> Result<(), VolumeError> {
        let state = self.engine.state.borrow();
        state.store.writable()?;
        if state.closing && !pass.materialise {
            return Err(VolumeError::Closed);
        }
        Ok(())
    }

    /// Waits until the volume is idle, if the pass is gentle.
    ///
    /// # Errors
    /// As [`Inner::may_go_on`].
    pub(super) async fn yield_to_clients(self: &Rc<Self>, pass: Pass) -> Result<(), VolumeError> {
        loop {
            self.may_go_on(pass)?;
            if self.pace_now(pass) != Pace::Gentle || self.is_idle() {
                return Ok(());
            }
            let wanted = self.engine.wanted.wait();
            self.engine.runtime.within(Nanos(self.config().idle.0.clamp(1, LOOK.0)), wanted).await;
        }
    }

    /// Waits until `moved` sectors since `started` are within the rate limit, unless the pass must
    /// hurry meanwhile.
    ///
    /// # Errors
    /// As [`Inner::may_go_on`].
    pub(super) async fn limit_rate(
        self: &Rc<Self>,
        pass: Pass,
        started: Time,
        moved: Sectors,
    ) -> Result<(), VolumeError> {
        loop {
            self.may_go_on(pass)?;
            // The limit may change while this waits.
            let rate = self.config().checkpoint_rate;
            let hurried = self.pace_now(pass) == Pace::Urgent && !plant::is(Bug::RateNotHurried);
            if rate == 0 || hurried {
                return Ok(());
            }
            let due = started + Nanos::from_secs_f64(moved.bytes() as f64 / rate as f64);
            let now = self.engine.runtime.now();
            if now >= due {
                return Ok(());
            }
            let wanted = self.engine.wanted.wait();
            self.engine.runtime.within(Nanos(due.since(now).0.min(LOOK.0)), wanted).await;
        }
    }
}
