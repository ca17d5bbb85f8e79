//! Content of files: reading, writing into memory, and write-back to the device.

mod allocate;
mod backlog;
mod failures;
mod journalled;
mod let_go;
mod pass;
mod place;
mod read;
mod seek;
mod sync;
mod together;
mod write;
mod writeback;

pub use allocate::Allocate;
pub(crate) use backlog::Backlog;
pub use seek::Seek;
pub use write::SIZE_MOST;
pub(crate) use writeback::Times;
