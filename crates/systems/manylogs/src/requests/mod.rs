//! Requests of clients: reads, small and large writes, flushes.

pub(crate) mod adaptive;
pub(crate) mod ahead;
mod append;
pub(crate) mod bypass;
pub(crate) mod flush;
pub(crate) mod home_lock;
pub(crate) mod home_writes;
pub(crate) mod read;
pub(crate) mod runs;
pub(crate) mod starved;
pub(crate) mod write;
