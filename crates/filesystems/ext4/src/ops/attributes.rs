//! Reading and changing attributes of files.

use bytes::Bytes;

use super::{Credentials, Ext4, SetIds};
use crate::core::Core;
use crate::dir::{Listed, check_name};
use crate::error::{Corruption, Error, Result};
use crate::extents::MAP_CREDITS;
use crate::file::SIZE_MOST;
use crate::inode::ORPHAN_CREDITS;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::inode::{FileKind, MAP_BYTES, RawInode, TimeField};
use crate::units::{BLOCK, BLOCK_SECTORS, FileBlock, Ino, Timestamp};
use crate::xattr::XATTR_CREDITS;

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Tells apart the files that had this number one after the other.
    pub generation: u32,
    /// Its kind.
    pub kind: FileKind,
    /// The lower twelve bits of its mode.
    pub permissions: u16,
    /// Names that lead to it; a directory whose names do not fit the field has 1.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Sectors of 512 bytes in use, or promised.
    pub sectors: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Time of creation; zero if inodes have no room for it.
    pub born: Timestamp,
}

/// The new value of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the change. Every user who may write a file may set both times to it, even of an
    /// append-only file.
    Now,
    /// A time that the caller gives.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The lower twelve bits of the mode.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// New size in bytes: the rest of the file is cut off, or zeroes are added.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<NewTime>,
    /// Last change of content.
    pub modified: Option<NewTime>,
    /// Whether set-id bits that give rights are cleared, because the caller may not keep them when
    /// it changes owner or size. Capabilities are cleared with each such change.
    pub kill_set_ids: bool,
}

impl Change {
    /// Whether anything besides the size and set-id bits changes.
    fn changes_attributes(&self) -> bool {
        *self != Self { size: self.size, kill_set_ids: self.kill_set_ids, ..Self::default() }
    }

    /// Whether only the two times change, both to the time of the change, or no attribute changes.
    fn is_touch(&self) -> bool {
        let now = Some(NewTime::Now);
        let touch = Self { accessed: now, modified: now, ..Self::default() };
        *self == touch || !self.changes_attributes()
    }
}

impl Ext4 {
    /// Finds `name` in `dir`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`].
    pub async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attributes> {
        check_name(name)?;
        let _tree = self.core.journal.tree.read().await;
        let raw = self.core.directory(dir).await?;
        let entry = self.core.find(dir, &raw, name).await?.ok_or(Error::NotFound)?;
        self.core.attributes_of(entry.ino).await
    }

    /// The attributes of an inode of which the caller knows only the number. It may not be in use
    /// any more, or by another file, with another generation.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no name leads to it.
    pub async fn attributes_by_number(&self, ino: Ino) -> Result<Attributes> {
        let _tree = self.core.journal.tree.read().await;
        if !self.core.is_in_use(ino).await? {
            return Err(Error::NotFound);
        }
        let known = self.core.attributes_of(ino).await?;
        if known.links > 0 { Ok(known) } else { Err(Error::NotFound) }
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not in use.
    pub async fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let _tree = self.core.journal.tree.read().await;
        self.core.attributes_of(ino).await
    }

    /// Changes attributes, also the size.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NoSpace`], [`Error::Invalid`] if the size changes of something
    /// that is no file.
    pub async fn change(&self, ino: Ino, change: Change) -> Result<Attributes> {
        self.change_by(Credentials::ROOT, ino, change).await
    }

    /// As [`Ext4::change`], and clears set-id bits that the caller may not keep. An empty change
    /// counts as setting owner and group to what they are: it clears the bits of the caller's own
    /// file and sets the time of change. A stranger's file with such bits is left alone: the kernel
    /// asks for this before a write, which clears the bits itself, and other callers may not clear
    /// them.
    ///
    /// # Errors
    /// As [`Ext4::change`].
    pub async fn change_by(
        &self,
        caller: Credentials<'_>,
        ino: Ino,
        change: Change,
    ) -> Result<Attributes> {
        if let Some(size) = change.size {
            if size > SIZE_MOST {
                return Err(Error::TooLarge);
            }
            self.core.check_size_mutable(ino).await?;
            let set_ids = SetIds::taken_if(change.kill_set_ids, caller);
            self.drop_privileges(ino, set_ids).await?;
            self.core.resize(ino, size).await?;
            if size == 0 {
                self.core.node(ino).emptied.set(true);
            }
        }
        let rest = Change { size: None, ..change };
        if change.size.is_none() || rest.changes_attributes() {
            self.core.change_attributes(caller, ino, rest).await?;
        }
        self.core.keep_inode(ino).await?;
        self.attributes(ino).await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub async fn read_link(&self, ino: Ino) -> Result<Bytes> {
        let _tree = self.core.journal.tree.read().await;
        let raw = self.core.inode(ino).await?;
        if raw.kind() != Some(FileKind::Symlink) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let bad = || Corruption::inode(ino, "the length of the symbolic link");
        let len = usize::try_from(raw.size()).ok().filter(|len| (1..4096).contains(len));
        let len = len.ok_or_else(bad)?;
        if raw.is_short_link() {
            let target = raw.map().get(..len).filter(|_| len < MAP_BYTES).ok_or_else(bad)?;
            return Ok(Bytes::copy_from_slice(target));
        }
        match self.core.map(ino, &raw, FileBlock(0)).await? {
            crate::extents::Mapping::Mapped(extent) => {
                Ok(self.core.read(extent.block).await?.bytes().slice(..len))
            }
            crate::extents::Mapping::Hole(_) => Err(bad().into()),
        }
    }

    /// The names of a directory from `cookie` on, which is 0 or a [`Listed::next`]; empty at the
    /// end. A name that exists all the time is listed once.
    ///
    /// # Errors
    /// [`Error::NotADirectory`].
    pub async fn list(&self, dir: Ino, cookie: u64) -> Result<Vec<Listed>> {
        self.core.list(dir, cookie).await
    }
}

impl Core {
    /// The attributes of an inode. The caller holds the tree lock.
    pub(crate) async fn attributes_of(&self, ino: Ino) -> Result<Attributes> {
        let raw = self.inode(ino).await?;
        let node = self.nodes.get(ino);
        let node = node.as_deref();
        let reserved = node
            .map_or(0, |node| node.pages.borrow().values().filter(|page| page.reserved).count());
        let is_device = matches!(raw.kind(), Some(FileKind::CharDevice | FileKind::BlockDevice));
        let (uid, gid) = raw.owner();
        let times = self.times_of(ino, &raw);
        Ok(Attributes {
            ino,
            generation: raw.generation(),
            kind: raw.kind().unwrap_or(FileKind::File),
            permissions: raw.mode() & 0o7777,
            links: raw.links().into(),
            uid,
            gid,
            size: node.map_or(raw.size(), |node| node.size_of(&raw)),
            sectors: raw.sectors() + reserved as u64 * BLOCK_SECTORS,
            device: if is_device { raw.device() } else { (0, 0) },
            accessed: times.accessed,
            modified: times.modified,
            changed: times.changed,
            born: raw.time(TimeField::Birth),
        })
    }

    async fn change_attributes(
        &self,
        caller: Credentials<'_>,
        ino: Ino,
        change: Change,
    ) -> Result<()> {
        let node = self.node(ino);
        let mut handle = self.begin(4 + 2 * XATTR_CREDITS).await?;
        let mut raw = self.inode(ino).await?;
        if change.is_touch() {
            Metadata::check_mutable(&raw)
        } else {
            Metadata::check_losable(&raw)
        }?;
        let stays = !change.changes_attributes();
        let set_ids = SetIds::taken_if(change.kill_set_ids || stays, caller);
        let (uid, gid) = raw.owner();
        let is_directory = raw.kind() == Some(FileKind::Directory);
        let taken = if is_directory { 0 } else { set_ids.of(raw.mode(), gid) };
        if stays && taken != 0 {
            Metadata::check_losable(&raw)?;
            if !caller.owns(uid) {
                return Ok(());
            }
        }
        let now = self.now();
        let time = |new| match new {
            NewTime::Now => now,
            NewTime::At(time) => time,
        };
        if let Some(permissions) = change.permissions {
            raw.set_mode(raw.mode() & !0o7777 | permissions & 0o7777);
            self.follow_mode(&mut handle, ino, &mut raw).await?;
        }
        if stays || change.uid.is_some() || change.gid.is_some() {
            self.take_privileges(&mut handle, ino, &mut raw, set_ids).await?;
        }
        raw.set_owner(change.uid.unwrap_or(uid), change.gid.unwrap_or(gid));
        if let Some(at) = change.accessed.map(time).or_else(|| node.accessed_at.take()) {
            raw.set_time(TimeField::Access, at);
            node.accessed_at.set(None);
        }
        if let Some(at) = change.modified.map(time).or_else(|| node.written_at.take()) {
            raw.set_time(TimeField::Modify, at);
            node.written_at.set(None);
        }
        raw.set_time(TimeField::Change, now);
        self.put_inode(&mut handle, ino, &mut raw).await?;
        self.note_change_of(&node, handle.finish());
        Ok(())
    }

    /// Gives a file another size. Setting the size that it has is a change too, and frees blocks
    /// behind the end.
    async fn resize(&self, ino: Ino, size: u64) -> Result<()> {
        let node = self.node(ino);
        let _alone = node.writers.take().await;
        {
            let _content = node.content.read().await;
            let old = self.file(&node).await?;
            if size > old {
                self.check_writable()?;
                self.check_resizable(ino, size).await?;
                self.fill_end(&node, size, &mut self.room_for_edge()).await?;
                node.set_new_size(size);
                node.written_at.set(Some(self.now()));
                self.note_dirty();
                return Ok(());
            }
        }
        self.shorten(&node, size).await
    }

    /// Checks that a file may get another size.
    async fn check_size_mutable(&self, ino: Ino) -> Result<()> {
        let _tree = self.journal.tree.read().await;
        Metadata::check_losable(&self.inode(ino).await?)
    }

    /// Checks that a file can grow to this size.
    async fn check_resizable(&self, ino: Ino, size: u64) -> Result<()> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(ino).await?;
        Metadata::check_losable(&raw)?;
        self.check_growth(&raw, size)
    }

    /// Cuts a file. The caller is the only writer.
    async fn shorten(&self, node: &std::rc::Rc<crate::inode::Node>, size: u64) -> Result<()> {
        let ino = node.ino;
        let _writing = node.writing.take_all().await;
        let _alone = node.content.write().await;
        self.check_writable()?;
        let edge = low32(size / BLOCK);
        let page = match size.is_multiple_of(BLOCK) {
            true => None,
            false => Some(self.page(node, size, edge).await?),
        };
        let mut handle = self.begin(4 * MAP_CREDITS + ORPHAN_CREDITS).await?;
        let mut raw = self.inode(ino).await?;
        Metadata::check_losable(&raw)?;
        let on_device = raw.size();
        raw.set_size(size.min(on_device));
        touch_both(&mut raw, self.now());
        let done = self.cut_step(&mut handle, ino, &mut raw, size).await?;
        if !done {
            self.join_orphans(&mut handle, ino, &mut raw)?;
        }
        self.put_inode(&mut handle, ino, &mut raw).await?;
        self.note_change_of(node, handle.finish());
        self.drop_pages(node, low32(size.div_ceil(BLOCK))..u32::MAX);
        node.size.set(Some(size));
        node.size_is_new.set(size > on_device);
        node.written_at.set(None);
        if let Some(bytes) = page {
            self.keep_edge(node, edge, bytes).await?;
        }
        if done { Ok(()) } else { self.cut(ino, size).await }
    }
}

fn touch_both(raw: &mut RawInode, now: Timestamp) {
    raw.set_time(TimeField::Modify, now);
    raw.set_time(TimeField::Change, now);
}
