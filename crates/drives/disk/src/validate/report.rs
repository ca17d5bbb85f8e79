//! The whole validation of one drive, as `drive validate` shows it.

use serde::Serialize;

use super::gates::random_read_iops;
use super::{Chosen, Gates, Record, Score, gates, score};
use crate::mechanics::RandomTerms;
use crate::profile::Profile;

/// How far a sustained rate may be from the published one, as a share.
const RATES_SHARE: f64 = 0.01;
/// How far the rate of random reads with a queue may be from the published one, as a share.
const READS_SHARE: f64 = 0.10;
/// Greatest demerit figure, ms, where the profile has none: the one that DiskSim reaches on the
/// Cheetah 15K.5.
const DEMERIT_MS: f64 = 0.30;

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

/// Validates `profile` against the chosen ones of `records`, and against its bars.
#[must_use]
pub fn report(profile: &Profile, records: &[Record], chosen: Chosen, seed: u64) -> Report {
    let scored = score(profile, records, chosen, RandomTerms::ON, seed);
    let physics_only = score(profile, records, chosen, RandomTerms::OFF, seed);
    let gates = gates(profile, seed);
    let mut bars = recorded_bars(profile, &scored, &physics_only);
    bars.extend(own_bars(profile, &gates, seed));
    let records = match chosen {
        Chosen::All => "all",
        Chosen::Odd => "odd-numbered (the fit has seen them)",
        Chosen::Even => "even-numbered (the fit has not seen them)",
    };
    Report { drive: profile.name.clone(), records, score: scored, physics_only, gates, bars }
}

/// The bars of `profile` that need a recording. If the profile has none, the model may be as far
/// off as other models of drives are.
#[must_use]
pub fn recorded_bars(profile: &Profile, scored: &Score, physics_only: &Score) -> Vec<Bar> {
    let bars = &profile.bars;
    let demerit = bars.demerit_ms.unwrap_or(DEMERIT_MS);
    let mut found = vec![Bar::new("demerit_rms_ms", scored.all.demerit_rms_ms, 0.0, demerit)];
    if let Some(most) = bars.physics_demerit_ms {
        let value = physics_only.all.demerit_rms_ms;
        found.push(Bar::new("physics_only.demerit_rms_ms", value, 0.0, most));
    }
    if let Some(least) = bars.correlation {
        found.push(Bar::new("correlation", scored.correlation, least, 1.0));
    }
    found
}

/// The bars of `profile` that need no recording: sustained rates, and random reads at the depths
/// that its sheet names.
#[must_use]
pub fn own_bars(profile: &Profile, gates: &Gates, seed: u64) -> Vec<Bar> {
    let bars = &profile.bars;
    let rates = [
        ("sequential_outer_mb_s", gates.sequential_outer_mb_s, bars.outer_mb_s),
        ("sequential_inner_mb_s", gates.sequential_inner_mb_s, bars.inner_mb_s),
    ];
    let around = |figure, value, told: f64, share| {
        Bar::new(figure, value, told * (1.0 - share), told * (1.0 + share))
    };
    let mut found: Vec<Bar> = rates
        .into_iter()
        .filter_map(|(figure, value, told)| Some(around(figure, value, told?, RATES_SHARE)))
        .collect();
    for &(depth, told) in &bars.random_reads {
        let value = random_read_iops(profile, seed, depth);
        let figure = match depth {
            1 => "random_read_iops_depth_1",
            4 => "random_read_iops_depth_4",
            16 => "random_read_iops_depth_16",
            32 => "random_read_iops_depth_32",
            _ => "random_read_iops",
        };
        found.push(around(figure, value, told, READS_SHARE));
    }
    found
}
