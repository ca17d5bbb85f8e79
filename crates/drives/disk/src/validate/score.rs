//! Difference between measured and modelled service times.

use manylogs_block::Nanos;
use serde::Serialize;

use super::Compared;

/// Shares of the requests, in percent, at which service times are listed.
const QUANTILES: [f64; 10] = [1.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// Scores of measured against modelled service times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Score over all requests.
    #[serde(flatten)]
    pub all: Part,
    /// The reads among them.
    pub reads: Part,
    /// The writes among them.
    pub writes: Part,
    /// Correlation of modelled and measured service time, request by request.
    pub correlation: f64,
    /// Share of the requests whose service time is predicted to within 0.1 ms.
    pub within_100_us: f64,
    /// Mean error by seek distance, ten equal groups, nearest first.
    pub deciles: Vec<Decile>,
}

/// Score of one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Number of requests.
    pub requests: usize,
    /// Demerit figure (root mean square of the horizontal distance between the two distributions
    /// of service times), ms.
    pub demerit_rms_ms: f64,
    /// Mean of modelled minus measured service time, ms.
    pub mean_error_ms: f64,
    /// Service times by quantile.
    pub quantiles: Vec<Quantile>,
}

/// Service times that a share of the requests does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// Share of the requests.
    pub percent: f64,
    /// Value of the real drive.
    pub measured_ms: f64,
    /// Value of the model.
    pub modelled_ms: f64,
}

/// A tenth of the requests, by seek distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decile {
    /// Longest seek in the group, cylinders.
    pub distance_max: u32,
    /// Mean service time of the real drive.
    pub measured_ms: f64,
    /// Mean of modelled minus measured.
    pub mean_error_ms: f64,
}

impl Score {
    /// The score of `compared`.
    #[must_use]
    pub fn of(compared: &[Compared]) -> Self {
        let reads: Vec<Compared> = compared.iter().filter(|c| !c.write).copied().collect();
        let writes: Vec<Compared> = compared.iter().filter(|c| c.write).copied().collect();
        let close = compared.iter().filter(|c| error_ms(c).abs() <= 0.1).count();
        Self {
            all: Part::of(compared),
            reads: Part::of(&reads),
            writes: Part::of(&writes),
            correlation: correlation(compared),
            within_100_us: close as f64 / compared.len().max(1) as f64,
            deciles: deciles(compared),
        }
    }
}

impl Part {
    fn of(compared: &[Compared]) -> Self {
        Self {
            requests: compared.len(),
            demerit_rms_ms: demerit_ms(compared),
            mean_error_ms: mean(compared.iter().map(error_ms)),
            quantiles: quantiles(compared),
        }
    }
}

fn ms(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

fn error_ms(one: &Compared) -> f64 {
    ms(one.modelled) - ms(one.measured)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        (sum, count) = (sum + value, count + 1.0);
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

fn sorted_ms(compared: &[Compared], of: impl Fn(&Compared) -> Nanos) -> Vec<f64> {
    let mut values: Vec<f64> = compared.iter().map(|one| ms(of(one))).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// With equal counts the horizontal distance of two distributions is the distance of the sorted
/// values.
fn demerit_ms(compared: &[Compared]) -> f64 {
    let measured = sorted_ms(compared, |one| one.measured);
    let modelled = sorted_ms(compared, |one| one.modelled);
    mean(measured.iter().zip(&modelled).map(|(a, b)| (a - b) * (a - b))).sqrt()
}

fn correlation(compared: &[Compared]) -> f64 {
    let pairs = || compared.iter().map(|one| (ms(one.measured), ms(one.modelled)));
    let (mx, my) = (mean(pairs().map(|p| p.0)), mean(pairs().map(|p| p.1)));
    let covariance = mean(pairs().map(|(x, y)| (x - mx) * (y - my)));
    let deviation_x = mean(pairs().map(|(x, _)| (x - mx) * (x - mx))).sqrt();
    let deviation_y = mean(pairs().map(|(_, y)| (y - my) * (y - my))).sqrt();
    let product = deviation_x * deviation_y;
    if product > 0.0 { covariance / product } else { 0.0 }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
fn quantiles(compared: &[Compared]) -> Vec<Quantile> {
    let measured = sorted_ms(compared, |one| one.measured);
    let modelled = sorted_ms(compared, |one| one.modelled);
    let at = |values: &[f64], percent: f64| {
        let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    QUANTILES
        .map(|percent| Quantile {
            percent,
            measured_ms: at(&measured, percent),
            modelled_ms: at(&modelled, percent),
        })
        .to_vec()
}

fn deciles(compared: &[Compared]) -> Vec<Decile> {
    let mut by_distance = compared.to_vec();
    by_distance.sort_by_key(|one| one.distance);
    let decile = |group: &[Compared]| Decile {
        distance_max: group.last().map_or(0, |one| one.distance),
        measured_ms: mean(group.iter().map(|one| ms(one.measured))),
        mean_error_ms: mean(group.iter().map(error_ms)),
    };
    let size = compared.len().div_ceil(10).max(1);
    by_distance.chunks(size).map(decile).collect()
}
