//! Work that moves logged versions: checkpoints, which copy them home, and swaps between logs.

pub(crate) mod checkpoint;
pub(crate) mod maintenance;
pub(crate) mod swap;
