//! The sink of a mount without transactions.

use std::pin::Pin;

use manylogs_block::{IoError, IoResult};

use super::sink::{Closed, CommitSink, Newest, Step};
use super::stats::SinkStats;
use crate::units::{BlockNo, Run};

/// The sink of a read-only mount: there are no transactions.
#[derive(Debug)]
pub(crate) struct NoSink;

impl CommitSink for NoSink {
    fn largest(&self) -> usize {
        0
    }

    fn has_room(&self, _: usize) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn make_room(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn commit<'a>(&'a self, _: &'a Closed) -> Step<'a> {
        Box::pin(async { Err(IoError::ReadOnly { reason: "nothing is written here" }) })
    }

    fn quiet(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn newest(&self, _: BlockNo) -> Option<Newest> {
        None
    }

    fn logged(&self, _: Run) -> Vec<BlockNo> {
        Vec::new()
    }

    fn stats(&self) -> SinkStats {
        SinkStats::default()
    }

    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        Box::pin(async { Ok(true) })
    }

    fn drain(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }
}
