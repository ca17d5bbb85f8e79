//! What moves logged versions: checkpoints home, swaps between logs, and when.

pub(crate) mod checkpoint;
pub(crate) mod maintenance;
pub(crate) mod swap;
