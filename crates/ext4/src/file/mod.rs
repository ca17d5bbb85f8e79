//! Content of files: reading, writing into memory, and bringing that to the device.

mod read;
mod sync;
mod write;
mod writeback;

pub(crate) use write::SIZE_MOST;
