//! A status in the text format of Prometheus, version 0.0.4.

mod chain;
mod journal;
mod offload;

use std::fmt::{Display, Write};

use crate::status::{
    EmulationStatus, KindStatus, MemoryPart, MemoryStatus, Status, TurnStatus, VolumeStatus,
};

/// The content type of the text in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The values of a volume's health.
const HEALTHS: [&str; 3] = ["good", "degraded", "read-only"];

/// Name without the prefix, help, value.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS: [Row<VolumeStatus>; 12] = [
    ("logged_writes_total", "Client writes that were logged.", |v| v.logged_writes),
    ("logged_bytes_total", "Length of the client writes that were logged.", |v| v.logged_bytes),
    ("bypassed_writes_total", "Client writes that went home.", |v| v.bypassed_writes),
    ("records_total", "Records appended to logs.", |v| v.records),
    ("record_bytes_total", "Length of records, with headers and padding.", |v| v.record_bytes),
    ("starved_writes_total", "Writes that found the logs full and waited.", |v| v.starved_writes),
    ("sent_home_writes_total", "Small writes sent home: the threshold had fallen.", |v| {
        v.sent_home_writes
    }),
    ("log_swaps_total", "Full logs whose content was moved to an empty one.", |v| v.log_swaps),
    ("checkpoints_total", "Checkpoints that ran to the end.", |v| v.checkpoints),
    ("failed_checkpoints_total", "Checkpoints that did not.", |v| v.failed_checkpoints),
    ("o_dur_home_bytes_total", "Kept in logs for durability only, and gone home.", |v| {
        v.o_dur_home_bytes
    }),
    ("o_dur_moved_bytes_total", "Kept in logs for durability only, and moved.", |v| {
        v.o_dur_moved_bytes
    }),
];
const GAUGES: [Row<VolumeStatus>; 15] = [
    ("at_risk_bytes", "Home bytes whose newest version is only in a log.", |v| v.at_risk_bytes),
    ("threshold_bytes", "The longest write that is logged now.", |v| v.threshold_bytes),
    ("volatile_bytes", "Acknowledged bytes in memory until a flush.", |v| v.volatile_bytes),
    ("mapped_extents", "Extents in the mapping table.", |v| v.mapped_extents),
    ("table_bytes", "Memory of the mapping table.", |v| v.table_bytes),
    ("retired_logs", "Logs out of use after I/O errors.", |v| v.retired_logs),
    ("kept_extents", "Extents whose home could not be written.", |v| v.kept_extents),
    ("lost_extents", "Extents whose logged copy is damaged.", |v| v.lost_extents),
    ("unread_extents", "Extents whose logged copy the last checkpoint could not read.", |v| {
        v.unread_extents
    }),
    ("o_dur_live_bytes", "Kept in logs for durability only.", |v| v.o_dur_live_bytes),
    ("o_dur_pinned_bytes", "Log space appended to of logs that keep them.", |v| {
        v.o_dur_pinned_bytes
    }),
    ("kept_metadata_bytes", "Metadata that stays in logs.", |v| v.kept_metadata.live_bytes),
    ("log_space_bytes", "Room for logs.", |v| v.occupancy.iter().map(|s| s.log_bytes).sum()),
    ("log_used_bytes", "Log space appended to.", |v| {
        v.occupancy.iter().map(|s| s.used_bytes).sum()
    }),
    ("log_live_bytes", "Newest versions in logs.", |v| {
        v.occupancy.iter().map(|s| s.live_bytes).sum()
    }),
];
const REQUEST_COUNTERS: [Row<KindStatus>; 2] = [
    ("request_bytes_total", "Length of the requests of clients.", |kind| kind.bytes),
    ("request_errors_total", "Requests of clients that failed.", |kind| kind.errors),
];

/// Name, type, help, value.
type TurnRow = (&'static str, &'static str, &'static str, fn(&TurnStatus) -> f64);
const TURNS: [TurnRow; 5] = [
    ("turns_total", "counter", "Requests to the device while records were expected.", |turn| {
        turn.requests as f64
    }),
    ("turns_held_total", "counter", "Those that were held back until their turn.", |turn| {
        turn.held as f64
    }),
    ("turns_held_seconds_total", "counter", "What they waited for that, all together.", |turn| {
        turn.held_ns as f64 / 1e9
    }),
    ("turns_held_seconds_max", "gauge", "The longest that one waited.", |turn| {
        turn.held_max_ns as f64 / 1e9
    }),
    ("turns_waiting", "gauge", "Requests that wait for their turn now.", |turn| {
        turn.waiting as f64
    }),
];

/// Name, type, help, value.
type MemoryRow = (&'static str, &'static str, &'static str, fn(&MemoryPart) -> u64);
const MEMORY: [MemoryRow; 4] = [
    ("memory_share_bytes", "gauge", "The part's share of the bound.", |part| part.share_bytes),
    ("memory_used_bytes", "gauge", "Memory in use now.", |part| part.used_bytes),
    ("memory_peak_bytes", "gauge", "The most in use since the mount.", |part| part.peak_bytes),
    ("memory_waits_total", "counter", "How often somebody waited for memory.", |part| part.waits),
];

/// The text that `GET /metrics` answers.
#[must_use]
pub fn exposition(status: &Status) -> String {
    let mut labels = label("device", &status.device);
    if let Some(volume) = &status.volume {
        labels = format!("{labels},{}", label("volume", &volume.id));
    }
    let mut page = Page { text: String::new(), labels };
    page.family("info", "gauge", "The version of the server.");
    page.sample("info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.single("uptime_seconds", "gauge", "Time since the server started.", status.uptime_s);
    page.single("capacity_bytes", "gauge", "What is exported.", status.capacity_bytes);
    let help = "Requests of clients that are not answered yet.";
    page.single("requests_under_way", "gauge", help, status.under_way);
    let help = "How long the oldest of them has taken so far.";
    page.single("oldest_request_seconds", "gauge", help, status.oldest_under_way_s);
    if let Some(nbd) = &status.nbd {
        page.single("nbd_connections", "gauge", "NBD clients.", nbd.connections);
        let help = "What requests under way and unsent answers of NBD clients hold.";
        page.single("nbd_held_bytes", "gauge", help, nbd.held_bytes);
    }
    requests(&mut page, &status.requests);
    if let Some(volume) = &status.volume {
        of_volume(&mut page, volume);
    }
    if let Some(chain) = &status.chain {
        chain::of_chain(&mut page, chain);
    }
    if let Some(status) = &status.offload {
        offload::of_base(&mut page, status);
    }
    if let Some(lent) = &status.lent {
        offload::of_lent(&mut page, lent);
    }
    if let Some(file_system) = &status.file_system {
        memory(&mut page, &file_system.memory);
        if let Some(journal) = &file_system.journal {
            journal::of_journal(&mut page, journal);
        }
        let name = "kernel_requests_total";
        page.family(name, "counter", "Requests that the kernel sent to the file system's server.");
        for kind in &file_system.kernel_requests {
            page.sample(name, &[("kind", &kind.kind)], kind.requests);
        }
        let name = "kernel_requests_through_io_uring";
        page.family(name, "gauge", "1 if requests come through io_uring, 0 if by /dev/fuse.");
        page.sample(name, &[], u64::from(file_system.ring_bytes > 0));
    }
    if let Some(emulation) = &status.emulation {
        emulated(&mut page, emulation);
    }
    page.text
}

fn requests(page: &mut Page, kinds: &[KindStatus]) {
    for (name, help, value) in REQUEST_COUNTERS {
        page.family(name, "counter", help);
        for kind in kinds {
            page.sample(name, &[("kind", kind.kind.name())], value(kind));
        }
    }
    let name = "request_latency_seconds";
    let help = "Latency of requests; the quantiles are those of about the last ten seconds.";
    page.family(name, "summary", help);
    for kind in kinds {
        let latency = kind.latency_us;
        let label = ("kind", kind.kind.name());
        for (quantile, us) in [("0.5", latency.p50), ("0.99", latency.p99), ("1", latency.max)] {
            // Without requests there is no quantile, so that no alert fires.
            let seconds = if kind.requests_per_s > 0.0 { us as f64 / 1e6 } else { f64::NAN };
            page.sample(name, &[label, ("quantile", quantile)], seconds);
        }
        page.sample("request_latency_seconds_sum", &[label], kind.waited_s);
        page.sample("request_latency_seconds_count", &[label], kind.requests);
    }
}

fn of_volume(page: &mut Page, volume: &VolumeStatus) {
    page.family("health", "gauge", "1 for the state that the volume is in.");
    for state in HEALTHS {
        page.sample("health", &[("state", state)], u8::from(state == volume.health));
    }
    for (kind, rows) in [("counter", &COUNTERS[..]), ("gauge", &GAUGES[..])] {
        for (name, help, value) in rows {
            page.single(name, kind, help, value(volume));
        }
    }
    if let Some(zeroed) = volume.zeroed_bytes {
        page.single("zeroed_bytes", "gauge", "Zeroed or discarded, of those at risk.", zeroed);
    }
    let help = "How long a drain would take, by what checkpoints took.";
    page.single("drain_estimate_seconds", "gauge", help, volume.drain_estimate_s);
    let running = u8::from(volume.checkpoint_progress.is_some());
    page.single("checkpoint_running", "gauge", "Whether a checkpoint is under way.", running);
    let progress = volume.checkpoint_progress.unwrap_or(0.0);
    let help = "How far through the volume the checkpoint is.";
    page.single("checkpoint_progress_ratio", "gauge", help, progress);
    let help = "Requests but reads that the engine sent to the device.";
    page.family("device_requests_total", "counter", help);
    for reason in &volume.written {
        page.sample("device_requests_total", &[("phase", &reason.phase)], reason.requests);
    }
    page.family("device_written_bytes_total", "counter", "Length of those requests.");
    for reason in &volume.written {
        page.sample("device_written_bytes_total", &[("phase", &reason.phase)], reason.bytes);
    }
    turns(page, volume);
}

fn turns(page: &mut Page, volume: &VolumeStatus) {
    for (name, kind, help, value) in TURNS {
        page.family(name, kind, help);
        for turn in &volume.turns {
            page.sample(name, &[("class", &turn.class)], value(turn));
        }
    }
    let name = "turns_waited_seconds_total";
    let help = "Time in which requests to the device waited for a record, or for room there.";
    page.family(name, "counter", help);
    for wait in &volume.waited {
        page.sample(name, &[("for", &wait.cause)], wait.waited_ns as f64 / 1e9);
    }
}

fn memory(page: &mut Page, memory: &MemoryStatus) {
    let help = "What the server of a file system may use of memory.";
    page.single("memory_bound_bytes", "gauge", help, memory.bound_bytes);
    for (name, kind, help, value) in MEMORY {
        page.family(name, kind, help);
        for part in &memory.parts {
            page.sample(name, &[("part", &part.part)], value(part));
        }
    }
}

fn emulated(page: &mut Page, emulation: &EmulationStatus) {
    let name = "emulation_void";
    page.family(name, "gauge", "Whether the emulated drive is too late to prove anything.");
    page.sample(name, &[("drive", &emulation.drive)], u8::from(emulation.void));
    let name = "emulation_lateness_seconds";
    page.family(name, "summary", "How much later than the model the emulated drive answered.");
    let late = emulation.lateness;
    for (quantile, us) in [("0.5", late.p50_us), ("0.99", late.p99_us), ("1", late.max_us)] {
        page.sample(name, &[("quantile", quantile)], us / 1e6);
    }
    page.sample("emulation_lateness_seconds_count", &[], late.requests);
}

/// The text so far.
struct Page {
    text: String,
    /// Labels of every sample.
    labels: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP manylogs_{name} {help}");
        let _ = writeln!(self.text, "# TYPE manylogs_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let own: String =
            labels.iter().map(|(key, text)| format!(",{}", label(key, text))).collect();
        let _ = writeln!(self.text, "manylogs_{name}{{{}{own}}} {value}", self.labels);
    }

    /// Adds a family with one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn label(key: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    format!("{key}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::WaitStatus;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(label("device", "a\"b\\c\nd"), r#"device="a\"b\\c\nd""#);
    }

    #[test]
    fn memory_is_told_by_part() {
        let part = MemoryPart {
            part: "pages".to_owned(),
            share_bytes: 9,
            used_bytes: 2,
            peak_bytes: 8,
            waits: 3,
        };
        let status = MemoryStatus { bound_bytes: 20, used_bytes: 2, parts: vec![part] };
        let mut page = Page { text: String::new(), labels: "device=\"d\"".to_owned() };
        memory(&mut page, &status);
        for sample in [
            "memory_bound_bytes{device=\"d\"} 20",
            "memory_share_bytes{device=\"d\",part=\"pages\"} 9",
            "memory_used_bytes{device=\"d\",part=\"pages\"} 2",
            "memory_peak_bytes{device=\"d\",part=\"pages\"} 8",
            "memory_waits_total{device=\"d\",part=\"pages\"} 3",
        ] {
            assert!(page.text.contains(&format!("manylogs_{sample}\n")), "{sample}: {}", page.text);
        }
    }

    #[test]
    fn what_waits_for_what_is_told_by_class_and_cause() {
        let turn = TurnStatus {
            class: "stream".to_owned(),
            requests: 9,
            held: 4,
            held_ns: 1_500_000_000,
            held_max_ns: 500_000_000,
            waiting: 2,
        };
        let wait = WaitStatus { cause: "record".to_owned(), waited_ns: 250_000_000 };
        let volume =
            VolumeStatus { turns: vec![turn], waited: vec![wait], ..VolumeStatus::default() };
        let mut page = Page { text: String::new(), labels: "volume=\"i\"".to_owned() };
        turns(&mut page, &volume);
        for sample in [
            "turns_total{volume=\"i\",class=\"stream\"} 9",
            "turns_held_total{volume=\"i\",class=\"stream\"} 4",
            "turns_held_seconds_total{volume=\"i\",class=\"stream\"} 1.5",
            "turns_held_seconds_max{volume=\"i\",class=\"stream\"} 0.5",
            "turns_waiting{volume=\"i\",class=\"stream\"} 2",
            "turns_waited_seconds_total{volume=\"i\",for=\"record\"} 0.25",
        ] {
            assert!(page.text.contains(&format!("manylogs_{sample}\n")), "{sample}: {}", page.text);
        }
    }
}
