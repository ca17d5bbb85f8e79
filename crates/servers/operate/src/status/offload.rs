//! The status of base volumes that borrow stores, and of lent stores.

use serde::{Deserialize, Serialize};

/// A base volume that off-loads writes to stores while it is busy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// Name of the base volume: 32 hexadecimal digits.
    #[serde(default)]
    pub base: String,
    /// idle, off-loads, reclaims, home, waits, alone or fenced.
    pub state: String,
    /// Why, in a sentence.
    pub why: String,
    /// Bytes whose newest version is in stores.
    pub held_bytes: u64,
    /// The most that they may hold, if `serve --held-max` bounds it.
    #[serde(default)]
    pub held_max_bytes: Option<u64>,
    /// Of those, bytes with only one copy.
    pub only_copy_bytes: u64,
    /// How many seconds ago the oldest range was written of those that only stores have; `null` if
    /// they have none. What was there when the server began counts from then.
    #[serde(default)]
    pub oldest_s: Option<f64>,
    /// Bytes that are lost with stores that were forgotten, or that came back with less than they
    /// had: read errors until they are written.
    #[serde(default)]
    pub lost_bytes: u64,
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
    /// lends, full, forgets, leaves, empty or away.
    pub state: String,
    /// Whether the base has noted that the store may hold data: opening the base then waits for the
    /// store.
    pub listed: bool,
    /// Whether the base has noted where the store is, so that every opening borrows it.
    #[serde(default)]
    pub kept: bool,
    /// Bytes whose newest version is in this store.
    pub held_bytes: u64,
    /// Of those, bytes that no other store has.
    pub only_copy_bytes: u64,
    /// If it takes no more writes: the bytes that it held when it began to leave, or when the base
    /// volume was opened. What is left of them is `held_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_from_bytes: Option<u64>,
    /// The time that a request would wait at the store.
    pub wait_ms: f64,
    /// Seconds since the store was last reached; zero while it is reachable.
    pub seen_s: f64,
}

/// A part of a disk that is lent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentStatus {
    /// Name of the store.
    pub store: String,
    /// Bytes that it holds for other volumes.
    pub used_bytes: u64,
    /// Base volumes for which it holds data.
    pub clients: u64,
    /// Most bytes that it holds for one of them; zero if its server does not say.
    #[serde(default)]
    pub each_bytes: u64,
    /// What it has of its disk's time while the disk's own clients wait, in per cent; zero if its
    /// server does not say.
    #[serde(default)]
    pub share_percent: u64,
    /// Connections of clients.
    pub connections: u64,
    /// These base volumes, and how much it holds of each, whether or not they are connected.
    #[serde(default)]
    pub held_for: Vec<HeldFor>,
}

/// What a lent part holds of a base volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFor {
    /// Name of the base volume: 32 hexadecimal digits.
    pub base: String,
    /// Bytes of which it holds a version.
    pub held_bytes: u64,
}
