//! When the application of a replay needs its writes to be durable.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, parse_span, span_text};

use super::workload::TraceSummary;

/// Which writes must be durable, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each write when it is answered (FUA), on a drive whose write cache is off: what the paper
    /// measured.
    All,
    /// As the trace says, by FUA writes and flushes, on a drive whose write cache is on.
    Recorded,
    /// No write by itself. A flush follows every so often, if something was written since the
    /// last one, on a drive whose write cache is on. The trace's own flushes are left out.
    SyncEvery(Nanos),
}

impl Durability {
    /// What is replayed when nobody says otherwise: what was recorded, or every write where the
    /// trace has neither a flush nor a FUA write.
    #[must_use]
    pub const fn of(trace: &TraceSummary) -> Self {
        if trace.flushes + trace.fua_writes > 0 { Self::Recorded } else { Self::All }
    }

    /// Whether the drive's write cache is on, unless a policy says otherwise.
    #[must_use]
    pub const fn write_cache(self) -> bool {
        !matches!(self, Self::All)
    }

    /// In words.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::All => "every write is durable when answered, drive write cache off".to_owned(),
            Self::Recorded => "FUA writes and flushes as recorded, drive write cache on".to_owned(),
            Self::SyncEvery(span) => format!(
                "writes are durable by a flush every {}, drive write cache on",
                span_text(span)
            ),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Recorded => f.write_str("recorded"),
            Self::SyncEvery(span) => write!(f, "sync-every={}", span_text(*span)),
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = text.strip_prefix("sync-every=").and_then(parse_span);
        match (text, span) {
            ("all", _) => Ok(Self::All),
            ("recorded", _) => Ok(Self::Recorded),
            (_, Some(span)) if span > Nanos(0) => Ok(Self::SyncEvery(span)),
            _ => Err(format!("expected recorded, all or sync-every=5s, found {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_the_same() {
        for text in ["all", "recorded", "sync-every=5s"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        for bad in ["", "sometimes", "sync-every=0", "sync-every=soon"] {
            assert!(bad.parse::<Durability>().unwrap_err().contains("sync-every=5s"), "{bad}");
        }
    }

    #[test]
    fn a_trace_without_flushes_makes_every_write_durable() {
        let none = TraceSummary::default();
        assert_eq!(Durability::of(&none), Durability::All);
        let some = TraceSummary { flushes: 1, ..none };
        assert_eq!(Durability::of(&some), Durability::Recorded);
    }
}
