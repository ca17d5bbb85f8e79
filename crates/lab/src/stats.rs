//! What a replay measures: latencies, their course over time, and where the head was.
//!
//! Everything here is bounded in memory, whatever the length of the run, and costs a few
//! nanoseconds a request.

mod latency;
mod sample;
mod series;

pub use latency::{Latencies, LatencySummary, PERCENTILES, Percentile, round3};
pub use sample::Thinned;
pub use series::{Series, SeriesBin};
