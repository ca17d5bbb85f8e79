//! The commands by which a drive stops and starts.

use manylogs_block::{BlockDevice, IoError, Nanos, PowerCommand, PowerState};
use manylogs_plant::{self as plant, Bug};

use super::{Shared, Sleeper, State};
use crate::sleep::WakeCause;

/// How often a drive is told to start before requests go to it all the same.
const WAKES_TRIED: u32 = 3;
/// The time between two tries.
const WAKE_PAUSE: Nanos = Nanos::from_secs(1);
/// How often the rest of a drive is doubled that does not stop: to an hour from a minute.
const DOUBLED_MOST: u32 = 6;

impl Sleeper {
    /// How many times as long as others the drive must rest before it is told to stop: more and
    /// more if it does not.
    pub(in crate::sleep) fn rests_before_sleep(&self) -> u64 {
        1 << self.0.not_stopped.get().min(DOUBLED_MOST)
    }

    /// Stops the drive if it still shall sleep and nobody uses it. What it was given is on the
    /// medium before. A drive that does not stop is tried again later: only a flush that failed, or
    /// a drive that is gone, tells that something is wrong with it.
    pub(in crate::sleep) async fn sleep(&self) {
        if self.idle_since().is_none() || self.is_refused() || !self.0.is_drowsy.get() {
            return;
        }
        self.0.set(State::Stopping);
        let stopped = self.0.below.power(PowerCommand::Standby).await;
        match stopped {
            Ok(PowerState::Standby) => {
                self.0.not_stopped.set(0);
                self.0.asked.set(self.0.runtime.now());
                self.0.set(State::Standby);
            }
            Ok(_) => self.0.goes_on(),
            Err(error) => {
                self.0.is_refused.set(error == IoError::Unsupported);
                let is_bad = matches!(error, IoError::FlushFailed | IoError::Gone);
                self.0.failed.set(self.0.failed.get() || is_bad);
                self.0.goes_on();
            }
        }
    }

    /// Whether the drive was asked within the last `span`, or stopped then.
    pub(in crate::sleep) fn asked_since(&self, span: Nanos) -> bool {
        self.0.runtime.now().since(self.0.asked.get()) < span
    }

    /// Asks the drive whether it stands, as it should. If another program started it, that counts
    /// as a start.
    pub(in crate::sleep) async fn ask(&self) {
        if self.0.state.get() != State::Standby {
            return;
        }
        self.0.asked.set(self.0.runtime.now());
        let told = self.0.below.power(PowerCommand::Check).await;
        if told == Ok(PowerState::Awake) && self.0.state.get() == State::Standby {
            self.0.wakes.note(self.0.given, WakeCause::Other);
            self.0.set(State::Waking);
            self.0.set(State::Awake);
        }
    }

    /// Starts the drive at the opening of the chain, whatever state it was left in.
    pub(in crate::sleep) async fn begin(&self) {
        if plant::is(Bug::OpeningWakesNobody) {
            return;
        }
        if self.0.below.power(PowerCommand::Check).await == Ok(PowerState::Standby) {
            self.0.wakes.note(self.0.given, WakeCause::Open);
            self.0.set(State::Waking);
        }
        let started = self.0.wake_drive().await;
        self.0.is_refused.set(started == Err(IoError::Unsupported));
        self.0.set(State::Awake);
    }

    /// Starts the drive after `delay`, if nobody did so before.
    pub(crate) fn wake_later(&self, delay: Nanos, cause: WakeCause) {
        let (sleeper, starts) = (self.clone(), self.0.times.get().starts);
        self.0.runtime.spawn(async move {
            sleeper.0.runtime.sleep(delay).await;
            if sleeper.0.times.get().starts == starts {
                sleeper.wake(cause).await;
            }
        });
    }
}

impl Shared {
    /// Notes that the drive did not stop.
    fn goes_on(&self) {
        self.not_stopped.set(self.not_stopped.get().saturating_add(1));
        self.set(State::Awake);
    }

    /// Tells the drive to start, some times if it does not.
    pub(in crate::sleep) async fn wake_drive(&self) -> Result<PowerState, IoError> {
        let mut left = WAKES_TRIED;
        loop {
            let started = self.below.power(PowerCommand::Wake).await;
            left -= 1;
            let is_last = left == 0 || plant::is(Bug::WakeTriedOnce);
            if is_last || matches!(started, Ok(_) | Err(IoError::Unsupported | IoError::Gone)) {
                return started;
            }
            // It may have started all the same.
            if self.below.power(PowerCommand::Check).await == Ok(PowerState::Awake) {
                return Ok(PowerState::Awake);
            }
            self.runtime.sleep(WAKE_PAUSE).await;
        }
    }
}
