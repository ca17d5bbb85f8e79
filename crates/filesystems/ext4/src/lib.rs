//! ext4 on a [`manylogs_block::BlockDevice`]: asynchronous, in whatever time its executor keeps,
//! with no I/O of its own. The format is that of Linux, so that e2fsck and the kernel are judges.
//!
//! ```text
//!   ops        what programs ask for: mount, names, attributes, content
//!    |
//!   dir  file  inode  xattr directories; pages and writing back; births, ends, orphans; attributes
//!    |    |     |
//!   extents   alloc         which blocks are where (blockmap: as ext3 says it); which are free
//!    |         |
//!   journal    cache        handles, transactions, commits; blocks of metadata in memory
//!    |         |
//!    |       ahead          blocks of metadata that are read before somebody asks for them
//!    |
//!   CommitSink              jbd2: ext4's own journal (a log of records is another)
//!    |
//!   ondisk                  bytes, offsets, checksums; does no I/O
//! ```
//!
//! # What always holds
//!
//! **Updates are whole.** Metadata changes through a handle only, under a lock that nobody else
//! has. A handle is finished, and its changes are in the running transaction, or it is dropped,
//! and they are undone. A transaction is closed when no handle is open.
//!
//! **Transactions are durable in order.** One runs and one is committed at a time. The commit
//! block is written when the transaction's other blocks, and all data that was written before,
//! are durable. What goes home is what was committed, never what a buffer holds now. The log's
//! room is given back when what was in it is durable at home.
//!
//! **Data is before what refers to it.** A page without a block gets one that is *claimed*: nobody
//! else picks it, and its bit is clear. When the device has answered that the data is written, a
//! handle sets the bit, maps the block and moves the file's end. So no crash shows what a block
//! held before, and none leaves a block that nobody has.
//!
//! **Freed blocks rest.** Blocks that a transaction frees are *held back* until it is durable and
//! no older content of theirs is on its way home. So a crash never finds a file's blocks
//! overwritten that it still has.
//!
//! **Old contents do not come back.** A handle that frees a block of which the log may hold a copy
//! revokes it. As freed blocks rest, no transaction both revokes a block and has it.
//!
//! **Nothing is lost between two transactions.** An inode that loses its last name, or is cut in
//! several steps, is in the list of orphans from the first transaction to the last. A mount ends
//! the orphans that it finds.
//!
//! **Content may be metadata.** In [`Mode::Data`] pages go into the transactions that map them, and
//! no content is written past the journal. Blocks of content that are freed are revoked and
//! forgotten as blocks of metadata are, and reading prefers what is newer than the device. In
//! [`Mode::Runs`] that is so for short runs; before a long one is written past the journal, all
//! transactions are durable that have older content of its blocks.
//!
//! **What needs durability and no place is metadata, too.** In [`Mode::Runs`] the content of files
//! with the property [`DURABLE_XATTR`] goes into transactions whatever its length, as many as it
//! takes, if the sink keeps such content ([`CommitSink::keeps`]). Each maps no more blocks than it
//! has the content of. A file that loses the property is written anew before.
//!
//! **What is shared is copied.** A block of attributes that several inodes have is never changed,
//! but for the count of its users: who changes attributes gets a block of its own.
//!
//! **A mode and its list of access say the same.** They change in one handle.
//!
//! **Memory is bounded.** Whatever grows with what programs do holds a permit of [`Memory`]. Who
//! waits for one holds nothing that write-back, a commit or a checkpoint needs.
//!
//! **Promises are kept.** A write into memory reserves its blocks, or fails. Blocks of metadata
//! come out of a pool that data cannot reserve.
//!
//! **Corruption is an error.** Each number that is decoded is checked where it is decoded. Blocks
//! that files name lie within the file system and outside its own structures, or the operation
//! fails with [`Error::Corrupt`], which names the place. A failed commit makes all further changes
//! fail until the next mount.
//!
//! # What does not work yet
//!
//! One update of metadata goes on at a time, and waits for the blocks that it reads.

mod ahead;
mod alloc;
mod blockmap;
mod cache;
mod checksum;
mod core;
mod dir;
mod error;
mod extents;
mod file;
mod geometry;
mod inode;
mod journal;
mod lock;
mod marks;
mod memory;
mod ondisk;
mod ops;
mod pages_lock;
mod summary;
mod units;
mod xattr;

pub use ahead::ReadAhead;
pub use core::Mode;
pub use dir::Listed;
pub use error::{Corruption, Error, Place, Refusal, Result};
pub use file::{Allocate, SIZE_MOST, Seek};
pub use inode::Descriptor;
pub use journal::{
    Closed, CommitSink, FREED_LEAST, LARGEST_LEAST, LogCopy, Logged, LoggedKind, Newest, SinkStats,
    Step,
};
pub use marks::{Copies, Marks};
pub use memory::{Memory, Part, PartUse, Permit, Take};
pub use ondisk::inode::FileKind;
pub use ondisk::jbd2::Tid;
pub use ondisk::pointer::{Pointer, Stage};
pub use ops::{
    AccessTimes, Attributes, Caller, Change, Changed, Credentials, Durability, Ext4, LOG_FILE_NAME,
    LogFile, New, NewTime, OpenFor, Options, SetIds, SetXattr, Taken, Usage, Wanted,
};
pub use summary::Summary;
pub use units::{BLOCK_BYTES, BlockNo, FileBlock, GroupNo, Ino, Run, Timestamp};
pub use xattr::{DURABLE_XATTR, DurableNames, PatternError};
