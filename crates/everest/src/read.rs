//! Reading a part of what the store holds.

use manylogs_block::{Completion, Extent, IoError, Payload, Request};
use manylogs_logstore::Space;
use manylogs_logstore::store::{self, LogRead, Place};

use crate::store::Inner;

/// Source of the content of a part.
pub(crate) enum Source {
    Here(Payload),
    Lost,
    Log { read: LogRead, found: Completion },
}

impl Inner {
    pub(crate) fn begin_read(&self, part: Extent, place: Place) -> Source {
        match self.state.borrow_mut().store.begin(part, place) {
            store::Source::Here(content) => Source::Here(content),
            store::Source::Lost => Source::Lost,
            store::Source::Log(read) => {
                let device = &self.devices[usize::from(read.device.0)];
                Source::Log { read, found: device.submit(Request::Read { extent: read.extent }) }
            }
        }
    }

    pub(crate) async fn end_read(&self, part: Extent, source: Source) -> Result<Payload, IoError> {
        let home = Space::of(part).1;
        match source {
            Source::Here(content) => Ok(content),
            Source::Lost => Err(IoError::Checksum { extent: home }),
            Source::Log { read, found } => {
                let found = found.await;
                let content = self.state.borrow_mut().store.end_read(&read, found, home);
                self.progress.notify();
                content.map(|content| content.slice(read.skip, part.len))
            }
        }
    }
}
