//! When records are written, and in which log.

pub(crate) mod commit;
pub(crate) mod hold;
pub(crate) mod largest;
pub(crate) mod placement;
