//! Choosing and laying out the devices of a trace.

use std::collections::BTreeMap;

use manylogs_block::Lba;

use crate::error::TraceError;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

/// Devices begin at multiples of this many sectors (1 MiB) when laid out one after another.
const ALIGN_SECTORS: u64 = 2048;

/// Most devices: a larger number means a misread column.
const MAX_DEVICES: usize = 1 << 20;

/// Only the requests of `device`; opening fails if there are none.
pub(crate) fn only(mut source: BoxedSource, device: u32) -> Result<BoxedSource, TraceError> {
    loop {
        match source.next_request() {
            None => {
                let message = format!("no request is for device {device}");
                return Err(TraceError::Options(message.into()));
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(first)) if first.device == device => {
                return Ok(Box::new(Only { source, device, first: Some(first) }));
            }
            Some(Ok(_)) => {}
        }
    }
}

struct Only {
    source: BoxedSource,
    device: u32,
    first: Option<TraceRequest>,
}

impl TraceSource for Only {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            match self.source.next_request()? {
                Ok(request) if request.device != self.device => {}
                other => return Some(other),
            }
        }
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// Where each device begins when they are laid out one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceOffsets {
    base: BTreeMap<u32, u64>,
}

impl DeviceOffsets {
    /// Reads the whole source for the highest address of each device.
    pub(crate) fn measure(mut source: BoxedSource) -> Result<Self, TraceError> {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        while let Some(request) = source.next_request() {
            let request = request?;
            let end = ends.entry(request.device).or_default();
            *end = (*end).max(request.extent.end().0);
            if ends.len() > MAX_DEVICES {
                let message = "more than a million devices: is the device column right?";
                return Err(TraceError::Options(message.into()));
            }
        }
        let mut next = 0_u64;
        let mut base = BTreeMap::new();
        for (device, end) in ends {
            base.insert(device, next);
            next = next.saturating_add(end.next_multiple_of(ALIGN_SECTORS));
        }
        if next > crate::text::MAX_SECTOR {
            let message = "the devices together exceed 2^52 sectors: choose some of them";
            return Err(TraceError::Options(message.into()));
        }
        Ok(Self { base })
    }

    /// `source` with the addresses of this layout.
    pub(crate) fn apply(self, source: BoxedSource) -> LaidOut {
        LaidOut { source, layout: self }
    }
}

/// A source whose devices lie one after another.
pub(crate) struct LaidOut {
    source: BoxedSource,
    layout: DeviceOffsets,
}

impl TraceSource for LaidOut {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        let mut request = match self.source.next_request()? {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        if !request.extent.is_empty() {
            let base = self.layout.base.get(&request.device).copied().unwrap_or(0);
            request.extent.start = Lba(request.extent.start.0 + base);
        }
        Some(Ok(request))
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
