//! Arranging metadata that stays in the journal: it is written there anew, in the order in which a
//! walk of the tree meets it. Read-ahead then finds behind each block what the walk needs next.
//!
//! What is renewed is the content that a handle finds: all changes before it are in it, and a block
//! that was freed meanwhile is no part of the directory any more. So a renewal is a change like any
//! other, and a crash leaves it done or not.

mod pace;

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use super::Ext4;
use super::order::Order;
use crate::cache::{Buffer, read_block};
use crate::error::{Error, Result};
use crate::journal::{Handle, Newest};
use crate::memory::Part;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode};
use crate::ondisk::jbd2::Tid;
use crate::units::{BlockNo, FileBlock, Ino, Run};
pub(crate) use pace::Pace;

/// Blocks of a transaction of what is renewed: less than 1 MiB, which a window of read-ahead holds,
/// so that it does not matter that a transaction is sorted by homes. And a sync that comes
/// meanwhile waits for no more than that.
const AT_ONCE: usize = 240;
/// Most blocks that are renewed for a block of a directory: itself, and the nodes on the way to it.
const DEEPEST: usize = 8;

/// Blocks of a directory that are looked at in one update at most.
const STEP: usize = 128;

/// What [`Ext4::arrange`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Directories that were walked.
    pub directories: u64,
    /// Blocks of metadata that were written to the journal anew.
    pub blocks: u64,
    /// Whether the whole tree was walked. Else the rest would have pushed out of the journal what
    /// was arranged first.
    pub is_whole: bool,
}

/// A walk that renews what it meets, or only looks at it.
pub(crate) struct Arranging<'c> {
    core: &'c Metadata,
    pace: Pace,
    /// What it only looks at, if it renews nothing.
    looks: Option<Order>,
    /// Whether blocks are renewed that lie at home.
    takes_homes: bool,
    /// Blocks with a copy of this transaction, or of a later one, are not renewed.
    since: Tid,
    /// How many blocks may still be renewed.
    left: u64,
    /// Whether it ended, or left something out, before it met all.
    is_cut: bool,
    /// Blocks that were renewed since the last commit.
    waiting: usize,
    /// How many requests there were for the device when the step began.
    requests: u64,
    /// What blocks held before the last pause; only where a bug is planted.
    seen: BTreeMap<BlockNo, Bytes>,
    done: Arranged,
}

impl Ext4 {
    /// Walks the whole tree, each directory before those in it, and writes directories and inodes
    /// to the journal anew, in that order. At most half of the journal is filled. Others go on
    /// meanwhile. In [`crate::Mode::Lazy`] only.
    ///
    /// Everything that was renewed is durable when the call returns. A crash changes no content.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in other modes, [`Error::ReadOnly`], [`Error::Corrupt`], and those of
    /// the device.
    pub async fn arrange(&self) -> Result<Arranged> {
        let core = &*self.core;
        core.check_writable()?;
        let most = core.journal.sink.arranges();
        let most = most.ok_or(Error::Unsupported("arranging metadata that goes home"))?;
        Arranging::renewing(core, Pace::AtOnce, most).await
    }
}

impl<'c> Arranging<'c> {
    /// A walk that renews `left` blocks at most, and none that lie at home.
    fn new(core: &'c Metadata, pace: Pace, left: u64) -> Self {
        let (since, done) = (core.journal.running(), Arranged::default());
        let (seen, looks) = (BTreeMap::new(), None);
        let (takes_homes, is_cut, waiting, requests) = (false, false, 0, core.requests());
        Self { core, pace, looks, takes_homes, since, left, is_cut, waiting, requests, seen, done }
    }

    /// Renews what a walk meets, `most` blocks at most, durably.
    pub(crate) async fn renewing(core: &'c Metadata, pace: Pace, most: u64) -> Result<Arranged> {
        let mut arranging = Self::new(core, pace, most);
        arranging.takes_homes = matches!(pace, Pace::AtOnce);
        arranging.commit(arranging.since).await?;
        arranging.since = core.journal.running();
        arranging.walk().await?;
        arranging.commit(core.journal.running()).await?;
        arranging.note_requests();
        Ok(arranging.done)
    }

    /// Looks at the order of what a walk meets, if the walk comes to its end, and changes nothing.
    pub(crate) async fn looking(core: &'c Metadata, pace: Pace) -> Result<Option<Order>> {
        let mut looking = Self::new(core, pace, u64::MAX);
        looking.looks = Some(Order::default());
        looking.walk().await?;
        looking.note_requests();
        Ok(looking.looks.filter(|_| looking.done.is_whole))
    }

    async fn walk(&mut self) -> Result<()> {
        let fixed = self.looks.as_ref().map_or(0, Order::bytes);
        let mut held = self.core.journal.memory.hold(Part::Requests, fixed);
        let mut waiting = vec![Ino::ROOT];
        // A damaged tree may lead in circles.
        let most = u64::from(self.core.geometry.inodes);
        while let Some(dir) = waiting.pop() {
            if self.is_over() || self.done.directories == most {
                return Ok(());
            }
            match self.directory(dir).await {
                Ok(below) => waiting.extend(below.into_iter().rev()),
                // It was removed meanwhile.
                Err(Error::NotFound | Error::NotADirectory) => {}
                Err(error) => return Err(error),
            }
            held.set((waiting.capacity() * size_of::<Ino>()) as u64 + fixed);
        }
        self.done.is_whole = !self.is_cut;
        Ok(())
    }

    /// Whether the walk has to end here, before something that it has not met.
    fn is_over(&mut self) -> bool {
        let is_over = self.left == 0;
        self.is_cut |= is_over;
        is_over
    }

    /// Renews a directory, and the inodes of what is in it; returns the directories in it.
    async fn directory(&mut self, dir: Ino) -> Result<Vec<Ino>> {
        self.own_blocks(dir).await?;
        self.done.directories += 1;
        let (mut below, mut cookie) = (Vec::new(), 0);
        loop {
            let listed = {
                let _tree = self.core.journal.tree.read().await;
                self.core.still_there(dir).await?;
                self.core.list_names(dir, cookie).await?
            };
            let Some(last) = listed.last().filter(|_| !self.is_over()) else { return Ok(below) };
            cookie = last.next;
            let within = listed.into_iter().filter(|it| it.name != b"." && it.name != b"..");
            let (inos, kinds): (Vec<_>, Vec<_>) = within.map(|it| (it.ino, it.kind)).unzip();
            self.inodes(&inos).await?;
            let may_be = |kind: &Option<FileKind>| kind.is_none_or(|it| it == FileKind::Directory);
            let each = inos.into_iter().zip(kinds);
            below.extend(each.filter(|(_, kind)| may_be(kind)).map(|(ino, _)| ino));
        }
    }

    /// Renews the blocks of a directory, and the nodes of its tree of extents.
    async fn own_blocks(&mut self, dir: Ino) -> Result<()> {
        let core = self.core;
        let (mut number, step) = (0, u32::try_from(self.step(STEP)).unwrap_or(u32::MAX));
        loop {
            if !self.give_way().await {
                return Ok(());
            }
            // Read before, so that nobody else waits for the device.
            let (blocks, end) = {
                let _tree = core.journal.tree.read().await;
                let raw = core.still_there(dir).await?;
                let blocks = Metadata::directory_blocks(dir, &raw)?;
                let end = blocks.min(number + step);
                for at in number..end {
                    core.blocks_at(dir, &raw, at).await?.iter().for_each(|it| self.look(it));
                }
                (blocks, end)
            };
            if self.looks.is_some() {
                number = end;
                if number >= blocks || self.is_over() {
                    return Ok(());
                }
                continue;
            }
            let Some(mut handle) = self.begin().await? else { return Ok(()) };
            let raw = core.still_there(dir).await?;
            let blocks = Metadata::directory_blocks(dir, &raw)?;
            let end = blocks.min(number + step);
            while number < end && handle.credits_left() >= DEEPEST && !self.is_over() {
                for buffer in core.blocks_at(dir, &raw, number).await? {
                    self.renew(&mut handle, &buffer).await?;
                }
                number += 1;
            }
            self.end(handle).await?;
            if number >= blocks || self.is_over() {
                return Ok(());
            }
        }
    }

    /// Renews the blocks of tables that have these inodes. Such a block is always metadata.
    async fn inodes(&mut self, inos: &[Ino]) -> Result<()> {
        let mut rest = inos;
        while !rest.is_empty() && !self.is_over() {
            let (now, later) = rest.split_at(rest.len().min(AT_ONCE));
            rest = later;
            if is(Bug::ArrangeRenewsSeen) {
                self.see(now).await?;
                self.pause().await;
            }
            for some in now.chunks(self.step(AT_ONCE)) {
                if !self.give_way().await {
                    return Ok(());
                }
                let _tree = self.core.journal.tree.read().await;
                for ino in some {
                    let (buffer, _) = self.core.inode_place(*ino).await?;
                    self.look(&buffer);
                }
            }
            if self.looks.is_some() {
                continue;
            }
            let Some(mut handle) = self.begin().await? else { return Ok(()) };
            for ino in now {
                let (buffer, _) = self.core.inode_place(*ino).await?;
                self.renew(&mut handle, &buffer).await?;
            }
            self.end(handle).await?;
        }
        Ok(())
    }

    /// Begins an update; `None`, and the walk ends, if nobody waits for it and there is no room.
    async fn begin(&mut self) -> Result<Option<Handle<'c>>> {
        let handle = match self.pace {
            Pace::AtOnce => Some(self.core.begin(AT_ONCE).await?),
            Pace::Meanwhile { .. } => self.core.begin_meanwhile(AT_ONCE).await?,
        };
        if handle.is_none() {
            (self.left, self.is_cut) = (0, true);
        }
        Ok(handle)
    }

    /// Makes a transaction durable.
    async fn commit(&self, tid: Tid) -> Result<()> {
        match self.pace {
            Pace::AtOnce => self.core.journal.commit(tid).await,
            // When the file system closes, nobody commits any more.
            Pace::Meanwhile { .. } => self.core.journal.settle(tid).await,
        }
    }

    /// Notes what the blocks of these inodes hold.
    async fn see(&mut self, inos: &[Ino]) -> Result<()> {
        let _tree = self.core.journal.tree.read().await;
        self.seen.clear();
        for ino in inos {
            let (buffer, _) = self.core.inode_place(*ino).await?;
            self.seen.insert(buffer.block(), buffer.bytes());
        }
        Ok(())
    }

    /// Notes where the log has a block, if that is what the walk is for.
    fn look(&mut self, buffer: &Rc<Buffer>) {
        if let Some(order) = &mut self.looks
            && let Some(Newest::InLog(copy)) = self.core.journal.newest(buffer.block())
        {
            order.note(buffer.block(), &copy);
        }
    }

    /// Writes a block anew, unless that was done since the walk began.
    async fn renew(&mut self, handle: &mut Handle<'c>, buffer: &Rc<Buffer>) -> Result<()> {
        let (block, journal) = (buffer.block(), &self.core.journal);
        let is_new = match journal.newest(block) {
            Some(Newest::InLog(copy)) => copy.tid.is_at_least(self.since),
            Some(Newest::Bytes(_)) => true,
            None => !self.takes_homes,
        };
        let is_held = journal.holding(Run { start: block, blocks: 1 }).is_some();
        let seen = self.seen.remove(&block);
        let is_skipped = (is_new || is_held) && seen.is_none();
        if is_skipped || handle.changes(block) || self.is_over() {
            return Ok(());
        }
        if is(Bug::ArrangeRenewsHome) {
            let home = read_block(&*self.core.device, block).await?;
            handle.change(buffer, |bytes| bytes.copy_from_slice(&home));
        } else if let Some(seen) = seen {
            handle.change(buffer, |bytes| bytes.copy_from_slice(&seen));
        } else {
            // That nobody changed it tells the cleaner that it is no hotter than before.
            handle.renew(buffer);
        }
        self.left -= 1;
        self.waiting += 1;
        self.done.blocks += 1;
        Ok(())
    }

    /// Ends an update, and commits what was renewed if it is enough.
    async fn end(&mut self, handle: Handle<'c>) -> Result<()> {
        let tid = handle.finish();
        if self.waiting >= AT_ONCE / 2 {
            self.waiting = 0;
            self.commit(tid).await?;
        }
        Ok(())
    }
}

impl Metadata {
    /// A block of a directory, and the nodes on the way to it. The caller holds the tree lock.
    async fn blocks_at(&self, dir: Ino, raw: &RawInode, number: u32) -> Result<Vec<Rc<Buffer>>> {
        let mut found = self.nodes_to(dir, raw, FileBlock(number)).await?;
        found.push(self.directory_block(dir, raw, number).await?);
        Ok(found)
    }

    /// A directory of which only the number is known. The caller holds the tree lock.
    ///
    /// # Errors
    /// [`Error::NotFound`] and [`Error::NotADirectory`], if it was removed.
    async fn still_there(&self, dir: Ino) -> Result<RawInode> {
        if !self.is_in_use(dir).await? {
            return Err(Error::NotFound);
        }
        self.directory(dir).await
    }
}
