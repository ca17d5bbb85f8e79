//! What the root says: logs and sequences ahead of their use, and snapshots of the table.

pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
pub(crate) mod update;
