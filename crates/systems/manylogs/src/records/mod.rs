//! Writes records: when they go, and to which log.

pub(crate) mod columns;
pub(crate) mod commit;
pub(crate) mod hold;
pub(crate) mod largest;
pub(crate) mod own;
pub(crate) mod placement;
