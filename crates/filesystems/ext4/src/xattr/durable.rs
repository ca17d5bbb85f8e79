//! The property of files that need durability and no place (`O_DUR` of the Manylogs paper, section
//! IV-D): their content stays in the log as long as it is live.

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use crate::core::Core;
use crate::error::{Corruption, Error, Result};
use crate::inode::Node;
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode, flags};
use crate::ondisk::xattr::Key;
use crate::units::Ino;

/// The attribute of the property: `1`, or `0`, which means the same as no attribute. New files and
/// directories inherit it from their directory.
pub const DURABLE_XATTR: &str = "user.manylogs.durable";

/// The code of `user.` on the disk.
const USER: u8 = 1;
const NAME: &[u8] = b"manylogs.durable";

impl Key {
    fn durable() -> Self {
        Self { index: USER, name: NAME.to_vec() }
    }

    /// Whether it is the key of [`DURABLE_XATTR`].
    pub(crate) fn is_durable(&self) -> bool {
        self.index == USER && self.name == NAME
    }
}

/// Decodes a value of the attribute.
///
/// # Errors
/// [`Error::Invalid`] for other values than `1` and `0`.
pub(crate) fn durable_value(value: &[u8]) -> Result<bool> {
    match value {
        b"1" => Ok(true),
        b"0" => Ok(false),
        _ => Err(Error::Invalid("user.manylogs.durable is 1 or 0")),
    }
}

impl Metadata {
    /// Whether an inode has the property. The caller holds the tree lock.
    async fn has_durable(&self, ino: Ino, raw: &RawInode) -> Result<bool> {
        let value = self.xattr(ino, raw, &Key::durable()).await?;
        Ok(value.is_some_and(|value| durable_value(&value).unwrap_or(false)))
    }

    /// Whether the log keeps content of files that need durability and no place.
    pub(crate) fn keeps(&self) -> bool {
        self.mode.journals_content() && self.journal.sink.keeps()
    }

    /// Whether the log keeps content that is written to a file from now on. An inode that cannot be
    /// read counts as "no": the write will meet that error itself.
    pub(crate) async fn is_durable(&self, node: &Node) -> bool {
        if !self.keeps() {
            return false;
        }
        if let Some(known) = node.durable.get() {
            return known;
        }
        let _tree = self.journal.tree.read().await;
        let Ok(raw) = self.inode(node.ino).await else { return false };
        let found = self.has_durable(node.ino, &raw).await;
        if let Ok(found) = found {
            node.durable.set(Some(found));
        }
        found.unwrap_or(false)
    }

    /// The owner of a file, if the log keeps content that is written to the file now: if the file
    /// has the property, or if `asked` for this content alone. The log keeps none of a file that is
    /// mapped by blocks, because its map cannot say that a block is not written.
    pub(crate) async fn keeps_content_of(&self, node: &Node, asked: bool) -> Option<u32> {
        let wanted = asked && self.keeps() || self.is_durable(node).await;
        if !wanted {
            return None;
        }
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await.ok()?;
        raw.has_flag(flags::EXTENTS).then(|| raw.owner().0)
    }

    /// Gives an inode the property. The caller writes it.
    async fn make_durable_only(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        self.put_xattr(handle, ino, raw, Key::durable(), Some(Bytes::from_static(b"1"))).await
    }
}

impl Core {
    /// Gives a new file or directory the property, if its directory has it, or if the file's name
    /// fits a pattern. The caller writes the inode.
    pub(crate) async fn inherit_durable(
        &self,
        handle: &mut Handle<'_>,
        (dir, above, name): (Ino, &RawInode, Option<&[u8]>),
        (ino, raw): (Ino, &mut RawInode),
    ) -> Result<()> {
        let kind = raw.kind();
        if !matches!(kind, Some(FileKind::File | FileKind::Directory)) {
            return Ok(());
        }
        if kind == Some(FileKind::Directory)
            && let Some(name) = name
            && !self.judge.is_idle()
        {
            self.judge.note(ino, dir, name);
        }
        let handed = self.has_durable(dir, above).await? && !is(Bug::DurableNotHandedDown);
        let named = match name.filter(|_| kind == Some(FileKind::File) && !handed) {
            Some(name) => self.fits(dir, name).await?,
            None => false,
        };
        if handed || named { self.make_durable_only(handle, ino, raw).await } else { Ok(()) }
    }

    /// Gives a file the property if its new name fits a pattern.
    pub(crate) async fn judge_renamed(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        (dir, name): (Ino, &[u8]),
    ) -> Result<()> {
        if self.judge.is_idle() {
            return Ok(());
        }
        let mut raw = self.inode(ino).await?;
        if raw.kind() == Some(FileKind::Directory) && !is(Bug::DurableOldNames) {
            self.judge.forget(ino);
        }
        let judged = raw.kind() == Some(FileKind::File) && !is(Bug::DurableRenameNotJudged);
        if !judged || self.has_durable(ino, &raw).await? || !self.fits(dir, name).await? {
            return Ok(());
        }
        self.make_durable_only(handle, ino, &mut raw).await?;
        self.put_inode(handle, ino, &mut raw).await?;
        // Looked up again at the next use, which is right even if the update is undone.
        self.node(ino).durable.set(None);
        Ok(())
    }

    /// Whether a name in a directory fits a pattern. The caller holds the tree lock.
    async fn fits(&self, dir: Ino, name: &[u8]) -> Result<bool> {
        let (mut names, mut at) = (vec![name.to_vec()], dir);
        if self.judge.is_idle() {
            return Ok(false);
        }
        loop {
            if let Some(fits) = self.judge.fits(&names, at == Ino::ROOT) {
                return Ok(fits);
            }
            let (above, name) = match self.judge.name_of(at) {
                Some(known) => known,
                None => self.name_of_directory(at).await?,
            };
            names.push(name);
            at = above;
        }
    }

    /// The parent of a directory, and its name there. The caller holds the tree lock.
    async fn name_of_directory(&self, dir: Ino) -> Result<(Ino, Vec<u8>)> {
        let raw = self.directory(dir).await?;
        let bad = || Corruption::inode(dir, "the directory has no way to the root");
        let above = self.find(dir, &raw, b"..").await?.ok_or_else(bad)?.ino;
        let mut cookie = 0;
        loop {
            let listed = self.list_names(above, cookie).await?;
            cookie = listed.last().ok_or_else(bad)?.next;
            let own = |name: &[u8]| name == b"." || name == b"..";
            let found = listed.into_iter().find(|listed| listed.ino == dir && !own(&listed.name));
            if let Some(found) = found {
                self.judge.note(dir, above, &found.name);
                return Ok((above, found.name));
            }
        }
    }
}
