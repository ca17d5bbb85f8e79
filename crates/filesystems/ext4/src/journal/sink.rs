//! The interface between transactions and the journal that makes them durable.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use manylogs_block::{Completion, Extent, IoResult, Time};

use super::age::Moment;
use super::clean::{Cleaner, OldPart};
use super::scrub::Looked;
use super::stats::SinkStats;
use crate::memory::Permit;
use crate::ondisk::jbd2::Tid;
use crate::units::{BlockNo, Run, Timestamp};

/// Work of a sink.
pub type Step<'a> = Pin<Box<dyn Future<Output = IoResult<()>> + 'a>>;

/// A closed transaction, which does not change any more.
#[derive(Debug)]
pub struct Closed {
    /// Its number; the next transaction has the next one.
    pub tid: Tid,
    /// The content of each of its blocks.
    pub blocks: BTreeMap<BlockNo, Logged>,
    /// Blocks that the transaction frees and whose older contents must not come back. None of them
    /// is among `blocks`.
    pub revoked: Vec<BlockNo>,
    /// Blocks that the transaction frees: they may be reused when it is durable.
    pub freed: Vec<Run>,
    /// Data was written past the journal since the transaction before was closed: it must be
    /// durable before this transaction, which may refer to it.
    pub data_written: bool,
    /// When it was closed, as the log has it.
    pub closed_at: Timestamp,
    /// The same by the runtime's clock.
    pub closed_by_runtime: Time,
    /// Its memory.
    pub held: Permit,
}

/// A block of a transaction.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its content when the transaction was closed.
    pub bytes: Bytes,
    /// Its content before the transaction; `None` if that is unknown, or the block was created
    /// anew.
    pub before: Option<Bytes>,
    /// Its kind.
    pub kind: LoggedKind,
    /// Whether it is unchanged, and only written anew ([`CommitSink::oldest_part`]).
    pub is_renewed: bool,
}

/// The kind of a block in a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedKind {
    /// Metadata.
    #[default]
    Metadata,
    /// Content of a file.
    Content,
    /// Content of a file that needs durability and no place: it may stay in the log as long as it
    /// is live.
    DurableContent {
        /// The file's owner.
        uid: u32,
    },
}

impl LoggedKind {
    /// Whether it is content that needs durability and no place.
    #[must_use]
    pub const fn needs_no_place(self) -> bool {
        matches!(self, Self::DurableContent { .. })
    }
}

/// Contents of blocks, as [`CommitSink::read_copies`] finds them.
pub type Contents<'a> = Pin<Box<dyn Future<Output = Vec<(BlockNo, Bytes)>> + 'a>>;

/// What [`CommitSink::look`] finds.
pub type Look<'a> = Pin<Box<dyn Future<Output = IoResult<Option<Looked>>> + 'a>>;

/// Makes transactions durable, brings their blocks home, and finds them again after a crash.
///
/// ext4's own journal is one sink. A store of log records is another: there a transaction is one
/// atomic record, and a revoke is an entry that supersedes older ones. Reads and writes that bypass
/// the sink go to the device of the mount, which may be a layer that the sink belongs to.
///
/// The data that a transaction refers to was written, and the device has answered, before
/// [`CommitSink::commit`] gets the transaction.
pub trait CommitSink {
    /// The largest transaction, in blocks: at least [`LARGEST_LEAST`].
    fn largest(&self) -> usize;

    /// The most runs of blocks that a transaction may free: at least [`FREED_LEAST`].
    fn most_freed(&self) -> usize {
        usize::MAX
    }

    /// Whether a run of content of this length should go into the log now, in
    /// [`crate::Mode::Runs`]. If not, it is written home before its transaction. A sink takes no
    /// run that is longer than a quarter of the largest transaction.
    fn takes_content(&self, _blocks: u32) -> bool {
        false
    }

    /// Whether it may keep [`LoggedKind::DurableContent`], whatever its length. If not, such
    /// content is treated like any other.
    fn keeps(&self) -> bool {
        false
    }

    /// The parts of `run` whose newest content is kept in the log, and durable there.
    fn kept(&self, _run: Run) -> Vec<Run> {
        Vec::new()
    }

    /// Whether transactions with `blocks` blocks together can be committed without waiting for
    /// room.
    fn has_room(&self, blocks: usize) -> bool;

    /// Whether the log holds nothing that [`CommitSink::make_room`] could bring home.
    fn is_empty(&self) -> bool;

    /// Brings durable content of the log home, so that there is more room.
    ///
    /// # Errors
    /// Those of the device; the log is as it was then.
    fn make_room(&self) -> Step<'_>;

    /// Whether room should be made before somebody waits for it; the largest transaction has
    /// `largest` blocks.
    fn is_filling(&self, largest: usize) -> bool {
        !self.has_room(2 * largest)
    }

    /// The oldest part of a log that keeps its content: see [`OldPart`]. `None` if nothing of it is
    /// durable, or if the log keeps nothing.
    fn oldest_part(&self) -> Option<OldPart> {
        None
    }

    /// Reads these copies where they still are the newest ones, in the order of the log. Copies
    /// that cannot be read, or are damaged, are left out.
    fn read_copies<'a>(&'a self, _copies: &'a [(BlockNo, LogCopy)]) -> Contents<'a> {
        Box::pin(async { Vec::new() })
    }

    /// Reads a part of a log that keeps its content, behind transaction `after` or from the
    /// beginning on. `None` if there is nothing more.
    ///
    /// # Errors
    /// Those of the device, unless its medium is bad.
    fn look(&self, _after: Option<Tid>) -> Look<'_> {
        Box::pin(async { Ok(None) })
    }

    /// Brings home what is still the newest content in transactions up to `newest`, and gives their
    /// room back.
    ///
    /// # Errors
    /// As [`CommitSink::make_room`].
    fn give_back(&self, _newest: Tid) -> Step<'_> {
        self.make_room()
    }

    /// How many blocks of the room are left to what is written anew, so that it need not wait for
    /// the room that it makes.
    fn kept_free(&self) -> usize {
        0
    }

    /// Sets what is written anew.
    fn clean_by(&self, _cleaner: Cleaner) {}

    /// Brings all durable content of the log home. The log stays in use.
    ///
    /// # Errors
    /// Those of the device; the log is as it was then.
    fn bring_home(&self) -> Step<'_> {
        self.make_room()
    }

    /// Whether content of the log goes home some time after its last change
    /// ([`CommitSink::bring_old_home`]), whoever uses the device meanwhile.
    fn expires(&self) -> bool {
        false
    }

    /// Whether the log has transactions that are durable and were closed before `before`, by one of
    /// its clocks. That of the runtime counts for those since the mount.
    fn has_older(&self, _before: Moment) -> bool {
        false
    }

    /// Brings home what these changed last, and gives their room back. A log that keeps its content
    /// does so for some of them, the oldest: so much that whoever comes meanwhile waits little.
    ///
    /// # Errors
    /// As [`CommitSink::bring_home`].
    fn bring_old_home(&self, _before: Moment) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    /// Resolves when a commit need not wait for other users of the device. Syncs that come before
    /// share the transaction.
    fn turn(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Makes a transaction durable: after a crash all of it is found, or nothing. The sink makes
    /// its data durable before it ([`Closed::data_written`]). One transaction is committed at a
    /// time, in the order of their numbers, and there is room for it.
    ///
    /// # Errors
    /// Those of the device. Then a crash may leave the transaction or not, and nothing more is
    /// committed.
    fn commit<'a>(&'a self, transaction: &'a Closed) -> Step<'a>;

    /// Whether a commit changes what the device of the mount returns for the blocks of a
    /// transaction and for those that it frees. Else [`CommitSink::newest`] alone finds what was
    /// committed.
    fn changes_device(&self) -> bool {
        false
    }

    /// The part of `run` around `block`, which lies in it, that the device of the mount reads in
    /// one piece. It is advice about speed.
    fn in_one_piece(&self, _block: BlockNo, run: Run) -> Run {
        run
    }

    /// Where the device of the mount has a block: what lies side by side there is read in less
    /// time. It is advice about speed.
    fn lies_at(&self, block: BlockNo) -> BlockNo {
        block
    }

    /// Begins to read a block of metadata, with others that lie around it in a log, `blocks` at
    /// most, by one read. `None`, and nothing is read, if it does not lie in a log in one piece.
    fn read_around(&self, _block: BlockNo, _blocks: u32) -> Option<Together> {
        None
    }

    /// Resolves when no write is under way to blocks that durable transactions freed.
    fn quiet(&self) -> Step<'_>;

    /// The newest content of a block, if it is durable in the log and not at home yet.
    fn newest(&self, block: BlockNo) -> Option<Newest>;

    /// Whether a copy in the log is the newest durable one of its block, and that is not at home
    /// yet. It is so too if the content is in memory.
    fn is_newest(&self, block: BlockNo, copy: &LogCopy) -> bool {
        matches!(self.newest(block), Some(Newest::InLog(found)) if found == *copy)
    }

    /// Whether `bytes`, which were read where the copy is, are what was written there.
    fn is_whole(&self, _copy: &LogCopy, _bytes: &[u8]) -> bool {
        true
    }

    /// Gives a damaged copy in the log, at `extent`, its content back, which `committed` may know.
    /// False if it does not know it: then the log cannot be emptied.
    fn heal(&self, _extent: Extent, _committed: &dyn Fn(BlockNo) -> Option<Bytes>) -> bool {
        false
    }

    /// The blocks of `run` whose content a recovery may take from the log.
    fn logged(&self, run: Run) -> Vec<BlockNo>;

    /// Notes durably that damage was found, so that the next mount is refused until a check. The
    /// log's content stays there. False if the sink has no place for the note: then the superblock
    /// says it.
    ///
    /// # Errors
    /// Those of the device.
    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>>;

    /// Counters since the mount.
    fn stats(&self) -> SinkStats;

    /// Whether the log keeps its content when the file system is unmounted, so that the next user
    /// opens or replays it. Such a log must have its own [`CommitSink::oldest_part`] and
    /// [`CommitSink::look`]: else nobody who waits for room gets any, and a scrub finds nothing.
    fn stays(&self) -> bool {
        false
    }

    /// How many blocks may be written to a log that keeps its content, so that each lies behind the
    /// one before, and the last does not push the first out; `None` if its content goes home.
    fn arranges(&self) -> Option<u64> {
        None
    }

    /// What a log that keeps its content has.
    fn kept_in_log(&self) -> Option<KeptInLog> {
        None
    }

    /// Whether so much was logged since [`CommitSink::save_map`] that it should be called again.
    fn is_map_old(&self) -> bool {
        false
    }

    /// Saves what the next opening of a log that keeps its content needs, so that it need not read
    /// the whole log; `is_left` if nothing will be committed before that. Nothing depends on it.
    ///
    /// # Errors
    /// Those of the device.
    fn save_map(&self, _is_left: bool) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    /// Brings everything home and leaves a log that needs no recovery.
    ///
    /// # Errors
    /// Those of the device; a recovery is needed then.
    fn drain(&self) -> Step<'_>;
}

/// What a log holds that keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptInLog {
    /// Bytes of the log.
    pub size_bytes: u64,
    /// Bytes that transactions take.
    pub used_bytes: u64,
    /// Bytes of blocks that are newer there than at home.
    pub live_bytes: u64,
    /// When the oldest transaction was closed: what is at home is of that time.
    pub oldest: Option<Timestamp>,
}

/// What one read of a log brings ([`CommitSink::read_around`]).
#[derive(Debug)]
pub struct Together {
    /// The blocks of metadata, in order; the one that was asked for is among them.
    pub blocks: Vec<BlockNo>,
    /// Their contents, one behind the other, as the device had them when the read began.
    pub content: Completion,
}

/// The newest content of a block that is not at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Newest {
    /// The content itself.
    Bytes(Bytes),
    /// The content is in the log. After reading it there, the caller must ask again, because the
    /// place may have been reused meanwhile.
    InLog(LogCopy),
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCopy {
    /// The block with the copy.
    pub at: BlockNo,
    /// The transaction that has it.
    pub tid: Tid,
    /// Its first word is zero in the log (see `Tag` in `ondisk/jbd2`).
    pub escaped: bool,
    /// Its checksum in the log, for [`CommitSink::is_whole`].
    pub checksum: u32,
}

/// Most blocks that a handle changes: every sink must take as many in one transaction.
pub const LARGEST_LEAST: usize = 256;
/// Most runs of blocks that a handle frees.
pub const FREED_LEAST: usize = 256;
