//! Compares the model with a real drive: replays measured requests and scores the service times.
//!
//! The whole recording is replayed in a closed loop: each request is issued the recorded think time
//! after the *modelled* completion of the one before. So head position and rotation carry over as
//! they did in the drive. The score is Ruemmler and Wilkes' demerit figure.

mod gates;
mod report;
mod score;
pub mod trace;

use manylogs_block::{Nanos, Time};

use crate::command::{Command, CommandKind, Event};
use crate::drive::{Drive, Options};
use crate::mechanics::RandomTerms;
use crate::profile::Profile;

pub(crate) use gates::elapsed;
pub use gates::{Gates, gates, random_read_iops};
pub use report::{Bar, Report, own_bars, recorded_bars, report};
pub use score::{Decile, Part, Quantile, Score};
pub use trace::{Record, TraceError, parse_trace, read_trace};

/// Which records to score; all are replayed in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Every record.
    All,
    /// Records 1, 3, 5, ...: the profile was fitted to them.
    Odd,
    /// Records 2, 4, 6, ...: the fit has not used them.
    Even,
}

impl Chosen {
    /// Whether the record at `index` (from zero) is chosen.
    #[must_use]
    pub const fn holds(self, index: usize) -> bool {
        match self {
            Self::All => true,
            Self::Odd => index.is_multiple_of(2),
            Self::Even => !index.is_multiple_of(2),
        }
    }
}

/// One request with its measured and its modelled service time.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Whether the request wrote.
    pub write: bool,
    /// Cylinders between the end of the request before and its start.
    pub distance: u32,
    /// The drive's service time.
    pub measured: Nanos,
    /// The model's service time.
    pub modelled: Nanos,
}

/// Replays `records` against the bare drive (no caches, one command at a time).
#[must_use]
pub fn replay(
    profile: &Profile,
    records: &[Record],
    terms: RandomTerms,
    seed: u64,
) -> Vec<Compared> {
    let mut drive = Drive::new(profile, &Options { terms, seed, ..Options::bare(profile) });
    let mut now = Time(0);
    let mut compared = Vec::with_capacity(records.len());
    for record in records {
        let target = drive.mechanism().geometry().locate(record.extent.start);
        let distance = drive.position().cylinder.abs_diff(target.cylinder);
        let completed = serve(&mut drive, now, record);
        compared.push(Compared {
            write: record.write,
            distance,
            measured: record.service,
            modelled: completed.since(now),
        });
        now = completed + record.think;
    }
    compared
}

/// Time at which an otherwise idle drive completes `record`, issued at `now`.
fn serve(drive: &mut Drive, now: Time, record: &Record) -> Time {
    let kind = if record.write { CommandKind::Write { fua: false } } else { CommandKind::Read };
    let command = Command { tag: 0, kind, extent: record.extent };
    let mut completed = now;
    if drive.submit(now, command).is_err() {
        return now;
    }
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                completed = completion.at;
            }
        });
    }
    completed
}

/// Replays `records` and scores the chosen ones.
#[must_use]
pub fn score(
    profile: &Profile,
    records: &[Record],
    chosen: Chosen,
    terms: RandomTerms,
    seed: u64,
) -> Score {
    let compared = replay(profile, records, terms, seed);
    let of_choice = compared.iter().enumerate().filter(|(index, _)| chosen.holds(*index));
    let chosen: Vec<Compared> = of_choice.map(|(_, one)| *one).collect();
    Score::of(&chosen)
}

#[cfg(test)]
mod tests;
