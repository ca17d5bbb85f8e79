//! The status of base volumes that borrow stores, and of lent stores.

use serde::{Deserialize, Serialize};

/// A base volume that off-loads writes to stores while it is busy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// idle, off-loads, reclaims, home, waits, alone or fenced.
    pub state: String,
    /// Why, in a sentence.
    pub why: String,
    /// Bytes whose newest version is in stores.
    pub held_bytes: u64,
    /// Those of which there is one copy only.
    pub only_copy_bytes: u64,
    /// Writes that went to stores since the server began.
    pub offloaded_writes: u64,
    /// Writes that went home.
    pub home_writes: u64,
    /// Ranges that were brought home.
    pub reclaimed_ranges: u64,
    /// The stores, in the order in which they were given.
    pub stores: Vec<StoreStatus>,
}

/// A store of a base volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// lends, full, forgets or away.
    pub state: String,
    /// Whether the base notes that it may hold data: an opening waits for it then.
    pub listed: bool,
    /// Bytes of which it has the newest version.
    pub held_bytes: u64,
    /// Those that nobody else has.
    pub only_copy_bytes: u64,
    /// The time that a request would wait there.
    pub wait_ms: f64,
    /// Since when it was not reached; zero while it is.
    pub seen_s: f64,
}

/// A part of a disk that is lent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentStatus {
    /// Name of the store.
    pub store: String,
    /// Bytes that it holds of others.
    pub used_bytes: u64,
    /// Base volumes of which it holds something.
    pub clients: u64,
    /// Connections of clients.
    pub connections: u64,
}
