//! What a store keeps on its device besides the logs: the root and snapshots of the table, and the
//! table in non-volatile RAM. The bytes are in `docs/format.md`.

pub(crate) mod nvram;
mod nvram_error;
pub mod root;
pub mod snapshot;
pub mod touched;

pub use nvram_error::NvramError;
