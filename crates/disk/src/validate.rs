//! The model against a real drive: replays measured requests and scores the service times.

pub mod trace;

pub use trace::{Record, TraceError, parse_trace, read_trace};
