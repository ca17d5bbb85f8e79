//! The answer in plain words, computed from the figures and nothing else.

use crate::results::{PolicyResult, Replay, Speedup};
use crate::table::{bytes, duration, times};

/// Speed-ups closer to one than this are called no difference.
const NOTICEABLE: f64 = 0.05;

/// What a reader should take away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// One sentence.
    pub verdict: String,
    /// What qualifies it, the good and the bad.
    pub points: Vec<String>,
}

/// Draws the conclusion from `replay`.
#[must_use]
pub fn headline(replay: &Replay) -> Headline {
    let compared: Vec<(&PolicyResult, &Speedup)> = replay
        .policies
        .0
        .iter()
        .filter(|policy| policy.name != "nologging")
        .filter_map(|policy| Some((policy, policy.speedup_over_nologging.as_ref()?)))
        .collect();
    let best = compared
        .iter()
        .max_by(|a, b| a.1.median_over_percentiles.total_cmp(&b.1.median_over_percentiles));
    let (Some(&(best, speedup)), Some(base)) = (best, replay.policies.nologging()) else {
        return Headline {
            verdict: "Nothing to compare: replay nologging and at least one other policy.".into(),
            points: Vec::new(),
        };
    };
    let mut points = overload(replay);
    points.extend(mean_disagrees(best, base));
    points.extend(by_kind(best, base));
    points.extend(where_slower(best, speedup));
    let others = compared.iter().filter(|(policy, _)| policy.name != best.name);
    points.extend(others.map(|&(policy, speedup)| comparison(policy, speedup)));
    points.extend(price(best));
    Headline { verdict: verdict(best, speedup, base), points }
}

fn verdict(best: &PolicyResult, speedup: &Speedup, base: &PolicyResult) -> String {
    let name = &best.name;
    let typical = speedup.median_over_percentiles;
    match (base.overload.overloaded, best.overload.overloaded) {
        (true, true) => {
            return "This load is more than this drive can do under any of the policies."
                .to_owned();
        }
        (true, false) => {
            return format!(
                "Without logging this drive cannot keep up with this load; with {name} it can: \
                 half of all requests are answered within {}.",
                duration(best.latency_us.p50)
            );
        }
        _ => {}
    }
    let medians = format!(
        "half of all requests are answered within {} instead of {}",
        duration(best.latency_us.p50),
        duration(base.latency_us.p50)
    );
    if typical > 1.0 + NOTICEABLE {
        format!("For this load {name} makes this drive {typical:.1} times as fast: {medians}.")
    } else if typical < 1.0 - NOTICEABLE {
        format!(
            "Logging does not help this load on this drive: even the best policy, {name}, is \
             slower than none ({typical:.2} times as fast; {medians})."
        )
    } else {
        format!(
            "Logging makes no real difference to this load on this drive: {name} is {typical:.2} \
             times as fast as no logging ({medians})."
        )
    }
}

fn overload(replay: &Replay) -> Vec<String> {
    let slow = replay.policies.0.iter().filter(|policy| policy.overload.overloaded);
    let names: Vec<&str> = slow.map(|policy| policy.name.as_str()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Careful: the trace asks for more than the drive can do under {}. These latencies \
         measure how long the queue grew, not how a server would feel; replay with --rate auto \
         for figures that can be compared.",
        names.join(", ")
    )]
}

fn by_kind(best: &PolicyResult, base: &PolicyResult) -> Vec<String> {
    let (ours, theirs) = (&best.latency_us_by_kind, &base.latency_us_by_kind);
    let kinds = [
        ("Small writes", ours.small_writes, theirs.small_writes),
        ("Large writes", ours.large_writes, theirs.large_writes),
        ("Reads", ours.reads, theirs.reads),
    ];
    let mut points = Vec::new();
    for (kind, ours, theirs) in kinds {
        if ours.requests == 0 || ours.mean <= 0.0 {
            continue;
        }
        let word = better_or_worse(theirs.mean / ours.mean);
        points.push(format!(
            "{kind} ({}) are {word}: mean {} under {} against {} without logging; at the 99th \
             percentile {} against {}.",
            ours.requests,
            duration(ours.mean),
            best.name,
            duration(theirs.mean),
            duration(ours.p99),
            duration(theirs.p99),
        ));
    }
    points
}

fn better_or_worse(factor: f64) -> String {
    if factor > 1.0 + NOTICEABLE {
        format!("{factor:.1} times as fast")
    } else if factor < 1.0 - NOTICEABLE {
        format!("slower ({factor:.2} times as fast)")
    } else {
        "about as fast as before".to_owned()
    }
}

fn where_slower(best: &PolicyResult, speedup: &Speedup) -> Option<String> {
    let all = speedup.percentiles.iter().zip(&speedup.at_percentiles);
    let slower: Vec<(f64, f64)> =
        all.filter(|&(_, &s)| s < 1.0 - NOTICEABLE).map(|(&p, &s)| (p, s)).collect();
    let worst = slower.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "It is not better everywhere: at {} of the 100 percentiles compared {} is slower than no \
         logging, worst at percentile {}, where it is {:.2} times as fast.",
        slower.len(),
        best.name,
        worst.0,
        worst.1
    ))
}

fn comparison(policy: &PolicyResult, speedup: &Speedup) -> String {
    let typical = speedup.median_over_percentiles;
    let name = &policy.name;
    if typical < 1.0 - NOTICEABLE {
        format!("{name} loses: it is {typical:.2} times as fast as no logging, that is slower.")
    } else if typical > 1.0 + NOTICEABLE {
        format!("{name} is {typical:.1} times as fast as no logging.")
    } else {
        format!("{name} makes no real difference ({}).", times(typical))
    }
}

/// The slowest requests count most in a mean: it may tell another story than the percentiles.
fn mean_disagrees(best: &PolicyResult, base: &PolicyResult) -> Option<String> {
    let (ours, theirs) = (best.latency_us.mean, base.latency_us.mean);
    let typical = best.speedup_over_nologging.as_ref()?.median_over_percentiles;
    (typical > 1.0 + NOTICEABLE && ours > theirs * (1.0 + NOTICEABLE)).then(|| {
        format!(
            "But the slowest requests wait longer: the mean latency is {} under {} against {} \
             without logging.",
            duration(ours),
            best.name,
            duration(theirs)
        )
    })
}

fn price(best: &PolicyResult) -> Option<String> {
    let checkpoint = best.checkpoint.as_ref()?;
    Some(format!(
        "The price: {} of logged data had to be copied home afterwards, which took the idle drive \
         {} for {} of replay; meanwhile the table that finds logged blocks took {} of memory.",
        bytes(best.logged_bytes),
        duration(checkpoint.simulated_seconds * 1e6),
        duration(best.simulated_seconds * 1e6),
        bytes(best.mapping_table_bytes_max),
    ))
}
