//! The status of clients over NBD.

use serde::{Deserialize, Serialize};

/// The clients over NBD, and what they may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdStatus {
    /// Number of connected clients.
    pub connections: u64,
    /// Largest number of clients.
    pub connections_max: u64,
    /// What requests under way and answers that nobody has fetched hold, of all of them.
    pub held_bytes: u64,
    /// Limit for one client.
    pub held_bytes_max: u64,
}
