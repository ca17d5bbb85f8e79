//! The power of a drive: standby by command, and how long it was in which state.

use std::fmt;

use crate::Nanos;

/// A command about the spindle, after ATA and SCSI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCommand {
    /// Tells the state and changes nothing (ATA CHECK POWER MODE, SCSI REQUEST SENSE). A drive that
    /// sleeps is not woken.
    Check,
    /// Writes what is in the drive's cache to the medium and stops the spindle (ATA STANDBY
    /// IMMEDIATE, SCSI START STOP UNIT).
    Standby,
    /// Starts the spindle. The answer comes when the drive can read and write.
    Wake,
}

/// What the spindle does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    /// It turns: requests are carried out at once.
    #[default]
    Awake,
    /// It starts: requests wait.
    SpinningUp,
    /// It stands. A request starts it and waits.
    Standby,
}

impl PowerState {
    /// The state in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::SpinningUp => "spinning up",
            Self::Standby => "standby",
        }
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a drive was in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerTimes {
    /// Time at work.
    pub active: Nanos,
    /// Time without work, the spindle turning.
    pub idle: Nanos,
    /// Time in which the spindle started.
    pub spin_up: Nanos,
    /// Time in standby.
    pub standby: Nanos,
    /// How often the spindle started.
    pub starts: u64,
}

impl PowerTimes {
    /// All of the time.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.active + self.idle + self.spin_up + self.standby
    }

    /// The times since `earlier`, which was told by the same drive.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: Nanos, then: Nanos| Nanos(now.0.saturating_sub(then.0));
        Self {
            active: less(self.active, earlier.active),
            idle: less(self.idle, earlier.idle),
            spin_up: less(self.spin_up, earlier.spin_up),
            standby: less(self.standby, earlier.standby),
            starts: self.starts.saturating_sub(earlier.starts),
        }
    }
}
