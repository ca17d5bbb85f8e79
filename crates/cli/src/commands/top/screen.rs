//! One screen of `manylogs top`. No line is wider than the terminal.

use std::fmt::Write;

use manylogs_block::Nanos;
use manylogs_operate::status::{
    ChainStatus, FileSystemStatus, KindStatus, LentStatus, OffloadStatus, Reason, Status, TROUBLES,
    TurnStatus, VolumeStatus,
};

use super::Sample;
use crate::commands::live::shades;
use crate::commands::volume::{human, span};
use crate::output::counted;

const MIB: f64 = (1 << 20) as f64;

/// Reasons of the volume's writes, by the names of phases.
const REASONS: &[(&str, &str)] = &[
    ("append", "small writes go to logs"),
    ("bypass", "large writes go home"),
    ("supersede", "large writes retire logged data"),
    ("checkpoint", "logged data moves home"),
    ("reset", "emptied logs begin anew"),
    ("swap", "a full log near the head moves"),
    ("snapshot", "the table is saved"),
    ("opened-set", "the next logs are named"),
    ("open", "the volume was opened"),
    ("recovery", "a crash was recovered"),
    ("discard", "blocks were discarded or zeroed"),
    ("drain", "the logs are emptied for good"),
];

/// The screen for the time from `before` to `now`.
pub(super) fn text(before: &Sample, now: &Sample, columns: usize) -> String {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let (old, new) = (&before.status, &now.status);
    let mut out = head(new);
    requests(&mut out, &new.requests);
    if let Some(volume) = &new.volume {
        let written = old.volume.as_ref().map_or(&[][..], |old| &old.written);
        reasons(&mut out, written, &volume.written, seconds);
        held(&mut out, &volume.turns);
        let line = shades(&volume.occupancy);
        let _ = writeln!(out, "\nlogs along the disk, . empty to # full\n[{line}]");
    }
    if let Some(file_system) = &new.file_system {
        of_file_system(&mut out, old.file_system.as_ref(), file_system, seconds);
    }
    if let Some(chain) = &new.chain {
        of_chain(&mut out, old.chain.as_ref(), chain, seconds);
    }
    if let Some(offload) = &new.offload {
        of_stores(&mut out, old.offload.as_ref(), offload, seconds);
    }
    if let Some(lent) = &new.lent {
        of_lent(&mut out, old.lent.as_ref(), lent, seconds);
    }
    cut(&out, columns)
}

fn head(status: &Status) -> String {
    let uptime = span(Nanos::from_secs_f64(status.uptime_s));
    let mut out = format!("{}: served for {uptime} by process {}", status.device, status.pid);
    if let Some(volume) = &status.volume {
        out += &state(volume);
    }
    out.push('\n');
    for (name, why) in [
        ("ends", status.stopping.clone()),
        ("read-only", status.volume.as_ref().and_then(|volume| volume.read_only.clone())),
    ] {
        if let Some(why) = why {
            let _ = writeln!(out, "{name}: {why}");
        }
    }
    if let Some(volume) = &status.volume {
        for trouble in TROUBLES {
            let count = (trouble.count)(volume);
            if count > 0 {
                let _ = writeln!(out, "trouble: {count} {}", trouble.what);
            }
        }
    }
    out
}

fn state(volume: &VolumeStatus) -> String {
    let (room, used) = volume.occupancy.iter().fold((0, 0), |(room, used), stretch| {
        (room + stretch.log_bytes, used + stretch.used_bytes)
    });
    let label = if volume.label.is_empty() { "volume" } else { &volume.label };
    let checkpoint = volume
        .checkpoint_progress
        .map_or_else(String::new, |share| format!("; checkpoint at {:.0} %", 100.0 * share));
    format!(
        "\n{label} is {}; {} only in logs, {} only in memory\n\
         logs {:.1} % full, {} to drain{checkpoint}",
        volume.health,
        human(volume.data_at_risk_bytes()),
        human(volume.volatile_bytes),
        100.0 * used as f64 / (room.max(1)) as f64,
        span(Nanos::from_secs_f64(volume.drain_estimate_s)),
    )
}

fn requests(out: &mut String, kinds: &[KindStatus]) {
    let _ = writeln!(
        out,
        "\n{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}",
        "clients ask", "a second", "MiB/s", "mean ms", "p50 ms", "p99 ms", "max ms", "errors"
    );
    for kind in kinds.iter().filter(|kind| kind.requests > 0) {
        let latency = kind.latency_us;
        let _ = writeln!(
            out,
            "{:<14}{:>9.1}{:>9.1}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>8}",
            kind.kind.name(),
            kind.requests_per_s,
            kind.bytes_per_s / MIB,
            latency.mean / 1e3,
            latency.p50 as f64 / 1e3,
            latency.p99 as f64 / 1e3,
            latency.max as f64 / 1e3,
            kind.errors
        );
    }
}

fn reasons(out: &mut String, before: &[Reason], now: &[Reason], seconds: f64) {
    let _ = writeln!(out, "\n{:<34}{:>9}{:>9}", "the volume writes, as", "a second", "MiB/s");
    let mut any = false;
    for reason in now {
        let old = before.iter().find(|old| old.phase == reason.phase);
        let (requests, bytes) = old.map_or((0, 0), |old| (old.requests, old.bytes));
        let (requests, bytes) = (reason.requests - requests, reason.bytes - bytes);
        if requests == 0 {
            continue;
        }
        any = true;
        let why = REASONS.iter().find(|(phase, _)| *phase == reason.phase);
        let why = why.map_or(reason.phase.as_str(), |(_, why)| why);
        let (rate, mib_s) = (requests as f64 / seconds, bytes as f64 / MIB / seconds);
        let _ = writeln!(out, "{why:<34}{rate:>9.1}{mib_s:>9.1}");
    }
    if !any {
        *out += "nothing is written\n";
    }
}

/// The mode, the memory of the server, and requests of the kernel by kind.
fn of_file_system(
    out: &mut String,
    before: Option<&FileSystemStatus>,
    now: &FileSystemStatus,
    seconds: f64,
) {
    let memory = &now.memory;
    let (used, bound) = (human(memory.used_bytes), human(memory.bound_bytes));
    let _ = writeln!(out, "\nthe mode is {}; memory {used} of at most {bound}", now.mode);
    let _ = writeln!(out, "{:<14}{:>9}{:>12}", "kernel asks", "a second", "all");
    let old = before.map_or(&[][..], |before| &before.kernel_requests);
    for kind in &now.kernel_requests {
        let earlier = old.iter().find(|old| old.kind == kind.kind).map_or(0, |old| old.requests);
        let more = kind.requests.saturating_sub(earlier);
        if more > 0 {
            let (rate, all) = (more as f64 / seconds, kind.requests);
            let _ = writeln!(out, "{:<14}{rate:>9.1}{all:>12}", kind.kind);
        }
    }
}

fn of_chain(out: &mut String, before: Option<&ChainStatus>, now: &ChainStatus, seconds: f64) {
    let since = |of: fn(&ChainStatus) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let mib_s = |bytes: u64| bytes as f64 / MIB / seconds;
    let (hits, misses) = (since(|chain| chain.tail_hits), since(|chain| chain.tail_misses));
    let _ = writeln!(
        out,
        "\nthe tail is on drive {}: {:.1} MiB/s written by clients, {:.1} appended\n\
         {hits} of {} reads of that drive hit the tail cache, and {} of others",
        now.tail + 1,
        mib_s(since(|chain| chain.written_bytes)),
        mib_s(since(|chain| chain.appended_bytes)),
        hits + misses,
        since(|chain| chain.body_hits),
    );
}

fn of_stores(out: &mut String, before: Option<&OffloadStatus>, now: &OffloadStatus, seconds: f64) {
    let since = |of: fn(&OffloadStatus) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let a_second = |of| since(of) as f64 / seconds;
    let _ = writeln!(
        out,
        "\nstores: {}: {}\n{:.1} writes a second go there, {:.1} home; {} held, {} with one copy",
        now.state,
        now.why,
        a_second(|offload| offload.offloaded_writes),
        a_second(|offload| offload.home_writes),
        human(now.held_bytes),
        human(now.only_copy_bytes),
    );
    for store in &now.stores {
        let _ = writeln!(
            out,
            "{} {:<8}{:>11} held, a request waits {:.1} ms",
            store.name,
            store.state,
            human(store.held_bytes),
            store.wait_ms
        );
    }
}

fn of_lent(out: &mut String, before: Option<&LentStatus>, now: &LentStatus, seconds: f64) {
    let used = before.map_or(now.used_bytes, |before| before.used_bytes);
    let grows = (now.used_bytes as f64 - used as f64) / MIB / seconds;
    let _ = writeln!(
        out,
        "\nlends store {}: {} of {}, {grows:+.1} MiB/s; {}",
        now.store,
        human(now.used_bytes),
        counted(now.clients, "base volume"),
        counted(now.connections, "connection"),
    );
    for held in &now.held_for {
        let _ = writeln!(out, "base volume {}: {}", held.base, human(held.held_bytes));
    }
}

fn held(out: &mut String, turns: &[TurnStatus]) {
    for turn in turns.iter().filter(|turn| turn.waiting > 0) {
        let _ = writeln!(out, "{} of class {} wait for records", turn.waiting, turn.class);
    }
}

/// Cuts each line at `columns`, so that a terminal does not wrap it.
fn cut(text: &str, columns: usize) -> String {
    text.lines().map(|line| line.chars().take(columns).collect::<String>() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use manylogs::Phase;

    use super::*;

    fn reason(requests: u64, bytes: u64) -> Reason {
        Reason { phase: "append".to_owned(), requests, bytes }
    }

    #[test]
    fn every_phase_has_a_reason() {
        for phase in Phase::ALL {
            assert!(REASONS.iter().any(|(name, _)| *name == phase.name()), "{}", phase.name());
        }
    }

    #[test]
    fn writes_are_shown_as_rates_between_two_samples() {
        let mut out = String::new();
        reasons(&mut out, &[reason(10, 1 << 20)], &[reason(30, 5 << 20)], 2.0);
        assert!(out.ends_with("small writes go to logs                10.0      2.0\n"), "{out}");
        let mut out = String::new();
        reasons(&mut out, &[reason(30, 1)], &[reason(30, 1)], 2.0);
        assert!(out.ends_with("nothing is written\n"), "{out}");
    }

    #[test]
    fn requests_of_the_kernel_are_shown_as_rates_by_kind() {
        let kinds = |counts: &[(&str, u64)]| {
            let kinds = counts
                .iter()
                .map(|(kind, requests)| serde_json::json!({ "kind": kind, "requests": requests }));
            FileSystemStatus {
                kernel_requests: kinds.map(|kind| serde_json::from_value(kind).unwrap()).collect(),
                ..FileSystemStatus::default()
            }
        };
        let (old, new) = (kinds(&[("lookup", 7)]), kinds(&[("lookup", 7), ("getattr", 30)]));
        let mut out = String::new();
        of_file_system(&mut out, Some(&old), &new, 2.0);
        assert!(out.ends_with("all\ngetattr            15.0          30\n"), "{out}");
        let mut out = String::new();
        of_file_system(&mut out, None, &new, 2.0);
        assert!(out.contains("lookup              3.5           7\n"), "{out}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut out = String::new();
        let kind = serde_json::json!({
            "kind": "read", "requests": 1, "bytes": 1, "errors": 0, "waited_s": 0.0,
            "requests_per_s": 123_456.7, "bytes_per_s": 1e10,
            "latency_us": { "mean": 1.0, "p50": 1, "p99": 1, "max": 1 }
        });
        requests(&mut out, &[serde_json::from_value(kind).unwrap()]);
        assert!(out.lines().all(|line| line.chars().count() < 80), "{out}");
        let status = serde_json::json!({
            "device": "d".repeat(200), "pid": 1, "uptime_s": 1.0, "capacity_bytes": 1,
            "requests": [], "under_way": 0, "oldest_under_way_s": 0.0, "stopping": null,
            "nbd": null, "emulation": null, "volume": null
        });
        let sample = |at| Sample { status: serde_json::from_value(status.clone()).unwrap(), at };
        let began = Instant::now();
        let screen = text(&sample(began), &sample(began + Duration::from_secs(1)), 80);
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    }
}
