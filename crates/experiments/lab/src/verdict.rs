//! The verdict in words, computed from the figures alone.

use manylogs_block::on_off;

use crate::replay::Outcome;
use crate::results::{Decision, PolicyResult, Replay, Verdict};
use crate::stats::{Finding, Gain, Interval};
use crate::table::{bytes, duration, factor, span};

/// Smaller differences are ignored, even if they are certain.
const NOTICEABLE: f64 = 0.01;

/// Summary of a policy's gain.
#[must_use]
pub fn decide(gain: &Gain) -> Decision {
    let costs = [gain.reads_mean, gain.stream_mb_s];
    let lost = |interval: &Interval| is_loss(interval);
    match gain.durable_mean {
        None => Decision::NoDifference,
        Some(durable) if is_loss(&durable) => Decision::DoNotUse,
        Some(durable) if is_gain(&durable) => {
            if costs.iter().flatten().any(lost) {
                Decision::DoNotUse
            } else {
                Decision::Use
            }
        }
        Some(_) => Decision::NoDifference,
    }
}

fn is_gain(interval: &Interval) -> bool {
    interval.finding() == Finding::Faster && interval.estimate >= 1.0 + NOTICEABLE
}

fn is_loss(interval: &Interval) -> bool {
    interval.finding() == Finding::Slower && interval.estimate < 1.0 - NOTICEABLE
}

/// Draws the conclusion from `replay`, whose measurements `outcomes` are.
#[must_use]
pub fn verdict(replay: &Replay, outcomes: &[Outcome]) -> Verdict {
    let nothing = |text: &str| Verdict { text: text.to_owned(), ..Verdict::default() };
    let Some(base) = replay.base() else {
        return nothing("Nothing to compare: replay nologging and at least one other policy.");
    };
    let made = outcomes.iter().filter(|outcome| outcome.policy.can_be_made());
    let made = made.filter_map(|outcome| replay.policies.named(&outcome.policy.name));
    let Some(best) = made.max_by(|a, b| worth(a).total_cmp(&worth(b))) else {
        return nothing("Nothing to judge: replay a policy that `format` can make, such as mlb.");
    };
    let gain = best.gain.unwrap_or_default();
    let mut points = costs(best, base, &gain);
    let others = replay.policies.0.iter().filter(|policy| policy.name != best.name);
    points.extend(others.filter(|policy| policy.name != base.name).filter_map(loss));
    points.extend(price(best));
    let overloaded = base.overload.overloaded || best.overload.overloaded;
    let decision = if overloaded { Decision::NoDifference } else { decide(&gain) };
    let text = match overload(best, base) {
        Some(text) => text,
        None => sentence(replay, decision, best, base, &gain),
    };
    Verdict { decision, policy: Some(best.name.clone()), text, points }
}

/// Sort key of policies: the best has the largest.
fn worth(policy: &PolicyResult) -> f64 {
    let gain = policy.gain.unwrap_or_default();
    gain.durable_mean.or(gain.reads_mean).map_or(0.0, |interval| interval.estimate)
}

fn overload(best: &PolicyResult, base: &PolicyResult) -> Option<String> {
    let name = &best.name;
    match (base.overload.overloaded, best.overload.overloaded) {
        (true, true) => {
            Some("This load is more than this drive can do, with logs or without.".to_owned())
        }
        (true, false) => Some(format!(
            "The plain drive cannot keep up with this load; with {name} it can. How many times as \
             fast that is cannot be said: without logs the queue grows for as long as the load \
             goes on."
        )),
        (false, true) => {
            Some(format!("The drive keeps up with this load, but under {name} it does not."))
        }
        (false, false) => None,
    }
}

fn sentence(
    replay: &Replay,
    decision: Decision,
    best: &PolicyResult,
    base: &PolicyResult,
    gain: &Gain,
) -> String {
    let name = &best.name;
    let Some(durable) = gain.durable_mean else {
        return "Too few durable writes to judge.".to_owned();
    };
    let means = format!(
        "data is durable after {} on average instead of {} ({}; {})",
        duration(best.latency_us.durable.mean),
        duration(base.latency_us.durable.mean),
        factor(&durable),
        durability(replay, base),
    );
    match decision {
        Decision::Use => format!("{name} helps this load on this drive: {means}."),
        Decision::NoDifference => {
            format!("{name} makes no difference to this load on this drive: {means}.")
        }
        Decision::DoNotUse if is_loss(&durable) => {
            format!("{name} slows this load down on this drive: {means}.")
        }
        Decision::DoNotUse => {
            format!("{name} costs more than it gives this load on this drive, see below; {means}.")
        }
    }
}

/// The measure in words.
fn durability(replay: &Replay, base: &PolicyResult) -> String {
    let how = match replay.durability.mode.as_str() {
        "all" => "every write durable".to_owned(),
        "recorded" => "FUA writes and flushes as recorded".to_owned(),
        other => other.replace("sync-every=", "a flush every "),
    };
    let cache = on_off(base.drive_write_cache);
    format!("{how}; plain drive with its write cache {cache}")
}

fn costs(best: &PolicyResult, base: &PolicyResult, gain: &Gain) -> Vec<String> {
    let mut points = Vec::new();
    if let Some(interval) = &gain.durable_p99 {
        points.push(format!(
            "One in a hundred waits longer than {} for its data to be durable, instead of {}: {}.",
            duration(best.latency_us.durable.p99),
            duration(base.latency_us.durable.p99),
            finding(interval),
        ));
    }
    if let Some(interval) = &gain.reads_mean {
        points.push(format!(
            "Reads take {} on average instead of {}: {}.",
            duration(best.latency_us.reads.mean),
            duration(base.latency_us.reads.mean),
            finding(interval),
        ));
    }
    if let (Some(interval), Some(ours), Some(theirs)) =
        (&gain.stream_mb_s, best.stream_mb_s, base.stream_mb_s)
    {
        points.push(format!(
            "Streams move {ours:.0} MB/s while they have requests under way, instead of \
             {theirs:.0}: {}.",
            finding(interval),
        ));
    }
    points.push(format!(
        "The drive works {:.0} % of the time, instead of {:.0} %.",
        best.drive_busy_percent, base.drive_busy_percent
    ));
    points
}

/// The interval in words.
fn finding(interval: &Interval) -> String {
    if is_gain(interval) || is_loss(interval) {
        factor(interval)
    } else {
        format!("no difference ({})", span(interval))
    }
}

/// Sentences on the losses of other policies. Their gains are in the table.
fn loss(policy: &PolicyResult) -> Option<String> {
    let gain = policy.gain.as_ref()?.durable_mean.filter(is_loss)?;
    Some(format!("{} loses: {}.", policy.name, factor(&gain)))
}

fn price(best: &PolicyResult) -> Option<String> {
    let checkpoint = best.checkpoint.as_ref().filter(|checkpoint| checkpoint.logged_writes > 0)?;
    Some(format!(
        "The price: {} of logged data had to be copied home afterwards, which took the idle drive \
         {} for {} of replay; meanwhile the table that finds logged blocks took {} of memory.",
        bytes(best.logged_bytes),
        duration(checkpoint.simulated_seconds * 1e6),
        duration(best.simulated_seconds * 1e6),
        bytes(best.mapping_table_bytes_max),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, estimate: f64, high: f64) -> Option<Interval> {
        Some(Interval { estimate, low, high })
    }

    fn of(durable: Option<Interval>, reads: Option<Interval>) -> Decision {
        decide(&Gain { durable_mean: durable, reads_mean: reads, ..Gain::default() })
    }

    #[test]
    fn what_an_interval_spans_decides() {
        let (gain, loss) = (interval(1.5, 2.0, 2.5), interval(0.7, 0.8, 0.9));
        let even = interval(0.9, 1.1, 1.3);
        assert_eq!(of(gain, None), Decision::Use);
        assert_eq!(of(gain, even), Decision::Use);
        assert_eq!(of(gain, loss), Decision::DoNotUse);
        assert_eq!(of(loss, gain), Decision::DoNotUse);
        assert_eq!(of(even, gain), Decision::NoDifference);
        assert_eq!(of(None, gain), Decision::NoDifference);
        assert_eq!(of(interval(1.001, 1.002, 1.003), None), Decision::NoDifference);
    }
}
