//! Recognises a run: requests of one stream, with nobody else's between them.

use manylogs_block::{Extent, Lba, Sectors};

/// A run goes on behind a gap of this length: a log that lies in its way.
const GAP: Sectors = Sectors(32_768);

/// What clients ask for, as far as it is one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// End of the last request.
    end: Lba,
    /// Whether all requests since nobody waited are of one run.
    only: bool,
}

impl Run {
    /// A client asks for `extent`. `alone`: no other request of a client is in the scheduler. A
    /// small request begins no run, but may be what a log leaves of a longer one. Returns whether a
    /// stream goes on exactly where it was.
    pub(crate) fn asked(&mut self, extent: Extent, small: bool, alone: bool) -> bool {
        let goes_on = !small && extent.start == self.end;
        let near = extent.start >= self.end && extent.start.0 - self.end.0 <= GAP.0;
        self.only = alone && !small || self.only && near;
        if !small || near {
            self.end = extent.end();
        }
        goes_on
    }

    /// Whether clients ask for one run alone. A drive needs none of it ahead of time, as there is
    /// nothing to order.
    pub(crate) const fn is_all(&self) -> bool {
        self.only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_what_lies_elsewhere_and_not_with_a_log_in_its_way() {
        let mut run = Run::default();
        let mut asked = |start, alone| {
            let goes_on = run.asked(Extent::new(start, 2048), false, alone);
            (goes_on, run.is_all())
        };
        assert_eq!(asked(100_000, true), (false, true), "the first");
        assert_eq!(asked(102_048, false), (true, true));
        assert_eq!(asked(104_096 + 20_480, false), (false, true), "behind a log of 10 MiB");
        assert_eq!(asked(1_000_000, false), (false, false), "another stream");
        assert_eq!(asked(1_002_048, false), (true, false), "it is still there");
        assert_eq!(asked(1_004_096, true), (true, true), "the other has ended");
        run.asked(Extent::new(1_006_144 + 20_480, 64), true, false);
        assert!(run.is_all(), "its end behind a log");
        run.asked(Extent::new(500_000, 8), true, false);
        assert!(!run.is_all(), "small reads need to be ordered");
        run.asked(Extent::new(500_008, 8), true, true);
        assert!(!run.is_all());
    }
}
