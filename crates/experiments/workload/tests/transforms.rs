//! Windows, re-rating, fitting, mixing, repeating.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

mod common;

use common::{drain, request};
use manylogs_block::{Extent, Nanos, Sectors, Time};
use manylogs_workload::TraceOp::{Discard, Read, Write};
use manylogs_workload::transform::{
    Cut, Fit, FitPlan, FitRule, Limit, Mix, Repeat, Rerate, Tenant, Window, WithDevice,
    busiest_windows, random_windows,
};
use manylogs_workload::{
    BoxedSource, Merge, SourceCounts, TraceError, TraceOp, TraceRequest, TraceSource, TraceStats,
};

/// A source of given requests.
struct Given(std::vec::IntoIter<TraceRequest>);

impl TraceSource for Given {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        self.0.next().map(Ok)
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}

fn given(requests: Vec<TraceRequest>) -> BoxedSource {
    Box::new(Given(requests.into_iter()))
}

/// `count` requests of 4 KiB a second from second `from` to second `to`.
fn steady(from: u64, to: u64, count: u64, op: TraceOp) -> Vec<TraceRequest> {
    let gap = 1_000_000_000 / count;
    (from * count..to * count).map(|n| request(n * gap, op, n * 8, 8, 0)).collect()
}

#[test]
fn the_busiest_window_is_found() {
    let mut requests = steady(0, 1000, 2, Read);
    requests.extend(steady(400, 500, 10, Write));
    requests.sort_by_key(|request| request.at);
    let len = Nanos::from_secs(60);
    let busiest = busiest_windows(&mut given(requests.clone()), len).unwrap();
    assert_eq!((busiest.writes.start_s, busiest.writes.per_second), (400, 10.0));
    assert_eq!((busiest.reads.start_s, busiest.reads.per_second), (0, 2.0));
    assert!((busiest.writes.read_percent - 100.0 / 6.0).abs() < 1e-9);
    assert_eq!(busiest.write_bytes.bytes_per_second, 10.0 * 4096.0);
    let one = busiest.write_bytes;

    let window = Window::at_second(one.start_s, len);
    let cut = drain(&mut Cut::new(given(requests), window)).unwrap();
    assert_eq!(cut.len(), 60 * 12);
    assert_eq!(cut[0].at, Time(0));
    assert!(cut.iter().all(|request| request.at.0 < len.0));
}

#[test]
fn random_windows_depend_on_the_seed_alone() {
    let (span, len) = (Nanos::from_secs(7200), Nanos::from_secs(300));
    let windows = random_windows(span, len, 100, 1);
    assert_eq!(windows, random_windows(span, len, 100, 1));
    assert_ne!(windows, random_windows(span, len, 100, 2));
    assert!(windows.iter().all(|window| window.end().0 <= span.0));
    assert!(windows.iter().any(|window| window.start.0 > span.0 / 2));
    assert_eq!(random_windows(Nanos(5), len, 1, 9)[0].start, Time(0), "shorter than a window");
}

#[test]
fn rates_limits_and_devices() {
    let trace = || given(steady(0, 10, 1, Read));
    let twice = drain(&mut Rerate::new(trace(), 2.0).unwrap()).unwrap();
    assert_eq!(twice[9].at, Time(4_500_000_000));
    assert!(Rerate::new(trace(), 0.0).is_err());
    assert!(Rerate::new(trace(), f64::NAN).is_err());
    let limited = Limit::new(trace(), 4, Nanos(u64::MAX));
    assert_eq!(drain(&mut { limited }).unwrap().len(), 4);
    let limited = Limit::new(trace(), u64::MAX, Nanos::from_secs(3));
    assert_eq!(drain(&mut { limited }).unwrap().len(), 3);
    let device = drain(&mut WithDevice::new(trace(), 9)).unwrap();
    assert!(device.iter().all(|request| request.device == 9));
}

#[test]
fn sources_are_merged_by_time() {
    let sources = vec![given(steady(0, 5, 3, Read)), given(steady(2, 9, 2, Write))];
    let merged = drain(&mut Merge::new(sources).unwrap()).unwrap();
    assert_eq!(merged.len(), 15 + 14);
    assert!(merged.is_sorted_by_key(|request| request.at));
}

const CHUNK: u64 = 2048;

#[test]
fn fitting_takes_out_untouched_space_in_order() {
    let trace = || {
        given(vec![
            request(0, Write, 100 * CHUNK - 8, 16, 0),
            request(1, Read, 100 * CHUNK + 8, 8, 0),
            request(2, Read, 900 * CHUNK, 8, 0),
            request(3, Discard, 0, 1000 * CHUNK, 0),
            request(4, Discard, 300 * CHUNK, CHUNK, 0),
        ])
    };
    let fitted = |capacity: u64| {
        let plan = FitPlan::measure(&mut trace(), Sectors(capacity)).unwrap();
        (plan.rule(), drain(&mut Fit::new(trace(), plan)).unwrap())
    };
    let (rule, requests) = fitted(1000 * CHUNK);
    assert_eq!((rule, requests), (FitRule::AsIs, drain(&mut trace()).unwrap()));

    let (rule, requests) = fitted(3 * CHUNK);
    assert_eq!(rule, FitRule::Compacted);
    let extents: Vec<Extent> = requests.iter().map(|request| request.extent).collect();
    let expected = [
        Extent::new(CHUNK - 8, 16),
        Extent::new(CHUNK + 8, 8),
        Extent::new(2 * CHUNK, 8),
        Extent::new(0, 3 * CHUNK),
    ];
    assert_eq!(extents, expected, "the discard of untouched space is gone");

    let (rule, requests) = fitted(2 * CHUNK);
    assert_eq!(rule, FitRule::Folded);
    assert_eq!(requests[0].extent, Extent::new(CHUNK - 8, 16));
    assert_eq!(requests[2].extent, Extent::new(0, 8));
    assert!(requests.iter().all(|request| request.extent.end().0 <= 2 * CHUNK));
    assert!(FitPlan::measure(&mut trace(), Sectors(8)).is_err());
}

#[test]
fn tenants_stay_in_their_slices() {
    let tenant = |from, to, base| Tenant {
        source: given(steady(from, to, 1, Write)),
        slice: Extent::new(base, 1000),
    };
    let mixed = Mix::new(vec![tenant(0, 3, 0), tenant(0, 3, 5000)]).unwrap();
    let requests = drain(&mut { mixed }).unwrap();
    assert_eq!(requests.len(), 6);
    assert!(
        requests.iter().all(|request| request.device == u32::from(request.extent.start.0 >= 5000))
    );
    assert!(Mix::new(vec![tenant(0, 1, 0), tenant(0, 1, 999)]).is_err(), "slices overlap");
    let outside = Mix::new(vec![tenant(0, 200, 0)]).unwrap();
    let message = drain(&mut { outside }).unwrap_err().to_string();
    assert!(message.contains("outside its slice"), "{message}");
}

#[test]
fn repeating_shifts_times_and_reads_once() {
    let mut opened = 0;
    let mut fua = request(1_000, Write, 8, 8, 3);
    fua.fua = true;
    let trace = vec![request(0, Read, 0, 8, 0), fua, TraceRequest::flush(Time(2_000), 1)];
    let repeat = Repeat::new(
        || {
            opened += 1;
            Ok(given(trace.clone()))
        },
        3,
    );
    let requests = drain(&mut { repeat.unwrap() }).unwrap();
    assert_eq!(opened, 1, "small traces are kept");
    assert_eq!(requests.len(), 9);
    for (place, request) in requests.iter().enumerate() {
        let mut expected = trace[place % 3];
        expected.at = Time(expected.at.0 + place as u64 / 3 * 3_000);
        assert_eq!(*request, expected, "a pass begins a mean gap after the last request");
    }
    // A discard too long for the compact form makes every pass read the trace again.
    let mut opened = 0;
    let long = vec![request(0, Discard, 0, 1 << 33, 0), request(10, Read, 0, 8, 0)];
    let repeat = Repeat::new(
        || {
            opened += 1;
            Ok(given(long.clone()))
        },
        4,
    );
    assert_eq!(drain(&mut { repeat.unwrap() }).unwrap().len(), 8);
    assert_eq!(opened, 4);
}

#[test]
fn statistics_of_a_small_trace() {
    let mut fua = request(2_000_000_000, Write, 8, 1024, 1);
    fua.fua = true;
    let mut source = given(vec![
        request(0, Read, 0, 8, 0),
        request(1_000_000_000, Write, 8, 8, 0),
        fua,
        request(2_500_000_000, Write, 8, 8, 0),
        TraceRequest::flush(Time(3_000_000_000), 0),
        request(4_000_000_000, Discard, 0, 1 << 40, 0),
    ]);
    let stats = TraceStats::collect(&mut source).unwrap();
    assert_eq!((stats.requests, stats.flushes, stats.discards, stats.fua_writes), (6, 1, 1, 1));
    assert_eq!(stats.span_s, 4.0);
    assert_eq!(stats.read_percent, 25.0);
    assert_eq!(stats.written_footprint_bytes, (1 + 128) * 4096, "devices have blocks of their own");
    assert_eq!(stats.touched_footprint_bytes, (2 + 128) * 4096);
    assert!((stats.overwrite_percent - 100.0 / 130.0).abs() < 1e-9);
    assert_eq!(stats.writes.quantiles.max, 512 << 10);
    assert!((stats.writes.small_32k_percent - 200.0 / 3.0).abs() < 1e-9);
    assert_eq!(stats.devices.len(), 2);
    assert!(serde_json::to_string(&stats).unwrap().contains("\"overwrite_percent\""));
}
