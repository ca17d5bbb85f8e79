//! Requests of clients: reads, small and large writes, flushes.

mod append;
pub(crate) mod bypass;
pub(crate) mod flush;
pub(crate) mod home_lock;
pub(crate) mod read;
pub(crate) mod starved;
pub(crate) mod write;
