//! The status of clients over NBD.

use serde::{Deserialize, Serialize};

/// The clients over NBD, and what they may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdStatus {
    /// Number of connected clients.
    pub connections: u64,
    /// Largest number of clients.
    pub connections_max: u64,
    /// Bytes held by requests under way and by answers not yet sent, of all clients.
    pub held_bytes: u64,
    /// Limit of `held_bytes` for one client.
    pub held_bytes_max: u64,
}
