//! The status of a mounted file system.

use serde::{Deserialize, Serialize};

use super::journal::JournalStatus;

/// A mounted file system. Counts begin with the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemStatus {
    /// The directory.
    pub mounted_on: String,
    /// ordered, data, manylogs or adaptive.
    pub mode: String,
    /// How often a program asked for a file or directory to be durable: `fsync`, `fdatasync`, and
    /// writes that are durable when they return.
    pub fsyncs: u64,
    /// Transactions of the journal.
    pub transactions: u64,
    /// Records in logs near the head, or transactions in ext4's own journal.
    pub records: u64,
    /// Flushes of the device that transactions waited for.
    pub flushes: u64,
    /// Bytes appended to the logs or the journal, with headers and descriptors.
    pub log_bytes: u64,
    /// Bytes whose newest version is in the logs or the journal.
    pub bytes_at_risk: u64,
    /// Bytes written home from the logs or the journal.
    pub checkpoint_bytes: u64,
    /// Memory of its server.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// Requests of the kernel by kind; kinds without requests are left out.
    #[serde(default)]
    pub kernel_requests: Vec<KernelRequests>,
    /// How they come: `io_uring` or `/dev/fuse`.
    #[serde(default)]
    pub requests_through: String,
    /// Bytes of address space for requests that come through `io_uring`. Only what they have
    /// touched is memory.
    #[serde(default)]
    pub ring_bytes: u64,
    /// What the mount took, in milliseconds.
    #[serde(default)]
    pub mount_ms: u64,
    /// What the journal keeps, in the mode lazy.
    #[serde(default)]
    pub journal: Option<JournalStatus>,
    /// Why metadata that is old enough to go home stays in the journal.
    #[serde(default)]
    pub too_old_stays: Option<String>,
}

/// Requests of one kind that the kernel sent to the server of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRequests {
    /// The protocol's name in small letters: lookup, getattr, readdirplus ...
    pub kind: String,
    /// Number of requests since the mount.
    pub requests: u64,
}

/// Memory that grows with what programs do, and its bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The most bytes that all parts may use together.
    pub bound_bytes: u64,
    /// In use now.
    pub used_bytes: u64,
    /// Use by purpose.
    pub parts: Vec<MemoryPart>,
}

/// Memory that is used for one purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// requests, pages, writing, metadata, journal, inodes or table.
    pub part: String,
    /// Its share of the bound.
    pub share_bytes: u64,
    /// In use now.
    pub used_bytes: u64,
    /// The most that was in use at a time, since the mount.
    pub peak_bytes: u64,
    /// How often a task had to wait for room.
    pub waits: u64,
}
