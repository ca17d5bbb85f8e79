//! A device in memory: durable, instant, and as large as what was written.

use std::cell::RefCell;

use crate::{BlockDevice, Capabilities, Completion, IoResult, Media, Payload, Request, Sectors};

/// See the module.
#[derive(Debug)]
pub struct MemoryDevice {
    capabilities: Capabilities,
    media: RefCell<Media>,
}

impl MemoryDevice {
    /// An empty device.
    #[must_use]
    pub fn new(capacity: Sectors) -> Self {
        let capabilities = Capabilities {
            capacity,
            physical_sector: Sectors(1),
            rotational: false,
            volatile_cache: false,
            native_fua: true,
            discard: true,
        };
        Self { capabilities, media: RefCell::default() }
    }

    fn apply(&self, request: Request) -> IoResult {
        self.capabilities.check(&request)?;
        let mut media = self.media.borrow_mut();
        match request {
            Request::Read { extent } => return Ok(media.read(extent)),
            Request::Write { extent, payload, .. } => media.write(extent, &payload),
            Request::Discard { extent } | Request::WriteZeroes { extent, .. } => {
                media.zero(extent);
            }
            Request::Flush => {}
        }
        Ok(Payload::default())
    }
}

impl BlockDevice for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        Completion::ready(self.apply(request))
    }
}
