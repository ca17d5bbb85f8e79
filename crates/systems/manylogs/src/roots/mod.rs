//! Updates of the root: it names logs and sequences before their use, and snapshots of the table.

pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
