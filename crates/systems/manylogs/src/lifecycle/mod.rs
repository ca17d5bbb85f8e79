//! Format, opening and recovery, growing, leaving.

pub(crate) mod close;
pub(crate) mod columns;
pub(crate) mod create;
pub(crate) mod geometry;
pub(crate) mod grow;
pub(crate) mod identity;
pub(crate) mod mend_rows;
pub(crate) mod old_end;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod probe;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod scattered;
pub(crate) mod structures;
pub(crate) mod superblocks;
