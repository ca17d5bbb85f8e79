//! Structures on the device besides the logs: the root and snapshots of the table. Also the table
//! in non-volatile RAM. The bytes are in `docs/format.md`.

pub mod equal_logs;
pub mod log_bitmap;
pub(crate) mod nvram;
mod nvram_error;
pub mod protective;
pub mod root;
pub mod snapshot;

pub use nvram_error::NvramError;
