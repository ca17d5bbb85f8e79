//! Times at which the replayed application needs its writes to be durable.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, parse_span, span_text};

use crate::results::TraceSummary;

/// Which writes must be durable, and when they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each write has FUA, and the drive's write cache is off. The paper measures this case.
    All,
    /// FUA writes and flushes as recorded in the trace. The drive's write cache is on.
    Recorded,
    /// A flush after each interval in which data was written. No write has FUA, the trace's own
    /// flushes are left out, and the drive's write cache is on.
    SyncEvery(Nanos),
}

impl Durability {
    /// The default: durability as recorded, or every write durable if the trace has neither a flush
    /// nor a FUA write.
    #[must_use]
    pub const fn of(trace: &TraceSummary) -> Self {
        if trace.flushes + trace.fua_writes > 0 { Self::Recorded } else { Self::All }
    }

    /// Whether the drive's write cache is on, unless a policy says otherwise.
    #[must_use]
    pub const fn write_cache(self) -> bool {
        !matches!(self, Self::All)
    }

    /// The durability in words.
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
