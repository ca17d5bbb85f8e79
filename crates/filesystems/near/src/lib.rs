//! MLFS's journal near the head (the Manylogs paper, sections III and IV): each transaction of ext4
//! is one atomic record, appended to the log nearest to where the head is.
//!
//! ```text
//!   manylogs_ext4    handles, transactions, data
//!      |        \\
//!      |      NearSink   a transaction becomes a batch: entries of data and supersede entries
//!      |        /
//!   manylogs::Volume     logs, table, checkpoints, recovery; homes at their own addresses
//!      |
//!    device
//! ```
//!
//! # What always holds
//!
//! **A transaction is one record, and never split.** [`manylogs_ext4::CommitSink::largest`] closes
//! transactions before they outgrow the largest record. Small data travels in the record. A commit
//! costs one write and no flush. Only if long runs of data were written home before, they are made
//! durable first.
//!
//! **A crash leaves a prefix.** One transaction is committed at a time, and all batches are of one
//! [`manylogs_logstore::store::Stream`]. So if a transaction survives, all earlier ones do.
//!
//! **Freed blocks are superseded** in the record that frees them, if a log holds a version of them.
//! So neither a recovery nor a checkpoint overwrites their next use with an old version.
//!
//! **Nothing is replayed.** The volume's recovery rebuilds its table, and ext4 is read through it.
//!
//! **Writers wait, and do not fail, while logs are full**, or the volume's table has used its share
//! of memory: a handle starts when the largest transaction has room.

mod leads;
mod lost;
mod mount;
mod owned;
mod sink;
mod spare;
mod table;

pub use lost::give_up_lost;
pub use mount::{
    LOG_LEAST, Near, NearError, NearOpening, NearOptions, Placed, RECORD_LEAST, format,
    format_config,
};
pub use sink::Granularity;
