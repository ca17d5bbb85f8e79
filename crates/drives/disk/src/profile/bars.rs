//! Figures that the modelled drive is held against: see [`crate::validate`].

use serde::{Deserialize, Serialize};

use super::Sources;

/// What is published or measured of the whole drive, not of its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Sustained rate at the first address, MB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outer_mb_s: Option<f64>,
    /// Sustained rate at the last address, MB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_mb_s: Option<f64>,
    /// Random reads of 4 KiB: depth of the queue, reads a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub random_reads: Vec<(u32, f64)>,
    /// With a recording: the most that the service times may be off, ms (demerit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demerit_ms: Option<f64>,
    /// With a recording: the same with every random term switched off, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physics_demerit_ms: Option<f64>,
    /// With a recording: the least correlation, request by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Sources of the numbers above.
    #[serde(default)]
    pub source: Sources,
}

impl Bars {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
