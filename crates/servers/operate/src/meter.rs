//! Counts and latencies of clients' requests.

use std::cell::RefCell;
use std::collections::VecDeque;

use hdrhistogram::Histogram;
use manylogs_block::{Nanos, Request, Time};

use crate::status::{AskedKind, KindStatus, Latency};

/// Rates and latencies cover about this many seconds.
const WINDOW_S: usize = 10;
/// Longer latencies count as this one, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Counts requests by kind; keeps the last seconds separately for rates and latencies.
#[derive(Debug)]
pub(crate) struct Meter {
    kinds: RefCell<[Counts; AskedKind::ALL.len()]>,
    /// The last seconds; the current one is at the back.
    seconds: RefCell<VecDeque<Second>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    bytes: u64,
    errors: u64,
    waited: Nanos,
}

#[derive(Debug)]
struct Second {
    began: Time,
    kinds: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    counts: Counts,
    latency_us: Histogram<u64>,
}

impl Second {
    fn new(began: Time) -> Self {
        let window = |_| Window { counts: Counts::default(), latency_us: histogram() };
        Self { began, kinds: AskedKind::ALL.iter().map(window).collect() }
    }
}

/// A histogram with two digits: 1 % of a latency is precise enough.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_US, 2).unwrap_or_else(|_| unreachable!("fixed bounds"))
}

impl Counts {
    fn add(&mut self, bytes: u64, failed: bool, waited: Nanos) {
        self.requests += 1;
        self.bytes += bytes;
        self.errors += u64::from(failed);
        self.waited += waited;
    }
}

impl Meter {
    pub(crate) fn new(now: Time) -> Self {
        Self { kinds: RefCell::default(), seconds: RefCell::new([Second::new(now)].into()) }
    }

    /// Counts an answered request.
    pub(crate) fn note(&self, what: Asked, failed: bool, took: Nanos) {
        let index = what.kind as usize;
        self.kinds.borrow_mut()[index].add(what.bytes, failed, took);
        if let Some(second) = self.seconds.borrow_mut().back_mut() {
            let window = &mut second.kinds[index];
            window.counts.add(what.bytes, failed, took);
            window.latency_us.saturating_record((took.0 / 1000).clamp(1, LATENCY_MAX_US));
        }
    }

    /// Begins another second.
    pub(crate) fn tick(&self, now: Time) {
        let mut seconds = self.seconds.borrow_mut();
        if seconds.len() > WINDOW_S {
            seconds.pop_front();
        }
        seconds.push_back(Second::new(now));
    }

    /// The status of all kinds, in the order of their declaration.
    pub(crate) fn status(&self, now: Time) -> Vec<KindStatus> {
        let (kinds, seconds) = (self.kinds.borrow(), self.seconds.borrow());
        let began = seconds.front().map_or(now, |second| second.began);
        let span_s = (now.since(began).0 as f64 / 1e9).max(1e-3);
        let status = |(kind, counts): (AskedKind, &Counts)| {
            let (mut latency_us, mut recent) = (histogram(), Counts::default());
            for second in seconds.iter() {
                let window = &second.kinds[kind as usize];
                recent.requests += window.counts.requests;
                recent.bytes += window.counts.bytes;
                // Cannot fail: both have the same bounds.
                let _ = latency_us.add(&window.latency_us);
            }
            KindStatus {
                kind,
                requests: counts.requests,
                bytes: counts.bytes,
                errors: counts.errors,
                waited_s: crate::status::seconds(counts.waited),
                requests_per_s: recent.requests as f64 / span_s,
                bytes_per_s: recent.bytes as f64 / span_s,
                latency_us: Latency {
                    mean: latency_us.mean(),
                    p50: latency_us.value_at_quantile(0.5),
                    p99: latency_us.value_at_quantile(0.99),
                    max: latency_us.max(),
                },
            }
        };
        AskedKind::ALL.into_iter().zip(kinds.iter()).map(status).collect()
    }
}

/// Kind and length of a request, for the statistics.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its kind.
    pub kind: AskedKind,
    /// Its length.
    pub bytes: u64,
}

impl Asked {
    /// Kind and length of a block device request.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let kind = match request {
            Request::Read { .. } => AskedKind::Read,
            Request::Write { fua: false, .. } => AskedKind::Write,
            Request::Write { fua: true, .. } => AskedKind::DurableWrite,
            Request::Flush => AskedKind::Flush,
            Request::Discard { .. } => AskedKind::Discard,
            Request::WriteZeroes { .. } => AskedKind::WriteZeroes,
        };
        Self { kind, bytes: request.extent().map_or(0, |extent| extent.len.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Extent;

    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds_and_counts_of_all() {
        let (meter, second) = (Meter::new(Time(0)), 1_000_000_000);
        let read = Asked::of(&Request::Read { extent: Extent::new(0, 8) });
        for now in 1..=60 {
            meter.note(read, false, Nanos::from_millis(5));
            meter.tick(Time(now * second));
        }
        meter.note(read, true, Nanos::from_millis(50));
        let status = meter.status(Time(60 * second));
        assert_eq!((status[0].requests, status[0].errors), (61, 1));
        assert_eq!(status[0].bytes, 61 * 4096);
        assert!((status[0].requests_per_s - 1.1).abs() < 1e-6, "{status:?}");
        assert!((4900..5100).contains(&status[0].latency_us.p50), "{status:?}");
        assert!((49_000..51_000).contains(&status[0].latency_us.max), "{status:?}");
        assert_eq!(status[1].requests, 0);
    }
}
