//! Figures that the modelled drive is compared with: see [`crate::validate`].

use serde::{Deserialize, Serialize};

use super::Sources;

/// Figures that were published or measured for the whole drive, not for its parts.
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
    /// With a recording: the greatest demerit figure of the service times, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demerit_ms: Option<f64>,
    /// With a recording: the greatest demerit figure with every random term switched off, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physics_demerit_ms: Option<f64>,
    /// With a recording: the least correlation of the service times, request by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Sources of the numbers above.
    #[serde(default)]
    pub source: Sources,
}

impl Bars {
    /// Whether there are no figures.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
