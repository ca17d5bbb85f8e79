//! Updates of the root, which names logs and sequences before their use, and snapshots of the
//! table.

pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
