//! Keeps the requests of a short trace in memory, for callers that read it more than once.

use manylogs_block::{Extent, Time, to_usize};

use crate::request::{TraceOp, TraceRequest};

/// Traces of up to this number of requests are kept in memory (48 MB) instead of being read again.
const REQUESTS_MAX: usize = 2_000_000;

/// The requests of a short trace, in their order.
#[derive(Clone, Debug, Default)]
pub struct RequestCache {
    requests: Vec<Packed>,
    /// Set if a request did not fit: the trace then has to be read again.
    overflowed: bool,
}

impl RequestCache {
    /// Keeps `request`, unless the trace is too long or an address or length too large.
    pub fn push(&mut self, request: &TraceRequest) {
        if self.overflowed {
            return;
        }
        match Packed::pack(request) {
            Some(packed) if self.requests.len() < REQUESTS_MAX => self.requests.push(packed),
            _ => *self = Self { overflowed: true, ..Self::default() },
        }
    }

    /// Whether all requests are kept; otherwise none are.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        !self.overflowed
    }

    /// The request `index`, counted from zero.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<TraceRequest> {
        self.requests.get(index).map(|packed| packed.unpack())
    }

    /// Number of requests kept.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// A request in 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed {
    at: u64,
    /// Start in the low 56 bits, then the operation, then the FUA flag.
    start_op_fua: u64,
    len: u32,
    device: u32,
}

const START_BITS: u32 = 56;
const FUA_BIT: u32 = 63;
const _: () = assert!(size_of::<Packed>() == 24, "the memory bound above counts on it");

impl Packed {
    /// The request packed; `None` if an address or length is too large for that.
    fn pack(request: &TraceRequest) -> Option<Self> {
        let start = request.extent.start.0;
        let fua = u64::from(request.fua) << FUA_BIT;
        let op = (request.op as u64) << START_BITS;
        let len = u32::try_from(request.extent.len.0).ok()?;
        (start >> START_BITS == 0).then_some(Self {
            at: request.at.0,
            start_op_fua: start | op | fua,
            len,
            device: request.device,
        })
    }

    fn unpack(self) -> TraceRequest {
        let start = self.start_op_fua & ((1 << START_BITS) - 1);
        let op = TraceOp::ALL[to_usize(self.start_op_fua >> START_BITS & 0b111)];
        TraceRequest {
            at: Time(self.at),
            op,
            extent: Extent::new(start, u64::from(self.len)),
            fua: self.start_op_fua >> FUA_BIT == 1,
            device: self.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: TraceOp, start: u64, len: u64) -> TraceRequest {
        let extent = Extent::new(start, len);
        TraceRequest { at: Time(u64::MAX), op, extent, fua: start.is_multiple_of(2), device: 7 }
    }

    #[test]
    fn requests_come_out_as_they_went_in() {
        let mut cache = RequestCache::default();
        let largest = (1 << START_BITS) - 1;
        let all: Vec<TraceRequest> = [0, 5, 1 << 40, largest]
            .into_iter()
            .flat_map(|start| TraceOp::ALL.map(|op| request(op, start, u32::MAX.into())))
            .collect();
        all.iter().for_each(|request| cache.push(request));
        assert!(cache.is_complete() && cache.len() == all.len());
        for (index, request) in all.iter().enumerate() {
            assert_eq!(cache.get(index), Some(*request));
        }
        assert_eq!(cache.get(all.len()), None);
    }

    #[test]
    fn a_trace_that_does_not_fit_is_not_kept_at_all() {
        for large in
            [request(TraceOp::Read, 1 << START_BITS, 1), request(TraceOp::Read, 0, 1 << 32)]
        {
            let mut cache = RequestCache::default();
            cache.push(&request(TraceOp::Read, 0, 1));
            cache.push(&large);
            cache.push(&request(TraceOp::Read, 0, 1));
            assert!(!cache.is_complete() && cache.is_empty());
        }
        let mut cache = RequestCache::default();
        (0..REQUESTS_MAX).for_each(|_| cache.push(&request(TraceOp::Read, 0, 1)));
        assert!(cache.is_complete() && cache.len() == REQUESTS_MAX);
        cache.push(&request(TraceOp::Read, 0, 1));
        assert!(!cache.is_complete() && cache.is_empty());
    }
}
