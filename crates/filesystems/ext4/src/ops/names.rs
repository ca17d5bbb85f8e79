//! Creating, linking and removing names.

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use super::{Attributes, Ext4};
use crate::core::Core;
use crate::dir::{NAME_CREDITS, check_new_name, touch};
use crate::error::{Error, Result};
use crate::inode::{BIRTH_CREDITS, Newborn, ORPHAN_CREDITS};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{FileKind, MAP_BYTES, RawInode, TimeField, flags};
use crate::units::{BLOCK_BYTES, BLOCK_SECTORS, FileBlock, Ino, Timestamp};
use crate::xattr::XATTR_CREDITS;

/// Most links of an inode.
const LINKS_MOST: u16 = 65_000;

/// The attributes of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// Its kind; [`New::target`] and [`New::device`] are for some kinds only.
    pub kind: FileKind,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Bits that are cleared in its mode, unless the directory has a default access control list.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group, unless it inherits the directory's group.
    pub gid: u32,
    /// The target of a symbolic link.
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
    /// Creates an inode under a name that must not be taken.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::TooManyLinks`], [`Error::NameTooLong`].
    pub async fn create(&self, dir: Ino, name: &[u8], new: New) -> Result<Attributes> {
        check_new_name(name)?;
        let core = &self.core;
        let mut handle = core.begin(NAME_CREDITS + 2 * BIRTH_CREDITS + XATTR_CREDITS).await?;
        handle.kept = self.kept();
        let mut above = core.directory(dir).await?;
        Metadata::check_mutable(&above)?;
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

    /// Gives an inode another name, or a first one if [`Ext4::create_unnamed`] made it as linkable.
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
        Metadata::check_mutable(&above)?;
        Metadata::check_losable(&raw)?;
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

    /// Removes a name of anything but a directory. An inode without names that is not open is
    /// deleted.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub async fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false).await
    }

    /// Removes an empty directory.
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
        Metadata::check_losable(&above)?;
        Metadata::check_losable(&raw)?;
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
            // Programs that still have it open find it empty.
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

    /// Adds a user to an inode, until [`Ext4::close`], whether or not it has a name.
    pub fn open(&self, ino: Ino) {
        self.core.nodes.known.add(ino);
    }

    /// Open inodes that the kernel should close, if more are open than memory allows: some idle
    /// ones, others at each call.
    #[must_use]
    pub fn to_forget(&self) -> Vec<Ino> {
        self.core.nodes.to_forget()
    }

    /// Removes users of an inode. An inode without users and names is deleted.
    ///
    /// # Errors
    /// Those of deleting the inode, if it has no name any more.
    pub async fn close(&self, ino: Ino, users: u32) -> Result<()> {
        if self.core.nodes.known.remove(ino, users) || !self.core.orphans.borrow().contains(&ino) {
            return Ok(());
        }
        self.core.end_if_unused(ino).await
    }
}

impl Core {
    /// Gives a new inode what its kind needs: names `.` and `..`, a target, or device numbers.
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

    /// Writes the target of a symbolic link into its inode, or into a block of metadata.
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

    /// Counts a new subdirectory of a directory. If the count does not fit, it becomes 1.
    pub(crate) fn add_link(&self, raw: &mut RawInode) -> Result<()> {
        raw.set_links(match raw.links() {
            1 => 1,
            links if links < LINKS_MOST => links + 1,
            _ if self.geometry.dir_nlink() && raw.has_flag(flags::INDEX) => 1,
            _ => return Err(Error::TooManyLinks),
        });
        Ok(())
    }

    /// Counts the loss of a subdirectory.
    pub(crate) fn remove_link(raw: &mut RawInode) {
        if raw.links() > 2 {
            raw.set_links(raw.links() - 1);
        }
    }

    /// Takes a name from an inode; without names it becomes an orphan. For a directory that
    /// includes the name `.`.
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

    /// As [`Core::end_if_unused`], for an inode whose name is removed already. If the device fails,
    /// the inode stays an orphan, which the unmount or the next mount deletes. The removal of the
    /// name is in effect, so the caller gets no error.
    pub(crate) async fn end_sooner_or_later(&self, ino: Ino) -> Result<()> {
        match self.end_if_unused(ino).await {
            Err(Error::Io(_) | Error::Aborted(_)) if !is(Bug::Ext4EndFailsRemoval) => Ok(()),
            done => done,
        }
    }

    /// Deletes an inode that has no name and is not open.
    pub(crate) async fn end_if_unused(&self, ino: Ino) -> Result<()> {
        let is_used = self.nodes.known.is_used(ino);
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
