//! Renaming.

use std::rc::Rc;

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::dir::{Entry, NAME_CREDITS, check_new_name, touch};
use crate::error::{Corruption, Error, Result};
use crate::file::Times;
use crate::inode::{BIRTH_CREDITS, Newborn, Node, ORPHAN_CREDITS};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode, TimeField};
use crate::units::{Ino, Timestamp};
use crate::xattr::XATTR_CREDITS;

/// What a rename does if the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The inode that had it loses it.
    Replaced,
    /// The rename fails.
    Kept,
    /// The two names exchange their inodes.
    Exchanged,
}

/// A name, and the directory that it is in.
#[derive(Clone, Copy, Debug)]
struct Spot<'a> {
    dir: Ino,
    name: &'a [u8],
}

impl Ext4 {
    /// Renames `from` to `to`: nobody sees both names, or neither. If the file takes the name of
    /// another file, its content written before is durable no later than the name, unless
    /// [`super::Durability::no_auto_alloc`] is set.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] as `taken` says, [`Error::NotEmpty`],
    /// [`Error::IsADirectory`] and [`Error::NotADirectory`] if one is a directory and the other is
    /// not, [`Error::Invalid`] if a directory would be in itself, and those of writing content.
    pub async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), taken: Taken) -> Result<()> {
        self.rename_or_leave(from, to, taken, None).await
    }

    /// As [`Ext4::rename`], and atomically leaves a whiteout of this owner and group under the old
    /// name: a character device 0:0, which tells overlays that the name is gone.
    ///
    /// # Errors
    /// As [`Ext4::rename`]; [`Error::NoSpace`]; [`Error::Invalid`] if the names are exchanged.
    pub async fn rename_and_leave(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        taken: Taken,
        owner: (u32, u32),
    ) -> Result<()> {
        if taken == Taken::Exchanged {
            return Err(Error::Invalid("names that are exchanged leave nothing"));
        }
        self.rename_or_leave(from, to, taken, Some(owner)).await
    }

    async fn rename_or_leave(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        taken: Taken,
        whiteout: Option<(u32, u32)>,
    ) -> Result<()> {
        check_new_name(from.1)?;
        check_new_name(to.1)?;
        let from = Spot { dir: from.0, name: from.1 };
        let to = Spot { dir: to.0, name: to.1 };
        let mut settled = Vec::new();
        while let Some(node) = self.try_rename(from, to, (taken, whiteout), &settled).await? {
            // Data written from now on has no such promise, so once is enough.
            settled.push(node.ino);
            self.core.write_back(&node, Times::Written).await?;
        }
        Ok(())
    }

    /// Renames, or returns a node that is not among the `settled` and whose content must first be
    /// written back.
    async fn try_rename(
        &self,
        from: Spot<'_>,
        to: Spot<'_>,
        (taken, whiteout): (Taken, Option<(u32, u32)>),
        settled: &[Ino],
    ) -> Result<Option<Rc<Node>>> {
        let core = &self.core;
        // Two files may get the property of names.
        let judged = if core.judge.is_idle() { 0 } else { 2 * (XATTR_CREDITS + 1) };
        let birth = if whiteout.is_some() { BIRTH_CREDITS + XATTR_CREDITS } else { 0 };
        let mut handle = core.begin(NAME_CREDITS + 12 + ORPHAN_CREDITS + birth + judged).await?;
        handle.kept = self.kept();
        let (above, moved) = core.spot(from).await?;
        let promised = core.is_dir_sync(&above);
        let moved = moved.ok_or(Error::NotFound)?;
        Metadata::check_losable(&above)?;
        Metadata::check_losable(&core.inode(moved.ino).await?)?;
        let (above, other) = core.spot(to).await?;
        Metadata::check_mutable(&above)?;
        let promised = promised || core.is_dir_sync(&above);
        if let Some(other) = &other {
            Metadata::check_losable(&core.inode(other.ino).await?)?;
        }
        let replaced = other.as_ref().map(|other| other.ino).filter(|other| *other != moved.ino);
        if let Some(node) = core.unsettled(moved.ino, replaced, taken, settled) {
            return Ok(Some(node));
        }
        let unused = match (other, taken) {
            (Some(_), Taken::Kept) => return Err(Error::Exists),
            (None, Taken::Exchanged) => return Err(Error::NotFound),
            (Some(other), _) if other.ino == moved.ino => return Ok(None),
            (Some(other), Taken::Exchanged) => {
                core.check_tree(moved.ino, to.dir).await?;
                core.check_tree(other.ino, from.dir).await?;
                core.exchange(&mut handle, from, moved.ino, to, other.ino).await?;
                None
            }
            (other, _) => {
                core.check_tree(moved.ino, to.dir).await?;
                let other = other.map(|other| other.ino);
                let left = match whiteout {
                    Some(owner) => Some(core.bear_whiteout(&mut handle, from, owner).await?),
                    None => None,
                };
                core.move_name(&mut handle, (from, left), moved.ino, to, other).await?;
                other
            }
        };
        core.judge_renamed(&mut handle, moved.ino, (to.dir, to.name)).await?;
        if let (Taken::Exchanged, Some(other)) = (taken, replaced) {
            core.judge_renamed(&mut handle, other, (from.dir, from.name)).await?;
        }
        let tid = handle.finish();
        for ino in [from.dir, to.dir, moved.ino].into_iter().chain(replaced) {
            core.note_change(ino, tid);
        }
        let ended = match unused {
            Some(ino) => core.end_sooner_or_later(ino).await,
            None => Ok(()),
        };
        core.keep(promised, tid).await.and(ended).map(|()| None)
    }
}

impl Core {
    /// A file that takes the name of another must not be empty after a crash: its content must be
    /// durable no later than the name. Returns a file whose content is dirty, unless it is
    /// `settled`.
    fn unsettled(
        &self,
        moved: Ino,
        replaced: Option<Ino>,
        taken: Taken,
        settled: &[Ino],
    ) -> Option<Rc<Node>> {
        let replaced = replaced.filter(|_| taken != Taken::Kept && self.allocates_at_once())?;
        let exchanged = (taken == Taken::Exchanged).then_some(replaced);
        let gain = [Some(moved), exchanged].into_iter().flatten();
        let mut gain =
            gain.filter(|ino| !settled.contains(ino)).filter_map(|ino| self.nodes.get(ino));
        let node = gain.find(|node| node.is_dirty());
        node.filter(|_| !is(Bug::Ext4RenameLeavesData))
    }

    /// A directory, and the entry of a name in it.
    async fn spot(&self, spot: Spot<'_>) -> Result<(RawInode, Option<Entry>)> {
        let raw = self.directory(spot.dir).await?;
        let entry = self.find(spot.dir, &raw, spot.name).await?;
        Ok((raw, entry))
    }

    /// Checks that a directory does not move into itself.
    async fn check_tree(&self, moved: Ino, dir: Ino) -> Result<()> {
        if self.inode(moved).await?.kind() != Some(FileKind::Directory) {
            return Ok(());
        }
        let (mut at, mut steps) = (dir, 0_u32);
        while at != Ino::ROOT {
            if at == moved {
                return Err(Error::Invalid("a directory cannot be in itself"));
            }
            let (_, above) = self.spot(Spot { dir: at, name: b".." }).await?;
            let bad = || Corruption::inode(at, "the directory has no way to the root");
            steps += 1;
            at = above.filter(|_| steps <= self.geometry.inodes).ok_or_else(bad)?.ino;
        }
        Ok(())
    }

    /// Makes a new whiteout for a name.
    async fn bear_whiteout(
        &self,
        handle: &mut Handle<'_>,
        spot: Spot<'_>,
        owner: (u32, u32),
    ) -> Result<Ino> {
        let above = self.directory(spot.dir).await?;
        let born = Newborn { kind: FileKind::CharDevice, permissions: 0, owner };
        let (ino, mut raw) =
            self.bear(handle, (spot.dir, spot.name), &above, born, self.now()).await?;
        self.inherit_acl(handle, (spot.dir, &above), (ino, &mut raw), 0).await?;
        self.put_inode(handle, ino, &mut raw).await?;
        Ok(ino)
    }

    /// Moves the name of an inode from `from` to `to`, which `other` loses. The inode `left` gets
    /// the old name.
    async fn move_name(
        &self,
        handle: &mut Handle<'_>,
        (from, left): (Spot<'_>, Option<Ino>),
        ino: Ino,
        to: Spot<'_>,
        other: Option<Ino>,
    ) -> Result<()> {
        let now = self.now();
        let mut moved = self.inode(ino).await?;
        let kind = moved.kind().unwrap_or(FileKind::File);
        let is_dir = kind == FileKind::Directory;
        if let Some(other) = other {
            self.check_replaced(other, is_dir).await?;
            self.redirect(handle, to, (ino, kind), now).await?;
        } else {
            let mut above = self.directory(to.dir).await?;
            self.insert_name(handle, to.dir, &mut above, to.name, (ino, kind)).await?;
            touch(&mut above, now);
            if is_dir {
                self.add_link(&mut above)?;
            }
            self.put_inode(handle, to.dir, &mut above).await?;
        }
        // The other name may have moved within its directory.
        let (mut above, entry) = self.spot(from).await?;
        let entry = entry.ok_or(Error::NotFound)?;
        match left {
            Some(left) => {
                let left = (left, FileKind::CharDevice);
                self.redirect_name(handle, from.dir, &above, &entry, left);
            }
            None => self.remove_name(handle, from.dir, &above, &entry),
        }
        touch(&mut above, now);
        if is_dir {
            Self::remove_link(&mut above);
        }
        self.put_inode(handle, from.dir, &mut above).await?;
        if is_dir && from.dir != to.dir {
            self.put_above(handle, ino, &moved, to.dir).await?;
        }
        moved.set_time(TimeField::Change, now);
        self.put_inode(handle, ino, &mut moved).await?;
        if let Some(other) = other {
            let mut lost = self.inode(other).await?;
            self.lose_name(handle, other, &mut lost, now).await?;
        }
        Ok(())
    }

    /// Checks that an inode may lose its name to a directory, or to something else.
    async fn check_replaced(&self, other: Ino, by_directory: bool) -> Result<()> {
        let raw = self.inode(other).await?;
        match (raw.kind() == Some(FileKind::Directory), by_directory) {
            (true, false) => Err(Error::IsADirectory),
            (false, true) => Err(Error::NotADirectory),
            (true, true) if !self.is_empty(other, &raw).await? => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Makes a name lead to another inode.
    async fn redirect(
        &self,
        handle: &mut Handle<'_>,
        spot: Spot<'_>,
        target: (Ino, FileKind),
        now: Timestamp,
    ) -> Result<()> {
        let (mut above, entry) = self.spot(spot).await?;
        let entry = entry.ok_or(Error::NotFound)?;
        self.redirect_name(handle, spot.dir, &above, &entry, target);
        touch(&mut above, now);
        self.put_inode(handle, spot.dir, &mut above).await
    }

    async fn exchange(
        &self,
        handle: &mut Handle<'_>,
        from: Spot<'_>,
        one: Ino,
        to: Spot<'_>,
        other: Ino,
    ) -> Result<()> {
        let now = self.now();
        for (ino, old, new) in [(one, from, to), (other, to, from)] {
            let mut raw = self.inode(ino).await?;
            let kind = raw.kind().unwrap_or(FileKind::File);
            self.redirect(handle, new, (ino, kind), now).await?;
            raw.set_time(TimeField::Change, now);
            self.put_inode(handle, ino, &mut raw).await?;
            if kind != FileKind::Directory || from.dir == to.dir {
                continue;
            }
            self.put_above(handle, ino, &raw, new.dir).await?;
            let mut above = self.directory(old.dir).await?;
            Self::remove_link(&mut above);
            self.put_inode(handle, old.dir, &mut above).await?;
            let mut above = self.directory(new.dir).await?;
            self.add_link(&mut above)?;
            self.put_inode(handle, new.dir, &mut above).await?;
        }
        Ok(())
    }

    /// Makes the name `..` of a directory lead to `above`.
    async fn put_above(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &RawInode,
        above: Ino,
    ) -> Result<()> {
        let entry = self.find(dir, raw, b"..").await?;
        let bad = || Corruption::inode(dir, "the directory has no name ..");
        let entry = entry.ok_or_else(bad)?;
        self.redirect_name(handle, dir, raw, &entry, (above, FileKind::Directory));
        Ok(())
    }
}
