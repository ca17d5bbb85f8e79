//! The requests of a replay, one by one, in 38 bytes each.

use manylogs_block::Sectors;
use thiserror::Error;

use super::recorder::{Answered, LatencyClass};
use super::served::Served;

/// Rows of a full chunk. Columns grow by doubling, and end at this power of two without spare room.
pub(crate) const CHUNK_ROWS: usize = 1 << 16;

/// One more request than can be kept.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "more than {} requests cannot be kept one by one: replay a window, or the first requests only",
    u64::from(u32::MAX) + 1
)]
pub struct TooMany;

/// Requests in the order of their answers.
///
/// A long replay has a great many of them. So each column takes no more bytes than its values need,
/// and chunks are handed on as they are: a vector that held all rows would be copied as it grows.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    full: Vec<Chunk>,
    last: Chunk,
}

/// Rows by column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) arrived_s: Vec<f64>,
    /// Index of each row's name in [`LatencyClass::NAMES`].
    pub(crate) kind: Vec<u8>,
    pub(crate) latency_us: Vec<f64>,
    pub(crate) request: Vec<u32>,
    pub(crate) lba: Vec<u64>,
    pub(crate) sectors: Vec<u64>,
    /// Index of each row's name in [`Served::NAMES`].
    pub(crate) served: Vec<u8>,
}

/// A request that was kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptRequest {
    /// Name of its class.
    pub kind: &'static str,
    /// Arrival, in seconds since the start of the replay.
    pub arrived_s: f64,
    /// Latency in microseconds.
    pub latency_us: f64,
    /// Number of the request in the order of submission.
    pub request: u32,
    /// First sector.
    pub lba: u64,
    /// Length.
    pub sectors: Sectors,
    /// Name of where it was served; empty for a flush.
    pub served: &'static str,
}

impl Chunk {
    fn push(&mut self, answered: &Answered, request: u32) {
        self.arrived_s.push(answered.arrived.as_secs_f64());
        self.kind.push(answered.class.name_index());
        self.latency_us.push(answered.latency.0 as f64 / 1e3);
        self.request.push(request);
        self.lba.push(answered.extent.start.0);
        self.sectors.push(answered.extent.len.0);
        self.served.push(answered.served as u8);
    }

    fn row(&self, row: usize) -> KeptRequest {
        KeptRequest {
            kind: LatencyClass::NAMES[usize::from(self.kind[row])],
            arrived_s: self.arrived_s[row],
            latency_us: self.latency_us[row],
            request: self.request[row],
            lba: self.lba[row],
            sectors: Sectors(self.sectors[row]),
            served: Served::NAMES[usize::from(self.served[row])],
        }
    }

    fn shrink(&mut self) {
        self.arrived_s.shrink_to_fit();
        self.kind.shrink_to_fit();
        self.latency_us.shrink_to_fit();
        self.request.shrink_to_fit();
        self.lba.shrink_to_fit();
        self.sectors.shrink_to_fit();
        self.served.shrink_to_fit();
    }
}

impl Requests {
    /// Adds a request.
    ///
    /// # Errors
    /// If its number does not fit into 32 bits.
    pub(super) fn push(&mut self, answered: &Answered) -> Result<(), TooMany> {
        let request = u32::try_from(answered.request).map_err(|_| TooMany)?;
        self.last.push(answered, request);
        if self.last.kind.len() == CHUNK_ROWS {
            self.full.push(std::mem::take(&mut self.last));
        }
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK_ROWS + self.last.kind.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = KeptRequest> {
        let chunks = self.full.iter().chain([&self.last]);
        chunks.flat_map(|chunk| (0..chunk.kind.len()).map(|row| chunk.row(row)))
    }

    /// The chunks, without spare room; one at least.
    pub(crate) fn into_chunks(mut self) -> Vec<Chunk> {
        if self.full.is_empty() || !self.last.kind.is_empty() {
            self.last.shrink();
            self.full.push(self.last);
        }
        self.full
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, Nanos, Time};

    use super::*;

    fn answered(request: u64) -> Answered {
        Answered {
            class: LatencyClass::DurableLarge,
            arrived: Time(request * 1_000),
            latency: Nanos(1_500),
            request,
            extent: Extent::new(request * 8, 8),
            served: Served::Both,
            window: 0,
        }
    }

    #[test]
    fn requests_come_back_in_order() {
        let count = 2 * CHUNK_ROWS as u64 + 1;
        let mut kept = Requests::default();
        (0..count).for_each(|request| kept.push(&answered(request)).unwrap());
        assert_eq!(kept.len() as u64, count);
        let last = kept.iter().last().unwrap();
        assert_eq!((last.kind, last.served, last.sectors), ("durable-write", "both", Sectors(8)));
        assert_eq!((last.latency_us, last.lba), (1.5, u64::from(last.request) * 8));
        assert!(kept.iter().map(|one| u64::from(one.request)).eq(0..count));
        let rows: Vec<usize> = kept.into_chunks().iter().map(|chunk| chunk.sectors.len()).collect();
        assert_eq!(rows, [CHUNK_ROWS, CHUNK_ROWS, 1]);
        assert_eq!(Requests::default().into_chunks().len(), 1);
    }

    #[test]
    fn a_request_takes_38_bytes() {
        let mut kept = Requests::default();
        (0..CHUNK_ROWS as u64 + 3).for_each(|request| kept.push(&answered(request)).unwrap());
        for chunk in kept.into_chunks() {
            let bytes = chunk.kind.capacity()
                + chunk.served.capacity()
                + 4 * chunk.request.capacity()
                + 8 * (chunk.arrived_s.capacity() + chunk.latency_us.capacity())
                + 8 * (chunk.lba.capacity() + chunk.sectors.capacity());
            assert_eq!(bytes, 38 * chunk.kind.len());
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        let mut kept = Requests::default();
        kept.push(&answered(u64::from(u32::MAX))).unwrap();
        assert_eq!(kept.push(&answered(u64::from(u32::MAX) + 1)), Err(TooMany));
        assert!(TooMany.to_string().starts_with("more than 4294967296 requests"));
    }
}
