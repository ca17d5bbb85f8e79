//! The status of an emulated drive.

use manylogs_block::Nanos;
use manylogs_disk::EmulatedDrive;

use crate::status::{EmulationStatus, Lateness};

/// A drive that a server emulates.
#[derive(Clone, Debug)]
pub struct Emulated {
    /// The drive, which measures its lateness.
    pub drive: EmulatedDrive,
    /// Its name.
    pub name: String,
}

/// The status of the drive: how late it was so far.
pub(crate) fn status(emulated: &Emulated) -> EmulationStatus {
    let report = emulated.drive.lateness();
    let micros = |time: Nanos| time.0 as f64 / 1e3;
    let figures = |figures: manylogs_disk::lateness::LatenessFigures| Lateness {
        requests: figures.requests,
        p50_us: micros(figures.p50),
        p99_us: micros(figures.p99),
        max_us: micros(figures.max),
    };
    EmulationStatus {
        drive: emulated.name.clone(),
        void: report.is_void(),
        lateness: figures(report.all),
        by_timer: figures(report.by_timer),
        by_content: figures(report.by_content),
    }
}
