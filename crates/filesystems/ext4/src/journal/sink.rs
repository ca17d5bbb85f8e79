//! The seam between transactions and what makes them durable.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use manylogs_block::{IoError, IoResult};

use crate::memory::Permit;
use crate::ondisk::jbd2::Tid;
use crate::units::{BlockNo, Run, Timestamp};

/// Work of a sink.
pub type Step<'a> = Pin<Box<dyn Future<Output = IoResult<()>> + 'a>>;

/// A transaction that changes no more.
#[derive(Debug)]
pub struct Closed {
    /// Its number; the next transaction has the next one.
    pub tid: Tid,
    /// What each of its blocks holds.
    pub blocks: BTreeMap<BlockNo, Logged>,
    /// Blocks whose older contents must not come back, as the transaction frees them. None of them
    /// is among `blocks`.
    pub revoked: Vec<BlockNo>,
    /// Blocks that the transaction frees: they are used again when it is durable.
    pub freed: Vec<Run>,
    /// Data was written past the journal since the transaction before was closed: it must be
    /// durable before this transaction, which may refer to it.
    pub data_written: bool,
    /// When it was closed.
    pub closed_at: Timestamp,
    /// Its memory.
    pub held: Permit,
}

/// A block of a transaction.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its content when the transaction was closed.
    pub bytes: Bytes,
    /// Its content in the transaction before; `None` if that is not known, or was not its own.
    pub before: Option<Bytes>,
    /// What it is.
    pub kind: LoggedKind,
}

/// What a block of a transaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedKind {
    /// Metadata.
    #[default]
    Metadata,
    /// Content of a file.
    Content,
    /// Content of a file that needs durability and no place: it may stay in the log for as long as
    /// it lives.
    DurableContent,
}

/// What a sink did since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Transactions that became durable.
    pub transactions: u64,
    /// Atomic units of the log that they took: as many, or fewer where some share one.
    pub records: u64,
    /// Flushes of the device that transactions waited for.
    pub flushes: u64,
    /// Appended to the log, with all that describes it.
    pub log_bytes: u64,
    /// Written home from the log.
    pub home_bytes: u64,
    /// Requests that wrote it.
    pub home_writes: u64,
    /// Newer in the log than at home, now.
    pub at_risk_bytes: u64,
}

impl SinkStats {
    /// What it did since it had done `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            records: self.records - before.records,
            flushes: self.flushes - before.flushes,
            log_bytes: self.log_bytes - before.log_bytes,
            home_bytes: self.home_bytes - before.home_bytes,
            home_writes: self.home_writes - before.home_writes,
            at_risk_bytes: self.at_risk_bytes,
        }
    }
}

/// Makes transactions durable, brings their blocks home, and finds them again after a crash.
///
/// ext4's own journal is one. A store of log records is another: a transaction is one atomic record
/// there, and a revoke an entry that supersedes older ones. What the file system reads and writes
/// past a sink goes to the device of the mount, which may be a layer that the sink belongs to.
///
/// Data that a transaction refers to was written, and the device answered, before the transaction
/// is given to [`CommitSink::commit`].
pub trait CommitSink {
    /// The largest transaction, in blocks: at least [`LARGEST_LEAST`].
    fn largest(&self) -> usize;

    /// The most runs of blocks that a transaction may free: at least [`FREED_LEAST`].
    fn most_freed(&self) -> usize {
        usize::MAX
    }

    /// Whether a run of content of so many blocks should go into the log now, where the mode leaves
    /// that to the sink ([`crate::Mode::Runs`]): if not, it is written home before its transaction.
    /// A sink takes no run that is longer than a quarter of the largest transaction.
    fn takes_content(&self, _blocks: u32) -> bool {
        false
    }

    /// Whether it may keep [`LoggedKind::DurableContent`], whatever its length. If not, such
    /// content is treated like any other.
    fn keeps(&self) -> bool {
        false
    }

    /// Those parts of `run` whose newest content is kept in the log, and durable there.
    fn kept(&self, _run: Run) -> Vec<Run> {
        Vec::new()
    }

    /// Whether transactions of `blocks` together can be committed without waiting for room.
    fn has_room(&self, blocks: usize) -> bool;

    /// Whether the log holds nothing that [`CommitSink::make_room`] could bring home.
    fn is_empty(&self) -> bool;

    /// Brings home what is durable in the log, so that there is more room.
    ///
    /// # Errors
    /// Those of the device; the log is as it was then.
    fn make_room(&self) -> Step<'_>;

    /// Brings home all that is durable in the log, which stays in use.
    ///
    /// # Errors
    /// Those of the device; the log is as it was then.
    fn bring_home(&self) -> Step<'_> {
        self.make_room()
    }

    /// Resolves when a transaction that is committed at once need not wait for other users of the
    /// device: who asks until then shares the transaction.
    fn turn(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Makes a transaction durable: after a crash all of it is found, or nothing. Its data is
    /// durable before it ([`Closed::data_written`]). One transaction is committed at a time, in the
    /// order of their numbers, and room for it is there.
    ///
    /// # Errors
    /// Those of the device. What is found after a crash is open then; nothing more is committed.
    fn commit<'a>(&'a self, transaction: &'a Closed) -> Step<'a>;

    /// Resolves when nothing is under way that writes to blocks which durable transactions freed.
    fn quiet(&self) -> Step<'_>;

    /// Where the content of a block is that is durable in the log and not at home yet.
    fn newest(&self, block: BlockNo) -> Option<Newest>;

    /// Those blocks of `run` whose content a recovery may take from the log.
    fn logged(&self, run: Run) -> Vec<BlockNo>;

    /// Says durably that damage was found, so that somebody checks before the next mount. What is
    /// in the log stays there. False if the sink has no place for that: then the superblock says
    /// it.
    ///
    /// # Errors
    /// Those of the device.
    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>>;

    /// What it did since the mount.
    fn stats(&self) -> SinkStats;

    /// Whether the log keeps what it holds when the file system is unmounted, so that the next user
    /// opens the log, or recovers.
    fn stays(&self) -> bool {
        false
    }

    /// Brings everything home and leaves a log that needs no recovery.
    ///
    /// # Errors
    /// Those of the device; a recovery is needed then.
    fn drain(&self) -> Step<'_>;
}

/// The newest content of a block that is not at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Newest {
    /// This is it.
    Bytes(Bytes),
    /// The log has it. Who has read it there asks again: the place may have been used anew.
    InLog(LogCopy),
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCopy {
    /// Where it is.
    pub at: BlockNo,
    /// The transaction that has it.
    pub tid: Tid,
    /// Its first word is zero in the log (see `Tag` in `ondisk/jbd2`).
    pub escaped: bool,
}

/// No handle changes more blocks, so no sink may take fewer in one transaction.
pub const LARGEST_LEAST: usize = 256;
/// No handle frees more runs of blocks.
pub const FREED_LEAST: usize = 256;

/// The sink of what is not written: there are no transactions.
#[derive(Debug)]
pub(crate) struct NoSink;

impl CommitSink for NoSink {
    fn largest(&self) -> usize {
        0
    }

    fn has_room(&self, _: usize) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn make_room(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn commit<'a>(&'a self, _: &'a Closed) -> Step<'a> {
        Box::pin(async { Err(IoError::ReadOnly { reason: "nothing is written here" }) })
    }

    fn quiet(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn newest(&self, _: BlockNo) -> Option<Newest> {
        None
    }

    fn logged(&self, _: Run) -> Vec<BlockNo> {
        Vec::new()
    }

    fn stats(&self) -> SinkStats {
        SinkStats::default()
    }

    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        Box::pin(async { Ok(true) })
    }

    fn drain(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }
}
