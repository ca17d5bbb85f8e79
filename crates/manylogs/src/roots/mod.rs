//! What the root says: logs and sequences ahead of their use, and snapshots of the table.

pub(crate) mod reserve;
pub(crate) mod snapshot;
pub(crate) mod update;
