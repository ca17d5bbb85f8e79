//! A scrub of a log that keeps its content: what is live there is read before it is needed.
//!
//! A damaged copy is written anew if its content is in memory; nobody may know it tomorrow. Else it
//! is told, with what it holds: the next replay would lose it. A damaged descriptor loses nothing
//! as long as the file system is mounted, but the replay of a kernel would end there. So all that
//! lies up to it goes home.

use std::rc::Rc;

use manylogs_block::{Nanos, Time};
use manylogs_plant::{Bug, is};

use super::clean::AT_ONCE;
use super::{LogCopy, Newest};
use crate::cache::Buffer;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::ondisk::jbd2::Tid;
use crate::ops::Ext4;
use crate::units::{BlockNo, GroupNo};

/// Time from a mount to the first scrub in idle time, and between two.
const FIRST: Nanos = Nanos::from_secs(3600);
const EVERY: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// What [`CommitSink::look`](super::CommitSink::look) found in a part of a log.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The newest transaction of the part.
    pub newest: Tid,
    /// Live copies that were read.
    pub live: u64,
    /// Those that are damaged.
    pub damaged: Vec<(BlockNo, LogCopy)>,
    /// The newest transaction of which a descriptor, a revoke block or the commit block is damaged.
    pub torn: Option<Tid>,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Live blocks of the journal that were read.
    pub blocks: u64,
    /// Damaged ones that were written anew, durably.
    pub renewed: u64,
    /// Parts of the journal with a damaged descriptor: everything up to the last one in each went
    /// home.
    pub brought_home: u64,
    /// Parts with a damaged descriptor that stay as they are, because a copy up to there is lost.
    /// The replay of a kernel would end in the first of them.
    pub torn_left: u64,
    /// Damaged ones whose content nobody has: they would be lost.
    pub lost: u64,
    /// The first of these, at most [`Scrubbed::NAMED`], with what they hold.
    pub named: Vec<(BlockNo, String)>,
    /// It stopped before its end: the file system closes, the journal has no room for what should
    /// be written anew, or the device failed.
    pub is_cut_short: bool,
    /// How the device failed, or the journal, if that ended it.
    pub failure: Option<Error>,
}

impl Scrubbed {
    /// The most lost blocks that are named: a disk that fails may lose millions.
    pub const NAMED: usize = 100;

    /// Notes a lost block; `holds` says what it holds.
    fn lose(&mut self, block: BlockNo, holds: impl FnOnce() -> String) {
        self.lost += 1;
        if self.named.len() < Self::NAMED {
            self.named.push((block, holds()));
        }
    }

    /// Notes that an error has ended it. What was found before stays.
    fn fail(&mut self, error: Error) {
        self.is_cut_short = true;
        self.failure = Some(error);
    }
}

/// A scrub that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastScrub {
    /// For how long it has been over.
    pub ended_ago: Nanos,
    /// What it found.
    pub found: Scrubbed,
}

/// The scrubs since the mount.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    /// When the next one in idle time is due.
    due: Option<Time>,
    /// Up to which transaction the one in idle time has come.
    after: Option<Tid>,
    /// What the one in idle time has found so far.
    under_way: Scrubbed,
    /// The last that has ended, in idle time or not, and when.
    last: Option<(Time, Scrubbed)>,
    /// Live blocks that all of them have read.
    blocks: u64,
    /// How often one that was asked for has read all of the log: what one in idle time has found
    /// before is outdated then.
    generation: u64,
    /// Whether those that are under way end early, and no more begin.
    is_ending: bool,
}

impl Scrubs {
    /// Notes that a scrub has ended. The next one in idle time is due after a pause.
    fn end(&mut self, now: Time, found: Scrubbed) {
        let pause = if found.is_cut_short { FIRST } else { EVERY };
        self.due = Some(now + pause);
        self.last = Some((now, found));
    }

    /// As [`Scrubs::end`], of one that was asked for.
    fn end_asked(&mut self, now: Time, found: Scrubbed) {
        if !found.is_cut_short {
            self.generation += 1;
            self.after = None;
            self.under_way = Scrubbed::default();
        }
        self.end(now, found);
    }
}

impl Ext4 {
    /// Reads all live blocks of a journal that keeps its content ([`crate::Mode::Lazy`]), and
    /// compares them with their checksums. Damaged ones are written anew, durably, if their content
    /// is in memory. Others go on meanwhile. An error of the device ends it, and is in
    /// [`Scrubbed::failure`] beside what was found before.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in other modes, and [`Error::ReadOnly`].
    pub async fn scrub_journal(&self) -> Result<Scrubbed> {
        let core = &*self.core;
        core.check_writable()?;
        if !core.journal.sink.stays() {
            return Err(Error::Unsupported("scrubbing a journal that keeps nothing"));
        }
        let found = core.scrub_all().await;
        core.journal.scrubs.borrow_mut().end_asked(core.runtime.now(), found.clone());
        Ok(found)
    }

    /// Ends scrubs of the journal, as an unmount does: one that is under way ends after the part
    /// that it reads, cut short, and each later one at once. Whoever waits for all work before an
    /// unmount calls it first. What was renewed is durable.
    pub fn end_scrubs(&self) {
        self.core.journal.scrubs.borrow_mut().is_ending = true;
    }

    /// The last scrub since the mount that has ended, in idle time or by [`Ext4::scrub_journal`].
    #[must_use]
    pub fn last_scrub(&self) -> Option<LastScrub> {
        let scrubs = self.core.journal.scrubs.borrow();
        let (ended, found) = scrubs.last.clone()?;
        Some(LastScrub { ended_ago: self.core.runtime.now().since(ended), found })
    }

    /// How many live blocks of the journal scrubs have read since the mount: one that is under way
    /// counts, so that its progress is seen.
    #[must_use]
    pub fn scrubbed_blocks(&self) -> u64 {
        self.core.journal.scrubs.borrow().blocks
    }
}

impl Metadata {
    /// Scrubs the log up to what is committed now.
    async fn scrub_all(&self) -> Scrubbed {
        // What is committed meanwhile is not followed: there may be no end of it.
        let end = Tid(self.journal.running().0.wrapping_sub(1));
        let (mut found, mut after) = (Scrubbed::default(), None);
        loop {
            if self.ends_scrubs() {
                found.is_cut_short = true;
                return found;
            }
            after = self.scrub_part(after, &mut found).await;
            if after.is_none_or(|newest| newest.is_at_least(end)) {
                return found;
            }
        }
    }

    /// Whether scrubs end early.
    fn ends_scrubs(&self) -> bool {
        self.journal.closing.get() || self.journal.scrubs.borrow().is_ending
    }

    /// Takes a step of the scrub in idle time, if one is due. Returns whether it did.
    pub(super) async fn scrub_meanwhile(&self) -> bool {
        // The clock of the wall may jump.
        let now = self.runtime.now();
        if self.ends_scrubs() {
            return false;
        }
        let (after, generation, mut found) = {
            let mut scrub = self.journal.scrubs.borrow_mut();
            // One that is under way goes on.
            if now < *scrub.due.get_or_insert(now + FIRST) && scrub.after.is_none() {
                return false;
            }
            (scrub.after, scrub.generation, scrub.under_way.clone())
        };
        let newest = self.scrub_part(after, &mut found).await;
        let mut scrub = self.journal.scrubs.borrow_mut();
        if scrub.generation != generation {
            // A later one has read all of the log meanwhile, and is the last.
            return false;
        }
        scrub.after = newest;
        if newest.is_some() {
            scrub.under_way = found;
            return true;
        }
        // It has come to the end, or cannot go on; then it begins again soon.
        scrub.under_way = Scrubbed::default();
        scrub.end(self.runtime.now(), found);
        false
    }

    /// Scrubs the part of the log behind transaction `after`, and adds what it finds. Returns the
    /// newest transaction of the part; `None` behind the last one, or if the scrub is cut short.
    async fn scrub_part(&self, after: Option<Tid>, found: &mut Scrubbed) -> Option<Tid> {
        let newest = self.try_part(after, found).await;
        newest.unwrap_or_else(|error| {
            found.fail(error);
            None
        })
    }

    /// As [`Metadata::scrub_part`].
    ///
    /// # Errors
    /// Those of the device. What was found before is in `found`.
    async fn try_part(&self, after: Option<Tid>, found: &mut Scrubbed) -> Result<Option<Tid>> {
        let Some(looked) = self.journal.sink.look(after).await? else { return Ok(None) };
        self.journal.scrubs.borrow_mut().blocks += looked.live;
        found.blocks += looked.live;
        let lost_before = found.lost;
        for some in looked.damaged.chunks(AT_ONCE) {
            if self.ends_scrubs() || !self.mend(some, found).await? {
                found.is_cut_short = true;
                return Ok(None);
            }
        }
        let Some(torn) = looked.torn else { return Ok(Some(looked.newest)) };
        if found.lost > lost_before {
            found.torn_left += 1;
        } else if self.ends_scrubs() {
            found.is_cut_short = true;
            return Ok(None);
        } else {
            match self.healing(|sink| sink.give_back(torn)).await {
                Ok(()) => found.brought_home += 1,
                // A copy of an earlier part is lost.
                Err(error) if error.is_damage() => found.torn_left += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(looked.newest))
    }

    /// Writes damaged copies anew whose content is in memory. Returns false if it had to stop,
    /// because the file system closes or the log has no room: nobody commits any more then.
    async fn mend(&self, some: &[(BlockNo, LogCopy)], found: &mut Scrubbed) -> Result<bool> {
        let Some(mut handle) = self.begin_meanwhile(some.len()).await? else { return Ok(false) };
        let mut renewed = 0;
        for (block, copy) in some {
            // Nobody needs a copy of what was changed or freed since it was read.
            if !self.journal.is_unchanged(*block, copy) {
                continue;
            }
            match self.known(*block) {
                Some(buffer) if !is(Bug::LazyScrubLeaves) => {
                    handle.renew(&buffer);
                    renewed += 1;
                }
                _ => found.lose(*block, || self.use_of(*block)),
            }
        }
        let tid = handle.finish();
        if renewed == 0 {
            return Ok(true);
        }
        self.journal.settle(tid).await?;
        let is_durable = self.journal.is_durable(tid);
        if is_durable {
            found.renewed += renewed;
        }
        Ok(is_durable)
    }

    /// The content of a block, if it is in memory: in the cache, or in the log's map, where a
    /// checkpoint that failed later has left it.
    fn known(&self, block: BlockNo) -> Option<Rc<Buffer>> {
        let in_map = || match self.journal.newest(block) {
            Some(Newest::Bytes(bytes)) => Some(self.cache.insert(block, bytes)),
            Some(Newest::InLog(_)) | None => None,
        };
        self.cache.get(block).or_else(in_map)
    }

    /// What a block of metadata is used for, in words.
    fn use_of(&self, block: BlockNo) -> String {
        if block == BlockNo(0) {
            return "the superblock".to_owned();
        }
        if self.tables.iter().any(|table| table.block() == block) {
            return "descriptors of groups".to_owned();
        }
        let blocks = u64::from(self.geometry.table_blocks());
        for group in (0..self.geometry.groups).map(GroupNo) {
            let (bitmaps, table) = self.group(group, |group| {
                ([group.block_bitmap(), group.inode_bitmap()], group.inode_table())
            });
            if bitmaps.contains(&block) {
                return format!("a bitmap of group {}", group.0);
            }
            if (table.0..table.0 + blocks).contains(&block.0) {
                let each = (crate::units::BLOCK_BYTES / self.geometry.inode_bytes) as u64;
                let before = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
                let first = before + (block.0 - table.0) * each + 1;
                return format!("inodes {first} to {}", first + each - 1);
            }
        }
        "a block of a directory, a symbolic link, attributes, or a map of blocks".to_owned()
    }
}
