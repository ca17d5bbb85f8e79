//! ext4 on a [`manylogs_block::BlockDevice`]: asynchronous, in real or virtual time, with no I/O of
//! its own. The format is that of Linux, so that e2fsck and the kernel can check it.
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
//! **Updates are whole.** Metadata changes only through a handle, which holds a lock alone. When a
//! handle is finished, its changes are in the running transaction. When it is dropped unfinished,
//! they are undone. A transaction is closed when no handle is open.
//!
//! **Transactions are durable in order.** One runs and one is committed at a time. The commit block
//! is written when the transaction's other blocks, and all data that was written before, are
//! durable. Committed content goes home, never the current content of a buffer. The log's room is
//! given back when its content is durable at home.
//!
//! **Data is written before metadata refers to it.** A page without a block gets one that is
//! *claimed*: nobody else picks it, and its bit is clear. When the device has answered that the
//! data is written, a handle sets the bit, maps the block and moves the file's end. So no crash
//! shows earlier content of a block, and none leaves a block in use that no file has.
//!
//! **Freed blocks rest.** Blocks that a transaction frees are *held back* until it is durable and
//! none of their older content is on its way home. So after a crash, no file has blocks that were
//! overwritten by another.
//!
//! **Old contents do not come back.** A handle that frees a block of which the log may hold a copy
//! revokes it. Because freed blocks rest, no transaction both revokes a block and has a copy of it.
//!
//! **Nothing is lost between two transactions.** An inode that loses its last name, or is cut in
//! several steps, is in the list of orphans from the first transaction to the last. A mount deletes
//! or cuts the orphans that it finds.
//!
//! **Content may be metadata.** In [`Mode::Data`] pages go into the transactions that map them, and
//! no content is written past the journal. Freed blocks of content are revoked and forgotten as
//! blocks of metadata are, and reads prefer content that is newer than the device's. In
//! [`Mode::Runs`] this holds for short runs. Before a long run is written past the journal, all
//! transactions with older content of its blocks are made durable.
//!
//! **Content that needs durability and no place is metadata too.** In [`Mode::Runs`] the content of
//! files with the property [`DURABLE_XATTR`] goes into transactions whatever its length, if the
//! sink keeps such content ([`CommitSink::keeps`]). This may take several transactions; each maps
//! only blocks whose content it has. Before a file loses the property, its kept content is written
//! anew.
//!
//! **Shared blocks are copied.** A block of attributes that several inodes share is never changed,
//! except for its count of users. An inode whose attributes change gets its own block.
//!
//! **An inode's mode and its access control list agree.** They change in one handle.
//!
//! **Memory is bounded.** All memory that grows with programs' work holds a permit of [`Memory`]. A
//! task that waits for one holds nothing that write-back, a commit or a checkpoint needs.
//!
//! **Promises are kept.** A write into memory reserves its blocks, or fails. Blocks of metadata
//! come from a pool that data cannot reserve.
//!
//! **Corruption is an error.** Each number that is decoded is checked where it is decoded. Blocks
//! that files name lie within the file system and outside its own structures, or the operation
//! fails with [`Error::Corrupt`], which names the place. A failed commit makes all further changes
//! fail until the next mount.
//!
//! # What does not work yet
//!
//! Only one update of metadata runs at a time, and it waits for the blocks that it reads.

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
mod leads;
mod lock;
mod marks;
mod memory;
mod metadata;
mod ondisk;
mod ops;
mod pages_lock;
mod summary;
mod units;
mod xattr;

pub use ahead::ReadAhead;
pub use core::Mode;
pub use dir::Listed;
pub use error::{Corruption, Error, JournalLoss, Location, Refusal, Result};
pub use file::{Allocate, SIZE_MOST, Seek};
pub use inode::Descriptor;
pub use journal::{
    Cleaner, Closed, CommitSink, Contents, FREED_LEAST, IdleArranged, KeptInLog, LARGEST_LEAST,
    LastScrub, LogCopy, Logged, LoggedKind, Look, Looked, Moment, Newest, OldPart, Scrubbed,
    SinkStats, Step, Together,
};
pub use leads::{Leads, NotHome};
pub use marks::{Copies, Marks};
pub use memory::{Memory, Part, PartUse, Permit, Take};
pub use ondisk::inode::FileKind;
pub use ondisk::jbd2::Tid;
pub use ondisk::pointer::{Pointer, Stage};
pub use ops::{
    AccessTimes, Arranged, Attributes, Caller, Change, Changed, Credentials, Durability, Ext4,
    JOURNAL_BLOCKS_MOST, JournalRepaired, LOG_FILE_NAME, Lengthened, LogFile, New, NewTime,
    OpenFor, Options, ReplayProgress, SetIds, SetXattr, Taken, Usage, Wanted,
};
pub use summary::Summary;
pub use units::{BLOCK_BYTES, BlockNo, FileBlock, GroupNo, Ino, Run, Timestamp};
pub use xattr::{DURABLE_XATTR, DurableNames, PatternError};
