//! A scrub of a log that keeps its content: what is live there is read before it is needed.
//!
//! A damaged copy is written anew if its content is in memory; nobody may know it tomorrow. Else it
//! is told, with what it holds: the next replay would lose it. A damaged descriptor loses nothing
//! as long as the file system is mounted, but the replay of a kernel would end there. So all that
//! lies up to it goes home.

use manylogs_block::{Nanos, Time};
use manylogs_plant::{Bug, is};

use super::LogCopy;
use super::clean::AT_ONCE;
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
    /// Damaged ones whose content nobody has: they would be lost, with what they hold.
    pub lost: Vec<(BlockNo, String)>,
    /// It stopped before its end: the file system closes, the journal has no room for what should
    /// be written anew, or, in idle time, the device failed.
    pub is_cut_short: bool,
}

impl Scrubbed {
    fn add(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.renewed += more.renewed;
        self.brought_home += more.brought_home;
        self.torn_left += more.torn_left;
        self.lost.extend(more.lost);
        self.is_cut_short |= more.is_cut_short;
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
}

impl Scrubs {
    /// Notes that a scrub has ended. The next one in idle time is due after a pause.
    fn end(&mut self, now: Time, found: Scrubbed) {
        let pause = if found.is_cut_short { FIRST } else { EVERY };
        self.due = Some(now + pause);
        self.last = Some((now, found));
    }
}

impl Ext4 {
    /// Reads all live blocks of a journal that keeps its content ([`crate::Mode::Lazy`]), and
    /// compares them with their checksums. Damaged ones are written anew, durably, if their content
    /// is in memory. Others go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in other modes, [`Error::ReadOnly`], and those of the device.
    pub async fn scrub_journal(&self) -> Result<Scrubbed> {
        let core = &*self.core;
        core.check_writable()?;
        if !core.journal.sink.stays() {
            return Err(Error::Unsupported("scrubbing a journal that keeps nothing"));
        }
        let scrubbed = core.scrub_all().await;
        let (found, failure) = match scrubbed {
            Ok(found) => (found, None),
            Err((found, error)) => (Scrubbed { is_cut_short: true, ..found }, Some(error)),
        };
        core.journal.scrubs.borrow_mut().end(core.runtime.now(), found.clone());
        failure.map_or(Ok(found), Err)
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
    /// Scrubs the log up to what is committed now; an error has what was found before it.
    async fn scrub_all(&self) -> Result<Scrubbed, (Scrubbed, Error)> {
        // What is committed meanwhile is not followed: there may be no end of it.
        let end = Tid(self.journal.running().0.wrapping_sub(1));
        let (mut all, mut after) = (Scrubbed::default(), None);
        loop {
            let (newest, found) = match self.scrub_part(after).await {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(all),
                Err(error) => return Err((all, error)),
            };
            all.add(found);
            if all.is_cut_short || newest.is_at_least(end) {
                return Ok(all);
            }
            after = Some(newest);
        }
    }

    /// Takes a step of the scrub in idle time, if one is due. Returns whether it did.
    pub(super) async fn scrub_meanwhile(&self) -> bool {
        // The clock of the wall may jump.
        let now = self.runtime.now();
        let after = {
            let mut scrub = self.journal.scrubs.borrow_mut();
            // One that is under way goes on.
            if now < *scrub.due.get_or_insert(now + FIRST) && scrub.after.is_none() {
                return false;
            }
            scrub.after
        };
        let found = self.scrub_part(after).await;
        let mut scrub = self.journal.scrubs.borrow_mut();
        scrub.after = match found {
            Ok(Some((newest, found))) => {
                let goes_on = !found.is_cut_short;
                scrub.under_way.add(found);
                goes_on.then_some(newest)
            }
            Ok(None) => None,
            Err(_) => {
                scrub.under_way.is_cut_short = true;
                None
            }
        };
        if scrub.after.is_some() {
            return true;
        }
        // It has come to the end, or cannot go on; then it begins again soon.
        let found = std::mem::take(&mut scrub.under_way);
        scrub.end(self.runtime.now(), found);
        false
    }

    /// Scrubs the part of the log behind transaction `after`. Returns the newest transaction of it;
    /// `None` behind the last part.
    async fn scrub_part(&self, after: Option<Tid>) -> Result<Option<(Tid, Scrubbed)>> {
        let Some(looked) = self.journal.sink.look(after).await? else { return Ok(None) };
        self.journal.scrubs.borrow_mut().blocks += looked.live;
        let mut found = Scrubbed { blocks: looked.live, ..Scrubbed::default() };
        for some in looked.damaged.chunks(AT_ONCE) {
            if !self.mend(some, &mut found).await? {
                found.is_cut_short = true;
                return Ok(Some((looked.newest, found)));
            }
        }
        let Some(torn) = looked.torn else { return Ok(Some((looked.newest, found))) };
        if !found.lost.is_empty() {
            found.torn_left += 1;
        } else if self.journal.closing.get() {
            found.is_cut_short = true;
        } else {
            match self.healing(|sink| sink.give_back(torn)).await {
                Ok(()) => found.brought_home += 1,
                // A copy of an earlier part is lost.
                Err(error) if error.is_damage() => found.torn_left += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some((looked.newest, found)))
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
            match self.cache.get(*block) {
                Some(buffer) if !is(Bug::LazyScrubLeaves) => {
                    handle.renew(&buffer);
                    renewed += 1;
                }
                _ => found.lost.push((*block, self.use_of(*block))),
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
