//! Memory for content of the logs that is read ahead.

use std::any::Any;

use manylogs::AheadMemory;
use manylogs_ext4::{Memory, Part};

/// Lends from the memory for requests, of which half is left to the requests themselves.
#[derive(Debug)]
pub(crate) struct Spare(pub(crate) Memory);

impl AheadMemory for Spare {
    fn take(&self, bytes: u64) -> Option<Box<dyn Any>> {
        let part = Part::Requests;
        let is_spare = self.0.used(part) + bytes <= self.0.most(part) / 2;
        let permit = is_spare.then(|| self.0.try_take(part, bytes)).flatten()?;
        Some(Box::new(permit))
    }
}
