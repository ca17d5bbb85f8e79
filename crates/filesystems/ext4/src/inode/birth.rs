//! New inodes.

use crate::alloc::NewKind;
use crate::error::Result;
use crate::extents::MAP_CREDITS;
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode, TimeField, flags};
use crate::units::{Ino, Timestamp};

/// Most blocks that a new inode changes, its first block included.
pub(crate) const BIRTH_CREDITS: usize = 4 + MAP_CREDITS;

/// Set-group-id bit: files in a directory with it inherit the directory's group.
const SET_GROUP: u16 = 0o2000;

/// The attributes of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newborn {
    pub(crate) kind: FileKind,
    /// The lower twelve bits of the mode.
    pub(crate) permissions: u16,
    pub(crate) owner: (u32, u32),
}

impl Metadata {
    /// Takes an inode into use, for a name in `parent`. The caller writes it, once it has the name
    /// or is an orphan.
    pub(crate) async fn bear(
        &self,
        handle: &mut Handle<'_>,
        (parent, name): (Ino, &[u8]),
        above: &RawInode,
        new: Newborn,
        now: Timestamp,
    ) -> Result<(Ino, RawInode)> {
        let directory = new.kind == FileKind::Directory;
        let kind = if directory { NewKind::Directory(name) } else { NewKind::Other };
        let ino = self.take_inode(handle, parent, kind).await?;
        let generation = self.last_generation(ino).await?.wrapping_add(1);
        let mut raw = RawInode::blank(self.geometry.inode_bytes, self.geometry.extra_inode_bytes);
        let inherits = above.mode() & SET_GROUP != 0;
        let group = if inherits { above.owner().1 } else { new.owner.1 };
        let inherited = if inherits && directory { SET_GROUP } else { 0 };
        raw.set_mode(new.kind.mode_bits() | new.permissions & 0o7777 | inherited);
        raw.set_owner(new.owner.0, group);
        raw.set_generation(generation);
        raw.set_flag(flags::inherited(above.flags(), new.kind), true);
        raw.set_links(if directory { 2 } else { 1 });
        for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Birth] {
            raw.set_time(field, now);
        }
        if matches!(new.kind, FileKind::File | FileKind::Directory) {
            self.put_empty_map(&mut raw);
        }
        Ok((ino, raw))
    }
}
