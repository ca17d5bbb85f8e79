//! The status of a server.

mod array;
mod chain;
mod checkpoint;
mod disk;
mod file_system;
mod journal;
mod kept;
mod nbd;
mod occupancy;
mod offload;
mod scheduler;

use manylogs_block::Nanos;
use serde::{Deserialize, Serialize};

pub use array::ArrayStatus;
pub use chain::{ChainStatus, FlashStatus, HalfStatus, LinkStatus, PowerStatus};
pub use checkpoint::{ArrangeStatus, CheckpointStatus};
pub use disk::DiskStatus;
pub use file_system::{FileSystemStatus, KernelRequests, MemoryPart, MemoryStatus};
pub use journal::{IdleArrangeStatus, JournalStatus, LostBlock, ScrubStatus};
pub use kept::KeptMetadata;
pub use nbd::NbdStatus;
pub(crate) use occupancy::occupancy;
pub use offload::{HeldFor, LentStatus, OffloadStatus, StoreStatus};
pub use scheduler::{TurnStatus, WaitStatus};

/// Kinds of requests, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskedKind {
    /// Reads.
    Read,
    /// Writes that may wait for a flush.
    Write,
    /// Writes that are durable when acknowledged (FUA).
    DurableWrite,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Writes of zeroes.
    WriteZeroes,
}

impl AskedKind {
    /// All kinds in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::DurableWrite,
        Self::Flush,
        Self::Discard,
        Self::WriteZeroes,
    ];

    /// Name in outputs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::DurableWrite => "durable-write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write-zeroes",
        }
    }
}

/// Latencies in microseconds, of about the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean latency.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// Requests of clients of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindStatus {
    /// The kind.
    pub kind: AskedKind,
    /// Requests since the server started.
    pub requests: u64,
    /// Total length.
    pub bytes: u64,
    /// Number of requests that failed.
    pub errors: u64,
    /// Seconds that they took in total.
    pub waited_s: f64,
    /// Requests a second, about the last ten seconds.
    pub requests_per_s: f64,
    /// Bytes a second, about the last ten seconds.
    pub bytes_per_s: f64,
    /// Latencies.
    pub latency_us: Latency,
}

/// Writes of the volume to the device for one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The purpose: append, bypass, checkpoint, and so on.
    pub phase: String,
    /// Requests other than reads.
    pub requests: u64,
    /// Total length.
    pub bytes: u64,
}

/// Logs along the disk: the occupancy of a stretch of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Room for logs in the stretch.
    pub log_bytes: u64,
    /// Bytes appended there.
    pub used_bytes: u64,
    /// Home bytes whose newest version is there.
    pub live_bytes: u64,
}

/// The volume that is served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Id of the volume.
    pub id: String,
    /// Label of the volume; may be empty.
    pub label: String,
    /// good, degraded or read-only.
    pub health: String,
    /// Why writes are refused, if they are.
    pub read_only: Option<String>,
    /// Home bytes whose newest version is in a log: the plain disk has older data there.
    pub at_risk_bytes: u64,
    /// Of those, zeroed or discarded bytes; `None` if the table is too large to walk through.
    pub zeroed_bytes: Option<u64>,
    /// Acknowledged bytes that only memory holds until the next flush.
    pub volatile_bytes: u64,
    /// About how long a drain would take.
    pub drain_estimate_s: f64,
    /// Whether the estimate is based on the checkpoints since the volume was opened.
    #[serde(default)]
    pub drain_seen: bool,
    /// Client writes that were logged, and their length.
    pub logged_writes: u64,
    /// See `logged_writes`.
    pub logged_bytes: u64,
    /// Client writes that went home.
    pub bypassed_writes: u64,
    /// Records appended, and their length with headers and padding.
    pub records: u64,
    /// See `records`.
    pub record_bytes: u64,
    /// Mean time of a record since the server began, from the command to the device's answer;
    /// `None` before the first one.
    #[serde(default)]
    pub record_mean_us: Option<f64>,
    /// Writes that found the logs full and had to wait.
    pub starved_writes: u64,
    /// The longest write that is logged at present: the setting, or less while the logs fill too
    /// fast.
    #[serde(default)]
    pub threshold_bytes: u64,
    /// Writes up to the setting's length that went home because the threshold was lower.
    #[serde(default)]
    pub sent_home_writes: u64,
    /// Extents in the mapping table, and its memory.
    pub mapped_extents: u64,
    /// See `mapped_extents`.
    pub table_bytes: u64,
    /// Full logs whose content was moved to an empty one.
    pub log_swaps: u64,
    /// Checkpoints that ran to the end.
    pub checkpoints: u64,
    /// Checkpoints that failed.
    pub failed_checkpoints: u64,
    /// How far through the volume the checkpoint under way is; `None` if none is.
    pub checkpoint_progress: Option<f64>,
    /// Logs out of use after I/O errors.
    pub retired_logs: u64,
    /// Extents that stay logged because their home cannot be written.
    pub kept_extents: u64,
    /// Extents whose logged copy is damaged.
    pub lost_extents: u64,
    /// Extents whose logged copy the last checkpoint could not read: the next one tries again.
    #[serde(default)]
    pub unread_extents: u64,
    /// Durable-only bytes (`O_DUR`) in the logs: they do not wait to go home.
    #[serde(default)]
    pub o_dur_live_bytes: u64,
    /// Durable-only bytes that went home all the same since the server began.
    #[serde(default)]
    pub o_dur_home_bytes: u64,
    /// Durable-only bytes that moved from log to log.
    #[serde(default)]
    pub o_dur_moved_bytes: u64,
    /// Bytes appended to the logs reserved for durable-only content.
    #[serde(default)]
    pub o_dur_pinned_bytes: u64,
    /// Metadata that stays in the logs.
    #[serde(default)]
    pub kept_metadata: KeptMetadata,
    /// The array that the volume was made for, if any.
    #[serde(default)]
    pub array: Option<ArrayStatus>,
    /// Writes of the volume to the device by purpose.
    pub written: Vec<Reason>,
    /// Occupancy of the logs along the disk, in stretches of equal length.
    pub occupancy: Vec<Stretch>,
    /// Scheduler of the device: waiting and held-back requests.
    #[serde(default)]
    pub turns: Vec<TurnStatus>,
    /// What the requests wait for now, as in `waited`; `None` if none waits.
    pub waits_for: Option<String>,
    /// How long requests waited, by cause.
    #[serde(default)]
    pub waited: Vec<WaitStatus>,
}

/// Something that went wrong with a volume, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Name of the field of [`VolumeStatus`].
    pub name: &'static str,
    /// The value.
    pub count: fn(&VolumeStatus) -> u64,
    /// The words behind the count in a message.
    pub what: &'static str,
    /// Whether data is gone.
    pub is_loss: bool,
}

/// The troubles that the log and the status report.
pub const TROUBLES: [Trouble; 6] = [
    Trouble {
        name: "starved_writes",
        count: |volume| volume.starved_writes,
        what: "writes found the logs full and waited",
        is_loss: false,
    },
    Trouble {
        name: "failed_checkpoints",
        count: |volume| volume.failed_checkpoints,
        what: "checkpoints failed",
        is_loss: false,
    },
    Trouble {
        name: "retired_logs",
        count: |volume| volume.retired_logs,
        what: "logs are out of use after I/O errors",
        is_loss: false,
    },
    Trouble {
        name: "kept_extents",
        count: |volume| volume.kept_extents,
        what: "extents stay logged: their home cannot be written",
        is_loss: false,
    },
    Trouble {
        name: "unread_extents",
        count: |volume| volume.unread_extents,
        what: "extents could not be read from the logs: the next checkpoint tries again",
        is_loss: false,
    },
    Trouble {
        name: "lost_extents",
        count: |volume| volume.lost_extents,
        what: "extents are lost: their logged copy is damaged",
        is_loss: true,
    },
];

/// How much later than the model's times an emulated drive answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Requests that count.
    pub requests: u64,
    /// Median lateness in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// The drive that is emulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulationStatus {
    /// Name of the drive.
    pub drive: String,
    /// Whether it is so late that a run on it proves nothing.
    pub void: bool,
    /// All requests.
    pub lateness: Lateness,
    /// Late because the thread was not woken in time.
    pub by_timer: Lateness,
    /// Late because the backing store of the content is slower than the drive.
    pub by_content: Lateness,
}

/// The status of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The device that is served from.
    pub device: String,
    /// The server's process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Size of the export in bytes.
    pub capacity_bytes: u64,
    /// Requests of clients by kind.
    pub requests: Vec<KindStatus>,
    /// Requests that are not answered yet.
    pub under_way: u64,
    /// Age of the oldest request in flight.
    pub oldest_under_way_s: f64,
    /// What a stopping server waits for; `None` if it is not stopping.
    pub stopping: Option<String>,
    /// The clients over NBD, where the server itself speaks it.
    pub nbd: Option<NbdStatus>,
    /// The drive that is emulated, if one is.
    pub emulation: Option<EmulationStatus>,
    /// The disk below, emulated or real; `None` for a file.
    #[serde(default)]
    pub disk: Option<DiskStatus>,
    /// The volume; `None` if the device is served as it is.
    pub volume: Option<VolumeStatus>,
    /// The chain of drives that is served, if it is one.
    #[serde(default)]
    pub chain: Option<ChainStatus>,
    /// The stores that a base volume borrows, if it is one.
    #[serde(default)]
    pub offload: Option<OffloadStatus>,
    /// The lent store, if the server serves one.
    #[serde(default)]
    pub lent: Option<LentStatus>,
    /// The mounted file system, if the server serves one. Its volume, if it has one, holds its
    /// journal.
    #[serde(default)]
    pub file_system: Option<FileSystemStatus>,
}

impl VolumeStatus {
    /// Home bytes whose newest version is in a log, without zeroed and discarded ones.
    #[must_use]
    pub const fn data_at_risk_bytes(&self) -> u64 {
        match self.zeroed_bytes {
            Some(zeroed) => self.at_risk_bytes.saturating_sub(zeroed),
            None => self.at_risk_bytes,
        }
    }

    /// Share of all client writes that were logged; zero if there were none.
    #[must_use]
    pub fn share_logged(&self) -> f64 {
        let all = self.logged_writes + self.bypassed_writes;
        if all == 0 { 0.0 } else { self.logged_writes as f64 / all as f64 }
    }
}

/// Seconds of a span.
pub(crate) fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

/// An id as people read it.
#[must_use]
pub fn id_text(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
