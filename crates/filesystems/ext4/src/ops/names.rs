//! Names: giving them, and taking them away.

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use super::{Attributes, Ext4};
use crate::core::Core;
use crate::dir::{NAME_CREDITS, check_new_name, touch};
use crate::error::{Error, Result};
use crate::inode::{BIRTH_CREDITS, Newborn, ORPHAN_CREDITS};
use crate::journal::Handle;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{FileKind, MAP_BYTES, RawInode, TimeField, flags};
use crate::units::{BLOCK_BYTES, BLOCK_SECTORS, FileBlock, Ino, Timestamp};
use crate::xattr::XATTR_CREDITS;

/// Links that an inode can have.
const LINKS_MOST: u16 = 65_000;

/// What is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// What it is; [`New::target`] and [`New::device`] belong to some kinds.
    pub kind: FileKind,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Bits of the mode that it loses, unless the directory has a default list of access.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group, unless the directory hands its own down.
    pub gid: u32,
    /// Where a symbolic link leads.
    pub target: Bytes,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl New {
    /// A file, a directory, a pipe or a socket.
    #[must_use]
    pub const fn plain(kind: FileKind, permissions: u16) -> Self {
        Self { kind, permissions, umask: 0, uid: 0, gid: 0, target: Bytes::new(), device: (0, 0) }
    }
}

impl Ext4 {
    /// Creates something under a name that is not taken.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::TooManyLinks`], [`Error::NameTooLong`].
    pub async fn create(&self, dir: Ino, name: &[u8], new: New) -> Result<Attributes> {
        check_new_name(name)?;
        let core = &self.core;
        let mut handle = core.begin(NAME_CREDITS + 2 * BIRTH_CREDITS + XATTR_CREDITS).await?;
        handle.kept = self.kept();
        let mut above = core.directory(dir).await?;
        Core::check_mutable(&above)?;
        if core.find(dir, &above, name).await?.is_some() {
            return Err(Error::Exists);
        }
        let now = core.now();
        let born =
            Newborn { kind: new.kind, permissions: new.permissions, owner: (new.uid, new.gid) };
        let (ino, mut raw) = core.bear(&mut handle, (dir, name), &above, born, now).await?;
        core.inherit_acl(&mut handle, (dir, &above), (ino, &mut raw), new.umask).await?;
        let from = (dir, &above, Some(name));
        core.inherit_durable(&mut handle, from, (ino, &mut raw)).await?;
        core.furnish(&mut handle, dir, ino, &mut raw, &new).await?;
        core.put_inode(&mut handle, ino, &mut raw).await?;
        core.insert_name(&mut handle, dir, &mut above, name, (ino, new.kind)).await?;
        if new.kind == FileKind::Directory {
            core.add_link(&mut above)?;
        }
        touch(&mut above, now);
        core.put_inode(&mut handle, dir, &mut above).await?;
        let tid = handle.finish();
        core.note_change(dir, tid);
        core.note_change(ino, tid);
        core.keep(core.is_dir_sync(&above), tid).await?;
        self.attributes(ino).await
    }

    /// Gives an inode another name, or a first one, if [`Ext4::create_unnamed`] made it for that.
    ///
    /// # Errors
    /// As [`Ext4::create`]; [`Error::Invalid`] for a directory, [`Error::NotFound`] if it has no
    /// name and may not get one.
    pub async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attributes> {
        check_new_name(name)?;
        let core = &self.core;
        let judged = if core.judge.is_idle() { 0 } else { XATTR_CREDITS + 1 };
        let mut handle = core.begin(NAME_CREDITS + 4 + ORPHAN_CREDITS + judged).await?;
        handle.kept = self.kept();
        let mut above = core.directory(dir).await?;
        let mut raw = core.inode(ino).await?;
        Core::check_mutable(&above)?;
        Core::check_losable(&raw)?;
        let kind = raw.kind().filter(|kind| *kind != FileKind::Directory);
        let kind = kind.ok_or(Error::Invalid("a directory has one name"))?;
        let is_first = raw.links() == 0;
        if is_first && !core.node(ino).linkable.get() {
            return Err(Error::NotFound);
        }
        if raw.links() >= LINKS_MOST {
            return Err(Error::TooManyLinks);
        }
        if core.find(dir, &above, name).await?.is_some() {
            return Err(Error::Exists);
        }
        let now = core.now();
        core.insert_name(&mut handle, dir, &mut above, name, (ino, kind)).await?;
        touch(&mut above, now);
        core.put_inode(&mut handle, dir, &mut above).await?;
        raw.set_links(raw.links() + 1);
        raw.set_time(TimeField::Change, now);
        if is_first {
            core.leave_orphans(&mut handle, ino, &mut raw).await?;
            core.node(ino).linkable.set(false);
        }
        if is(Bug::Ext4LinkCountLater) {
            handle.finish();
            handle = core.begin(1).await?;
        }
        core.put_inode(&mut handle, ino, &mut raw).await?;
        core.judge_renamed(&mut handle, ino, (dir, name)).await?;
        let tid = handle.finish();
        core.note_change(dir, tid);
        core.note_change(ino, tid);
        core.keep(core.is_dir_sync(&above), tid).await?;
        self.attributes(ino).await
    }

    /// Takes a name away from anything but a directory. What has no name and is not open ends.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub async fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false).await
    }

    /// Takes away an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NotEmpty`].
    pub async fn remove_directory(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(dir, name, true).await
    }

    async fn remove(&self, dir: Ino, name: &[u8], directory: bool) -> Result<()> {
        check_new_name(name)?;
        let core = &self.core;
        let mut handle = core.begin(NAME_CREDITS + 4 + ORPHAN_CREDITS).await?;
        let mut above = core.directory(dir).await?;
        let entry = core.find(dir, &above, name).await?.ok_or(Error::NotFound)?;
        let mut raw = core.inode(entry.ino).await?;
        Core::check_losable(&above)?;
        Core::check_losable(&raw)?;
        match (raw.kind() == Some(FileKind::Directory), directory) {
            (true, false) => return Err(Error::IsADirectory),
            (false, true) => return Err(Error::NotADirectory),
            (true, true) if !core.is_empty(entry.ino, &raw).await? => return Err(Error::NotEmpty),
            _ => {}
        }
        core.remove_name(&mut handle, dir, &above, &entry);
        let now = core.now();
        if directory {
            Core::remove_link(&mut above);
            core.judge.forget(entry.ino);
            // Whoever still has it open finds nothing in it.
            raw.set_size(0);
        }
        touch(&mut above, now);
        core.put_inode(&mut handle, dir, &mut above).await?;
        core.lose_name(&mut handle, entry.ino, &mut raw, now).await?;
        let tid = handle.finish();
        core.note_change(dir, tid);
        core.note_change(entry.ino, tid);
        let ended = core.end_sooner_or_later(entry.ino).await;
        core.keep(core.is_dir_sync(&above), tid).await.and(ended)
    }

    /// An inode has one user more until [`Ext4::close`], whether or not it has a name.
    pub fn open(&self, ino: Ino) {
        self.core.known.add(ino);
    }

    /// Inodes that whoever opened them might close, as there are more than memory is for: some of
    /// those that nobody works with, other ones each time.
    #[must_use]
    pub fn to_forget(&self) -> Vec<Ino> {
        self.core.to_forget()
    }

    /// An inode has so many users less. Without any, and without a name, it ends.
    ///
    /// # Errors
    /// Those of deleting the inode, if it has no name any more.
    pub async fn close(&self, ino: Ino, users: u32) -> Result<()> {
        if self.core.known.remove(ino, users) || !self.core.orphans.borrow().contains(&ino) {
            return Ok(());
        }
        self.core.end_if_unused(ino).await
    }
}

impl Core {
    /// What kinds of inodes have besides their attributes.
    async fn furnish(
        &self,
        handle: &mut Handle<'_>,
        parent: Ino,
        ino: Ino,
        raw: &mut RawInode,
        new: &New,
    ) -> Result<()> {
        match new.kind {
            FileKind::Directory => self.format_directory(handle, ino, raw, parent).await,
            FileKind::Symlink => self.put_target(handle, ino, raw, &new.target).await,
            FileKind::CharDevice | FileKind::BlockDevice => {
                raw.set_device(new.device.0, new.device.1);
                Ok(())
            }
            FileKind::File | FileKind::Fifo | FileKind::Socket => Ok(()),
        }
    }

    /// Where a symbolic link leads lies in its inode, or in a block that is metadata.
    async fn put_target(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        target: &[u8],
    ) -> Result<()> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() >= BLOCK_BYTES {
            return Err(Error::NameTooLong);
        }
        raw.set_size(target.len() as u64);
        if target.len() < MAP_BYTES {
            raw.map_mut()[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        self.put_empty_map(raw);
        let block = self.take_free_block(handle, self.goal(ino)).await?;
        let extent = Extent { file: FileBlock(0), block, blocks: 1, written: true };
        self.insert_extent(handle, ino, raw, extent).await?;
        raw.set_sectors(raw.sectors() + BLOCK_SECTORS);
        let buffer = handle.create(block);
        handle.change(&buffer, |bytes| bytes[..target.len()].copy_from_slice(target));
        Ok(())
    }

    /// A directory has one directory more in it. Where the count does not fit, it is 1.
    pub(crate) fn add_link(&self, raw: &mut RawInode) -> Result<()> {
        raw.set_links(match raw.links() {
            1 => 1,
            links if links < LINKS_MOST => links + 1,
            _ if self.geometry.dir_nlink() && raw.has_flag(flags::INDEX) => 1,
            _ => return Err(Error::TooManyLinks),
        });
        Ok(())
    }

    /// A directory has one directory less in it.
    pub(crate) fn remove_link(raw: &mut RawInode) {
        if raw.links() > 2 {
            raw.set_links(raw.links() - 1);
        }
    }

    /// An inode has a name less; without any it is an orphan. A directory loses its own name, too.
    pub(crate) async fn lose_name(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        now: Timestamp,
    ) -> Result<()> {
        let directory = raw.kind() == Some(FileKind::Directory);
        raw.set_links(if directory { 0 } else { raw.links().saturating_sub(1) });
        raw.set_time(TimeField::Change, now);
        if raw.links() == 0 && !is(Bug::Ext4OrphanAfterFree) {
            self.join_orphans(handle, ino, raw)?;
        }
        self.put_inode(handle, ino, raw).await
    }

    /// As [`Core::end_if_unused`], for an inode whose name is gone already. If the device fails,
    /// the inode stays an orphan, which the unmount or the next mount ends: that it lost its name
    /// is in effect, so that whoever asked for that is told so.
    pub(crate) async fn end_sooner_or_later(&self, ino: Ino) -> Result<()> {
        match self.end_if_unused(ino).await {
            Err(Error::Io(_) | Error::Aborted(_)) if !is(Bug::Ext4EndFailsRemoval) => Ok(()),
            done => done,
        }
    }

    /// Deletes an inode that has no name and is not open.
    pub(crate) async fn end_if_unused(&self, ino: Ino) -> Result<()> {
        let is_used = self.known.is_used(ino);
        let links = {
            let _tree = self.journal.tree.read().await;
            self.inode(ino).await?.links()
        };
        if is_used || links > 0 {
            return Ok(());
        }
        self.delete(ino).await
    }
}
