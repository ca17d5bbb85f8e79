//! Shows the state of a running server: `manylogs status` and `metrics`.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_block::Nanos;
use manylogs_operate::control::{Control, ControlError, Order, connect};
use manylogs_operate::metrics::exposition;
use manylogs_operate::status::{
    EmulationStatus, FileSystemStatus, JournalStatus, Status, Stretch, TROUBLES, VolumeStatus,
    WaitStatus,
};

use super::gecko;
use super::serve::control_failure;
use super::volume::{human, span};
use super::write_cache;
use crate::args::serve::MetricsArgs;
use crate::failure::Failure;
use crate::output::{counted, print};

/// Shades of a log's occupancy, from empty to full.
const SHADES: [char; 5] = ['.', ':', '-', '=', '#'];

/// The server of the device, if it has one.
pub(crate) fn server(device: &Path) -> Result<Option<Control>, Failure> {
    match connect(device) {
        Ok(server) => Ok(Some(server)),
        // The next step reports a missing device.
        Err(ControlError::NotServed { .. } | ControlError::NoDirectory { .. }) => Ok(None),
        Err(_) if !device.exists() => Ok(None),
        Err(error) => Err(control_failure(error)),
    }
}

pub(crate) fn ask(server: &mut Control) -> Result<Status, Failure> {
    server.status().map_err(control_failure)
}

pub(crate) fn status(server: &mut Control, json: bool, forget: bool) -> Result<(), Failure> {
    let status = if json {
        let value = server.ask(&Order::Status).map_err(control_failure)?;
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    } else {
        text(&ask(server)?)
    };
    if forget {
        server.ask(&Order::ForgetLateness).map_err(control_failure)?;
    }
    print(&status)
}

pub(crate) fn metrics(args: &MetricsArgs) -> Result<(), Failure> {
    let mut server = connect(&args.device).map_err(control_failure)?;
    print(&exposition(&ask(&mut server)?))
}

/// A status in words.
pub(crate) fn text(status: &Status) -> String {
    let mut out = format!(
        "served          {} by process {} for {}, {}\n",
        status.device,
        status.pid,
        span(Nanos::from_secs_f64(status.uptime_s)),
        human(status.capacity_bytes)
    );
    if let Some(why) = &status.stopping {
        let _ = writeln!(out, "ends            {why}");
    }
    if let Some(nbd) = &status.nbd {
        let _ = writeln!(
            out,
            "NBD clients     {} of at most {}; their requests and answers hold {}",
            nbd.connections,
            nbd.connections_max,
            human(nbd.held_bytes)
        );
    }
    if let Some(emulation) = &status.emulation {
        emulated(&mut out, emulation);
    }
    if let Some(disk) = &status.disk {
        out += &write_cache::rows(disk, status.volume.as_ref());
    }
    if let Some(file_system) = &status.file_system {
        file_system_text(&mut out, file_system);
    }
    if let Some(volume) = &status.volume {
        volume_text(&mut out, volume);
    }
    if let Some(chain) = &status.chain {
        out += &gecko::rows(chain);
    }
    if let Some(offload) = &status.offload {
        out += &super::lend::text(offload);
    }
    if let Some(lent) = &status.lent {
        let [used, each] = [lent.used_bytes, lent.each_bytes].map(human);
        let _ = writeln!(
            out,
            "lends           store {}: {used} of {} (of one at most {each}), {}",
            lent.store,
            counted(lent.clients, "base volume"),
            counted(lent.connections, "connection"),
        );
        if (1..100).contains(&lent.share_percent) {
            let share = lent.share_percent;
            let _ = writeln!(out, "share           {share} % of its disk's time while others wait");
        }
        for held in &lent.held_for {
            let _ = writeln!(out, "  base volume {}: {}", held.base, human(held.held_bytes));
        }
        return out;
    }
    requests(&mut out, status);
    if let Some(volume) = &status.volume {
        reasons(&mut out, volume);
        let line = shades(&volume.occupancy);
        let _ = writeln!(out, "\nlogs along the disk, . empty to # full\n[{line}]");
    }
    out
}

fn emulated(out: &mut String, emulation: &EmulationStatus) {
    let late = emulation.lateness;
    let _ = writeln!(
        out,
        "emulates        {}; later than the model by {:.0} us (half), {:.0} us (99 %), {:.0} us \
         (most){}",
        emulation.drive,
        late.p50_us,
        late.p99_us,
        late.max_us,
        if emulation.void { ": VOID" } else { "" }
    );
}

fn file_system_text(out: &mut String, fs: &FileSystemStatus) {
    let _ = writeln!(
        out,
        "mounted on      {} in the mode {}\n\
         made durable    {} times, in {} transactions, {} records and {} flushes\n\
         journal         {} appended, {} of it newer than at home, {} written home",
        fs.mounted_on,
        fs.mode,
        fs.fsyncs,
        fs.transactions,
        fs.records,
        fs.flushes,
        human(fs.log_bytes),
        human(fs.bytes_at_risk),
        human(fs.checkpoint_bytes)
    );
    let _ = fs.too_old_stays.iter().try_for_each(|it| writeln!(out, "  stays         old: {it}"));
    if let Some(journal) = &fs.journal {
        let JournalStatus { size_bytes, used_bytes, live_bytes, oldest_s, .. } = *journal;
        let [size, used, live] = [size_bytes, used_bytes, live_bytes].map(human);
        let share = live_bytes * 100 / used_bytes.max(1);
        let _ = writeln!(
            out,
            "  keeps         {live} of {used} in use of {size} ({share} %); homes are as they were \
             {oldest_s} s ago\n  \
               mounted       in {:.1} s; the replay of a kernel takes up to {} s on a hard disk",
            fs.mount_ms as f64 / 1000.0,
            journal.replay_s()
        );
        let scrubbed = match &journal.scrub {
            Some(last) => format!("{} s ago: {}", last.ended_ago_s, last.in_words()),
            None => "not since the mount".to_owned(),
        };
        let _ = writeln!(out, "  scrubbed      {scrubbed}");
        if let Some(idle) = &journal.idle_arranged {
            let _ = writeln!(out, "  arranged      {}", idle.in_words());
        }
    }
    let memory = &fs.memory;
    let (used, bound) = (human(memory.used_bytes), human(memory.bound_bytes));
    let _ = writeln!(out, "memory          {used} of at most {bound}");
    for part in &memory.parts {
        let [used, peak, share] = [part.used_bytes, part.peak_bytes, part.share_bytes].map(human);
        let waits = part.waits;
        let _ = writeln!(
            out,
            "  {:<13} {used:>9} now, {peak:>9} at most so far, {share:>9} allowed, {waits} waits",
            part.part
        );
    }
    let kinds = fs.kernel_requests.iter();
    let kinds: Vec<_> = kinds.map(|kind| format!("{} {}", kind.requests, kind.kind)).collect();
    let all: u64 = fs.kernel_requests.iter().map(|kind| kind.requests).sum();
    let _ = writeln!(out, "the kernel asks {all} requests: {}", kinds.join(", "));
    let _ = writeln!(out, "requests come   through {}", fs.requests_through);
}

fn volume_text(out: &mut String, volume: &VolumeStatus) {
    let space = if volume.label.is_empty() { "" } else { " " };
    let (id, label) = (&volume.id, &volume.label);
    let _ = writeln!(out, "volume          {id}{space}{label}, {}", volume.health);
    if let Some(array) = &volume.array {
        let _ = writeln!(out, "array           {}", array.words());
    }
    if let Some(reason) = &volume.read_only {
        let _ = writeln!(out, "read-only       {reason}");
    }
    let zeroed = volume.zeroed_bytes.filter(|zeroed| *zeroed > 0);
    let _ = writeln!(
        out,
        "bytes at risk   {} in {} extents are newer in the logs than at home{}",
        human(volume.data_at_risk_bytes()),
        volume.mapped_extents,
        zeroed.map_or_else(String::new, |bytes| format!(", and {} are zeroes", human(bytes)))
    );
    let kept = volume.kept_metadata.live_bytes;
    if kept > 0 {
        let logs = volume.o_dur_pinned_bytes.max(1);
        let _ = writeln!(
            out,
            "metadata        {} stay in the logs, {:.0} % of those that hold them; the disk \
             without its logs is as old as the oldest",
            human(kept),
            100.0 * kept as f64 / logs as f64,
        );
    }
    let estimate = drain_text(volume);
    let _ = writeln!(
        out,
        "time to drain   about {estimate}\n\
         in memory       {} until the next flush; the table takes {}\n\
         logged          {:.1} % of writes: {} of {}, in {} records",
        human(volume.volatile_bytes),
        human(volume.table_bytes),
        100.0 * volume.share_logged(),
        volume.logged_writes,
        volume.logged_writes + volume.bypassed_writes,
        volume.records,
    );
    let _ =
        write!(out, "threshold       writes up to {} are logged", human(volume.threshold_bytes));
    let _ = match volume.sent_home_writes {
        0 => writeln!(out),
        sent_home => writeln!(
            out,
            " now; {sent_home} shorter than the setting went home while more was logged than a \
             checkpoint can empty"
        ),
    };
    let _ = writeln!(
        out,
        "housekeeping    {} checkpoints{}, {} swaps",
        volume.checkpoints,
        volume
            .checkpoint_progress
            .map_or_else(String::new, |share| { format!(" (one at {:.0} %)", 100.0 * share) }),
        volume.log_swaps
    );
    turns(out, volume);
    for trouble in TROUBLES {
        let count = (trouble.count)(volume);
        if count > 0 {
            let _ = writeln!(out, "trouble         {count} {}", trouble.what);
        }
    }
}

/// The time that a drain would take, and the basis of the estimate.
pub(crate) fn drain_text(volume: &VolumeStatus) -> String {
    let estimate = span(Nanos::from_secs_f64(volume.drain_estimate_s));
    match volume.drain_seen {
        _ if volume.drain_estimate_s == 0.0 => estimate,
        true => format!("{estimate}, as checkpoints went"),
        false => format!("{estimate} on a device of this kind: no checkpoint was seen yet"),
    }
}

/// How requests to the device wait: for records, and for one another.
fn turns(out: &mut String, volume: &VolumeStatus) {
    for turn in volume.turns.iter().filter(|turn| turn.held > 0 || turn.waiting > 0) {
        let _ = writeln!(
            out,
            "held back       {}: {} of {} requests, {:.1} ms on average, {:.1} ms at most; {} wait",
            turn.class,
            turn.held,
            turn.requests,
            1e3 * turn.held_mean_s(),
            turn.held_max_ns as f64 / 1e6,
            turn.waiting
        );
    }
    let waited = volume.waited.iter().filter(|wait| wait.waited_ns > 0);
    let waited: Vec<String> = waited.map(wait_text).collect();
    if !waited.is_empty() {
        let now = volume
            .waits_for
            .as_deref()
            .map_or_else(String::new, |cause| format!("; now for {}", cause_text(cause)));
        let _ = writeln!(out, "waits for       {}{now}", waited.join(", "));
    }
}

fn wait_text(wait: &WaitStatus) -> String {
    format!("{} {:.1} s", cause_text(&wait.cause), wait.waited_ns as f64 / 1e9)
}

fn cause_text(cause: &str) -> &str {
    match cause {
        "record" => "a record",
        "room" => "room in the device",
        other => other,
    }
}

fn requests(out: &mut String, status: &Status) {
    let _ = writeln!(
        out,
        "\n{:<15}{:>12}{:>10}{:>10}{:>11}{:>10}{:>10}{:>10}{:>8}",
        "requests", "all", "a second", "MiB/s", "mean ms", "p50 ms", "p99 ms", "max ms", "errors"
    );
    for kind in status.requests.iter().filter(|kind| kind.requests > 0) {
        let latency = kind.latency_us;
        let _ = writeln!(
            out,
            "{:<15}{:>12}{:>10.1}{:>10.1}{:>11.2}{:>10.2}{:>10.2}{:>10.2}{:>8}",
            kind.kind.name(),
            kind.requests,
            kind.requests_per_s,
            kind.bytes_per_s / f64::from(1 << 20),
            latency.mean / 1e3,
            latency.p50 as f64 / 1e3,
            latency.p99 as f64 / 1e3,
            latency.max as f64 / 1e3,
            kind.errors
        );
    }
}

fn reasons(out: &mut String, volume: &VolumeStatus) {
    let _ = writeln!(out, "\n{:<15}{:>12}{:>15}", "writes because", "requests", "length");
    for reason in &volume.written {
        let (requests, bytes) = (reason.requests, human(reason.bytes));
        let _ = writeln!(out, "{:<15}{requests:>12}{bytes:>15}", reason.phase);
    }
}

/// The occupancy of logs: one character for each stretch of the disk.
pub(crate) fn shades(stretches: &[Stretch]) -> String {
    let shade = |stretch: &Stretch| {
        if stretch.log_bytes == 0 {
            return ' ';
        }
        let share = stretch.used_bytes as f64 / stretch.log_bytes as f64;
        let index = (0..SHADES.len()).rev().find(|i| share > (*i as f64 - 1.0) / 4.0);
        if stretch.used_bytes == 0 { SHADES[0] } else { SHADES[index.unwrap_or(0).max(1)] }
    };
    stretches.iter().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use manylogs_operate::status::TurnStatus;

    use super::*;

    #[test]
    fn a_status_says_what_waits_for_what() {
        let mut volume = VolumeStatus {
            turns: vec![
                TurnStatus { class: "record".to_owned(), requests: 7, ..TurnStatus::default() },
                TurnStatus {
                    class: "stream".to_owned(),
                    requests: 9,
                    held: 4,
                    held_ns: 60_000_000,
                    held_max_ns: 25_000_000,
                    waiting: 2,
                },
            ],
            waited: vec![
                WaitStatus { cause: "record".to_owned(), waited_ns: 1_250_000_000 },
                WaitStatus { cause: "room".to_owned(), waited_ns: 0 },
            ],
            waits_for: Some("room".to_owned()),
            ..VolumeStatus::default()
        };
        let mut text = String::new();
        turns(&mut text, &volume);
        assert_eq!(
            text,
            "held back       stream: 4 of 9 requests, 15.0 ms on average, 25.0 ms at most; 2 wait\n\
             waits for       a record 1.2 s; now for room in the device\n"
        );
        volume.turns.clear();
        volume.waited.clear();
        text.clear();
        turns(&mut text, &volume);
        assert_eq!(text, "", "nothing was held back");
    }
}
