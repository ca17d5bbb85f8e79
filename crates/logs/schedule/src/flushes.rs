//! Limits writes during a flush. A drive with a write cache answers a flush once all data in the
//! cache is on the medium. It takes other writes meanwhile, and the next flush waits for those. If
//! a stream fills the cache during each flush, all flushes take as long as the first. So fewer
//! sectors may follow a flush than it waits for: then the next one is shorter.

use manylogs_block::{Nanos, Request, Sectors, Time};

/// Sectors that may always be written during a flush, so that the drive need not stand still.
const LEAST: Sectors = Sectors(8192);
/// Of the sectors that a flush waits for, one in this many may follow it into the cache.
const SHARE: u64 = 2;

/// Data that the drive's cache may hold.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Sectors written since the last flush was sent.
    unflushed: Sectors,
    /// Flushes in the device.
    under_way: u32,
    /// Time at which the first of them was sent.
    since: Time,
    /// Sectors that may still follow the first flush.
    left: Sectors,
}

impl Flushes {
    /// Notes a request that goes to the device.
    pub(crate) fn sent(&mut self, request: &Request, now: Time) {
        if *request == Request::Flush {
            if self.under_way == 0 {
                self.since = now;
                self.left = Sectors(self.unflushed.0 / SHARE).max(LEAST);
            }
            self.under_way += 1;
            self.unflushed = Sectors(0);
        } else if let Some(len) = cached(request) {
            self.unflushed += len;
            self.left = Sectors(self.left.0.saturating_sub(len.0));
        }
    }

    /// Notes that the device has answered a flush.
    pub(crate) const fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Whether writes into the cache must wait until a flush has ended. A flush holds writes back
    /// for `longest` at most.
    pub(crate) fn hold_back(&self, now: Time, longest: Nanos) -> bool {
        self.under_way > 0 && self.left == Sectors(0) && now.since(self.since) < longest
    }
}

/// Length of data that the request may leave in the drive's cache; `None` if it leaves none.
pub(crate) const fn cached(request: &Request) -> Option<Sectors> {
    match request {
        Request::Write { extent, fua: false, .. } => Some(extent.len),
        _ => None,
    }
}
