//! The status of a mounted file system.

use serde::{Deserialize, Serialize};

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
    /// Appended to the logs or the journal, with all that describes it.
    pub log_bytes: u64,
    /// Newer in the logs or the journal than at home.
    pub bytes_at_risk: u64,
    /// Written home from the logs or the journal.
    pub checkpoint_bytes: u64,
    /// What its server uses of memory.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// Requests of the kernel by kind, without those of which there were none.
    #[serde(default)]
    pub kernel_requests: Vec<KernelRequests>,
}

/// Requests of one kind that the kernel sent to the server of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRequests {
    /// As the protocol calls it, in small letters: lookup, getattr, readdirplus ...
    pub kind: String,
    /// Since the mount.
    pub requests: u64,
}

/// Memory that grows with what programs do, against its bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The most that all parts may use together.
    pub bound_bytes: u64,
    /// In use now.
    pub used_bytes: u64,
    /// What it is used for.
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
    /// How often somebody had to wait for room.
    pub waits: u64,
}
