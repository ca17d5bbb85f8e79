//! A set of logs as the root keeps it: one bit for each log, or for several neighbours.

use crate::LogId;
use manylogs_block::narrow;
use manylogs_plant::{self as plant, Bug};

/// Bytes of the set.
pub const LOG_BITMAP_BYTES: usize = 4096;
const BITS: u32 = 8 * 4096;
/// Logs to either side that are opened together, ahead of use: a sixteenth of all, at most this
/// many.
pub const OPENED_TOGETHER: u32 = 32;
/// Least number to either side that are first used together; a small set is used as a whole.
const LEAST_USED: u32 = 8;
/// Most logs to either side that are first used together. Each log in use costs one read in a
/// recovery without a snapshot.
pub const USED_TOGETHER: u32 = 512;

/// A set of logs. Each bit stands for one log, or for several neighbours where there are many.
#[derive(Clone, PartialEq, Eq)]
pub struct LogBitmap {
    logs_per_bit: u32,
    bits: Box<[u8; LOG_BITMAP_BYTES]>,
}

impl LogBitmap {
    /// The empty set for a store of `logs` logs.
    pub fn none(logs: usize) -> Self {
        let logs: u32 = narrow(logs);
        let logs_per_bit =
            if plant::is(Bug::LogSetTruncated) { 1 } else { logs.div_ceil(BITS).max(1) };
        Self { logs_per_bit, bits: Box::new([0; LOG_BITMAP_BYTES]) }
    }

    /// The set as read from a root; `None` if it makes no sense.
    pub fn from_raw(logs_per_bit: u32, bits: [u8; LOG_BITMAP_BYTES]) -> Option<Self> {
        (logs_per_bit > 0).then(|| Self { logs_per_bit, bits: Box::new(bits) })
    }

    /// Whether the set has a bit for each of `logs` logs. The set of a store that grows may be for
    /// more.
    pub fn covers(&self, logs: usize) -> bool {
        logs as u64 <= u64::from(self.logs_per_bit) * u64::from(BITS)
    }

    /// Number of neighbours that share a bit.
    pub const fn logs_per_bit(&self) -> u32 {
        self.logs_per_bit
    }

    /// The set as the root holds it.
    pub const fn bits(&self) -> &[u8; LOG_BITMAP_BYTES] {
        &self.bits
    }

    /// Whether the log, or a neighbour that shares its bit, is in the set.
    pub fn contains(&self, log: LogId) -> bool {
        let bit = log.0 / self.logs_per_bit;
        bit < BITS && self.bits[(bit / 8) as usize] & (1 << (bit % 8)) != 0
    }

    /// Adds the log, and the neighbours that share its bit.
    pub fn add(&mut self, log: LogId) {
        self.add_bit(log.0 / self.logs_per_bit);
    }

    /// Adds the log and its neighbours, so that a moving head finds them open. The volume has
    /// `logs` logs. `together` is [`OPENED_TOGETHER`] or [`USED_TOGETHER`].
    pub fn add_around(&mut self, log: LogId, logs: usize, together: u32) {
        let bit = log.0 / self.logs_per_bit;
        let logs: u32 = narrow(logs);
        let share = if together > OPENED_TOGETHER { LEAST_USED } else { 0 };
        let batch = (logs / self.logs_per_bit / 16).max(share).min(together);
        for bit in bit.saturating_sub(batch)..=(bit + batch).min(BITS - 1) {
            self.add_bit(bit);
        }
    }

    /// Adds all logs of another set of the same volume.
    pub fn add_all(&mut self, other: &Self) {
        for (byte, more) in self.bits.iter_mut().zip(other.bits.iter()) {
            *byte |= more;
        }
    }

    /// The same set for a volume of `logs` logs.
    pub fn resized(&self, logs: usize) -> Self {
        let mut new = Self::none(logs);
        let logs: u32 = narrow(logs);
        for log in (0..logs).map(LogId).filter(|log| self.contains(*log)) {
            new.add(log);
        }
        new
    }

    /// Number of bits that are set.
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }

    fn add_bit(&mut self, bit: u32) {
        self.bits[(bit / 8) as usize] |= 1 << (bit % 8);
    }
}

impl std::fmt::Debug for LogBitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogBitmap({} x {} logs)", self.count(), self.logs_per_bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_cover_the_log_and_its_neighbours() {
        for (logs, batch) in [(100, 6), (10_000, 32), (8, 0)] {
            let mut opened = LogBitmap::none(logs);
            opened.add_around(LogId(4 + batch), logs, OPENED_TOGETHER);
            assert!((4..=4 + 2 * batch).all(|log| opened.contains(LogId(log))));
            assert!(!opened.contains(LogId(3)));
            assert!(!opened.contains(LogId(5 + 2 * batch)));
        }
    }

    #[test]
    fn a_resized_set_still_has_every_log() {
        let mut small = LogBitmap::none(30_000);
        let logs = [0, 7, 29_999].map(LogId);
        logs.iter().for_each(|log| small.add(*log));
        let large = small.resized(100_000);
        assert_eq!(large.logs_per_bit(), 4);
        assert!(logs.iter().all(|log| large.contains(*log)));
        assert_eq!(large.count(), 3);
    }
}
