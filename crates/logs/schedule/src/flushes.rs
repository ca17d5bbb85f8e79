//! Writes beside a flush. A drive with a write cache answers a flush when all that the cache held
//! is on the medium, and takes other writes meanwhile: the next flush waits for those. A stream
//! that fills the cache during each flush keeps all flushes as long as the first. So less may
//! follow a flush than it waits for, and the next one is shorter.

use manylogs_block::{Nanos, Request, Sectors, Time};

/// So much may be written during a flush in any case, so that the drive need not stand still.
const LEAST: Sectors = Sectors(8192);
/// Share of what the flush waits for that may follow it into the cache.
const SHARE: u64 = 2;

/// What the drive's cache may hold.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Written since the last flush went.
    unflushed: Sectors,
    /// Flushes in the device.
    under_way: u32,
    /// When the first of them went.
    since: Time,
    /// What may still follow it.
    left: Sectors,
}

impl Flushes {
    /// A request goes to the device.
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

    /// The device has answered a flush.
    pub(crate) const fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Whether nothing more may go into the cache until a flush has ended. A flush holds nothing
    /// back for longer than `longest`.
    pub(crate) fn hold_back(&self, now: Time, longest: Nanos) -> bool {
        self.under_way > 0 && self.left == Sectors(0) && now.since(self.since) < longest
    }
}

/// What the request may leave in the drive's cache.
pub(crate) const fn cached(request: &Request) -> Option<Sectors> {
    match request {
        Request::Write { extent, fua: false, .. } => Some(extent.len),
        _ => None,
    }
}
