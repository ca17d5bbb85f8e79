//! Measurements of a replay: latencies, latencies over time, and positions of the head.
//!
//! Everything here is bounded in memory, whatever the length of the run, and costs a few
//! nanoseconds a request.

mod gain;
mod latency;
mod sample;
mod series;
mod window;

pub use gain::{Finding, Gain, Interval, REQUESTS_MIN, WINDOWS_MIN, compare};
pub use latency::{Latencies, LatencySummary, PERCENTILES, Percentile, Total, round3};
pub use sample::Thinned;
pub use series::{Series, SeriesBin};
pub use window::{Sample, StreamMeter, StreamMoved, WINDOWS, Window, bucket_ns};
