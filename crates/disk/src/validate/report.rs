//! The whole validation of one drive, as `drive validate` shows it.

use serde::Serialize;

use super::{Chosen, Gates, Record, Score, gates, score};
use crate::mechanics::RandomTerms;
use crate::profile::Profile;

/// Validation of one drive.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the profile.
    pub drive: String,
    /// Which records were scored.
    pub records: &'static str,
    /// Score of the model.
    #[serde(flatten)]
    pub score: Score,
    /// Score with every random term switched off.
    pub physics_only: Score,
    /// Sustained rates and gain from queueing.
    pub gates: Gates,
    /// Checks of a profile and their results.
    pub bars: Vec<Bar>,
}

/// One figure and its limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Name of the figure.
    pub figure: &'static str,
    /// Its value.
    pub value: f64,
    /// Least value that passes.
    pub least: f64,
    /// Greatest value that passes.
    pub greatest: f64,
    /// Whether it passes.
    pub passed: bool,
}

impl Bar {
    fn new(figure: &'static str, value: f64, least: f64, greatest: f64) -> Self {
        Self { figure, value, least, greatest, passed: (least..=greatest).contains(&value) }
    }
}

/// Validates `profile` against `records`, of which the chosen ones count. The bars on rates are
/// those of the Cheetah, the drive that such records exist of.
#[must_use]
pub fn report(profile: &Profile, records: &[Record], chosen: Chosen, seed: u64) -> Report {
    let scored = score(profile, records, chosen, RandomTerms::ON, seed);
    let physics_only = score(profile, records, chosen, RandomTerms::OFF, seed);
    let gates = gates(profile, seed);
    let (outer, inner) = (gates.sequential_outer_mb_s, gates.sequential_inner_mb_s);
    let bars = vec![
        Bar::new("demerit_rms_ms", scored.all.demerit_rms_ms, 0.0, 0.30),
        Bar::new("physics_only.demerit_rms_ms", physics_only.all.demerit_rms_ms, 0.0, 0.34),
        Bar::new("correlation", scored.correlation, 0.41, 1.0),
        Bar::new("sequential_outer_mb_s", outer, 134.5 * 0.99, 134.5 * 1.01),
        Bar::new("sequential_inner_mb_s", inner, 80.7 * 0.99, 80.7 * 1.01),
    ];
    let records = match chosen {
        Chosen::All => "all",
        Chosen::Odd => "odd-numbered (the fit has seen them)",
        Chosen::Even => "even-numbered (the fit has not seen them)",
    };
    Report { drive: profile.name.clone(), records, score: scored, physics_only, gates, bars }
}
