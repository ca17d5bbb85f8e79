//! Status of the scheduler of a volume's device.

use serde::{Deserialize, Serialize};

/// How long requests to the device waited for one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStatus {
    /// `record`, or `room` in the device: see [`manylogs::Cause`].
    pub cause: String,
    /// Total time waited.
    pub waited_ns: u64,
}

/// Requests to the device of one class, and how they were held back while records were expected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStatus {
    /// record, small, stream or background.
    pub class: String,
    /// Requests that went while records were expected, and those of them that were held back.
    pub requests: u64,
    /// See `requests`.
    pub held: u64,
    /// Total and longest time for which requests were held back.
    pub held_ns: u64,
    /// See `held_ns`.
    pub held_max_ns: u64,
    /// Requests that are waiting now.
    pub waiting: u64,
}

impl TurnStatus {
    /// The mean wait of requests that were held back; zero if none were.
    #[must_use]
    pub fn held_mean_s(&self) -> f64 {
        self.held_ns as f64 / 1e9 / self.held.max(1) as f64
    }
}
