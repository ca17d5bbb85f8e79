//! Whether the requests of a lone writer go in pieces.
//!
//! A client that writes one request after the other misses the sectors behind the last one, unless
//! the drive has a write cache. Of two pieces the drive begins with the one that comes under the
//! head first. If a piece takes a part of a revolution, that saves the wait for the other one. If
//! it takes whole revolutions, it costs one more. The scheduler knows neither revolutions nor the
//! head's angle, so it measures both ways, and goes on measuring.

use manylogs_block::{Sectors, Time};

/// Number of requests that are measured before the result of a way counts.
const FIRST: u32 = 4;
/// Of this many requests ...
const ROUND: u32 = 128;
/// ... this many go the other way, because zones of the drive and pauses of the client differ.
const TRIED: u32 = 2;
/// Weight of a request in the moving mean, as a divisor.
const RECENT: f64 = 8.0;
/// Pieces let records pass. Whole requests must be better than pieces by this factor.
const BETTER: f64 = 0.97;

/// Mean time of a sector in one of the two ways.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    mean_ns: f64,
    requests: u32,
}

impl Way {
    fn took(&mut self, ns: f64) {
        self.requests = self.requests.saturating_add(1);
        let weight = f64::from(self.requests).min(RECENT);
        self.mean_ns += (ns - self.mean_ns) / weight;
    }
}

/// Measurements of a lone writer's requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoneWriter {
    pieces: Way,
    whole: Way,
    /// Number of the present request within its round.
    round: u32,
    under_way: Option<UnderWay>,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    sent: Time,
    len: Sectors,
    in_pieces: bool,
}

impl LoneWriter {
    /// Whether the next request of a lone writer goes in pieces.
    pub(crate) fn goes_in_pieces(&mut self) -> bool {
        if self.pieces.requests < FIRST {
            return true;
        }
        if self.whole.requests < FIRST {
            return false;
        }
        let whole = self.whole.mean_ns < BETTER * self.pieces.mean_ns;
        self.round = (self.round + 1) % ROUND;
        if self.round < TRIED { whole } else { !whole }
    }

    /// Notes a request that goes at `now`, whole or in pieces; its end will be measured.
    pub(crate) fn sent(&mut self, now: Time, len: Sectors, in_pieces: bool) {
        self.under_way = Some(UnderWay { sent: now, len, in_pieces });
    }

    /// Drops the measurement, because another request goes to the device.
    pub(crate) fn disturb(&mut self) {
        self.under_way = None;
    }

    /// Notes that a request of the writer has ended, with all its pieces.
    pub(crate) fn ended(&mut self, now: Time) {
        let Some(UnderWay { sent, len, in_pieces }) = self.under_way.take() else { return };
        let way = if in_pieces { &mut self.pieces } else { &mut self.whole };
        way.took(now.since(sent).0 as f64 / len.0.max(1) as f64);
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Nanos;

    use super::*;

    /// Sends requests of 1 MiB one after the other, which take the given times. Returns how many of
    /// the last thousand went in pieces.
    fn in_pieces(pieces_ms: u64, whole_ms: u64) -> usize {
        let (mut writer, mut now) = (LoneWriter::default(), Time(0));
        let mut ways = Vec::new();
        for _ in 0..2000 {
            let in_pieces = writer.goes_in_pieces();
            writer.sent(now, Sectors(2048), in_pieces);
            now = now + Nanos::from_millis(if in_pieces { pieces_ms } else { whole_ms });
            writer.ended(now);
            ways.push(in_pieces);
        }
        ways[1000..].iter().filter(|way| **way).count()
    }

    #[test]
    fn the_faster_way_is_found_and_the_other_is_tried_now_and_then() {
        // Pieces lose a revolution of 4 ms, or save a part of one of 8.3 ms.
        assert!((1..30).contains(&in_pieces(16, 12)), "{}", in_pieces(16, 12));
        assert!((970..1000).contains(&in_pieces(8, 12)), "{}", in_pieces(8, 12));
        assert!(in_pieces(12, 12) > 970, "of equal ways the one that lets records pass");
    }

    #[test]
    fn a_drive_that_changes_is_noticed() {
        let (mut writer, mut now) = (LoneWriter::default(), Time(0));
        let mut last = Vec::new();
        for request in 0..4000 {
            let in_pieces = writer.goes_in_pieces();
            writer.sent(now, Sectors(2048), in_pieces);
            let pieces_ms = if request < 2000 { 16 } else { 8 };
            now = now + Nanos::from_millis(if in_pieces { pieces_ms } else { 12 });
            writer.ended(now);
            last.push(in_pieces);
        }
        assert!(last[1900..2000].iter().filter(|way| **way).count() < 5);
        assert!(last[3900..].iter().filter(|way| **way).count() > 95);
    }

    #[test]
    fn what_was_disturbed_is_not_measured() {
        let mut writer = LoneWriter::default();
        for _ in 0..FIRST {
            writer.sent(Time(0), Sectors(2048), true);
            writer.disturb();
            writer.ended(Time(1));
        }
        assert!(writer.goes_in_pieces(), "nothing is known yet");
        assert_eq!(writer.pieces.requests, 0);
    }
}
