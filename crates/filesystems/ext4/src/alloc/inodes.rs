//! Picking inodes, and giving them back.

use crate::dir;
use crate::error::{Corruption, Error, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bitmap;
use crate::ondisk::group::{BitmapKind, GroupMut};
use crate::units::{BlockNo, GroupNo, Ino};

/// The kind of file that an inode is picked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewKind<'a> {
    /// A directory of this name.
    Directory(&'a [u8]),
    /// Anything else.
    Other,
}

/// What some groups have.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    inodes: u64,
    blocks: u64,
    directories: u64,
}

impl Metadata {
    /// Takes an inode into use, near `parent`. A directory's inode is taken in a group with room
    /// for its files. Directories in the root are spread over the disk, because they are likely of
    /// different users.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if none is free.
    pub(crate) async fn take_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: Ino,
        kind: NewKind<'_>,
    ) -> Result<Ino> {
        let near = self.geometry.group_of_inode(parent).map_or(GroupNo(0), |(group, _)| group);
        let first = match kind {
            NewKind::Directory(name) if parent == Ino::ROOT => self.far_group(name),
            NewKind::Directory(_) => self.group_beside(near),
            NewKind::Other => near,
        };
        let directory = matches!(kind, NewKind::Directory(_));
        for step in 0..self.geometry.groups {
            let group = GroupNo((first.0 + step) % self.geometry.groups);
            if self.group(group, |group| group.free_inodes()) == 0 {
                continue;
            }
            let bits = self.bits(group, BitmapKind::Inodes).await?;
            let reserved = if group.0 == 0 { self.geometry.first_free_inode - 1 } else { 0 };
            let range = reserved..self.geometry.inodes_per_group;
            let Some(index) = bitmap::first_free(&bits, range) else { continue };
            self.mark_inode(handle, group, index, directory, true).await?;
            return Ok(Ino(group.0 * self.geometry.inodes_per_group + index + 1));
        }
        Err(Error::NoSpace)
    }

    /// Whether the inode is in use by a file. Of the reserved inodes only the root is.
    pub(crate) async fn is_in_use(&self, ino: Ino) -> Result<bool> {
        let Some((group, index)) = self.geometry.group_of_inode(ino) else { return Ok(false) };
        if ino.0 < self.geometry.first_free_inode {
            return Ok(ino == Ino::ROOT);
        }
        Ok(bitmap::is_set(&self.bits(group, BitmapKind::Inodes).await?, index))
    }

    /// Gives an inode back.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not in use.
    pub(crate) async fn free_inode(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        directory: bool,
    ) -> Result<()> {
        let none = || Corruption::inode(ino, "there is no such inode");
        let (group, index) = self.geometry.group_of_inode(ino).ok_or_else(none)?;
        let bits = self.bits(group, BitmapKind::Inodes).await?;
        if !bitmap::is_set(&bits, index) {
            return Err(Corruption::inode(ino, "it is freed twice").into());
        }
        self.mark_inode(handle, group, index, directory, false).await
    }

    /// The block at which the search for a new file's blocks begins.
    pub(crate) fn goal(&self, ino: Ino) -> BlockNo {
        let group = self.geometry.group_of_inode(ino).map_or(GroupNo(0), |(group, _)| group);
        self.geometry.first_block(group)
    }

    /// The first group of the nearest flexible group that has room for directories, as the kernel
    /// picks it: not much fewer free inodes and blocks than others, and not too many directories.
    fn group_beside(&self, near: GroupNo) -> GroupNo {
        let geometry = &self.geometry;
        let size = geometry.groups_in_flex.min(geometry.groups);
        let flexes = geometry.groups.div_ceil(size);
        let mean = |all: u64| all / u64::from(flexes);
        let quarter = |of_group: u32| u64::from(of_group) * u64::from(size) / 4;
        let inodes = quarter(geometry.inodes_per_group);
        let least_inodes = mean(self.space.free_inodes()).saturating_sub(inodes).max(1);
        let blocks = quarter(geometry.blocks_per_group);
        let least_blocks = mean(self.space.free_blocks()).saturating_sub(blocks);
        let has_room = |flex: &u32| {
            let room = self.room_in(flex * size..geometry.groups.min((flex + 1) * size));
            let directories_fit = room.directories < (inodes / 4).max(1);
            room.inodes >= least_inodes && room.blocks >= least_blocks && directories_fit
        };
        let found = (0..flexes).map(|step| (near.0 / size + step) % flexes).find(has_room);
        let roomy = || self.roomy_groups(near).next().unwrap_or(near);
        found.map_or_else(roomy, |flex| GroupNo(flex * size))
    }

    /// What is free in these groups together, and how many directories they have.
    fn room_in(&self, groups: std::ops::Range<u32>) -> Room {
        let add = |room: Room, group: GroupNo| {
            self.group(group, |group| Room {
                inodes: room.inodes + u64::from(group.free_inodes()),
                blocks: room.blocks + u64::from(group.free_blocks()),
                directories: room.directories + u64::from(group.directories()),
            })
        };
        groups.map(GroupNo).fold(Room::default(), add)
    }

    /// Of the groups with room the one with the fewest directories, as the kernel picks it. Among
    /// equals it is the first behind the group that the hash of the name gives.
    fn far_group(&self, name: &[u8]) -> GroupNo {
        let near = GroupNo(dir::spread(&self.geometry, name) % self.geometry.groups);
        let directories = |group: GroupNo| self.group(group, |group| group.directories());
        let mut fewest: Option<(u32, GroupNo)> = None;
        for group in self.roomy_groups(near) {
            let count = directories(group);
            if fewest.is_none_or(|(least, _)| count < least) {
                fewest = Some((count, group));
            }
            if count == 0 {
                break;
            }
        }
        fewest.map_or(near, |(_, group)| group)
    }

    /// The groups with at least the mean number of free inodes and blocks, the nearest behind
    /// `near` first.
    fn roomy_groups(&self, near: GroupNo) -> impl Iterator<Item = GroupNo> + '_ {
        let groups = u64::from(self.geometry.groups);
        let (inodes, blocks) =
            (self.space.free_inodes() / groups, self.space.free_blocks() / groups);
        let is_roomy = move |group: &GroupNo| {
            self.group(*group, |group| {
                u64::from(group.free_inodes()) >= inodes.max(1)
                    && u64::from(group.free_blocks()) >= blocks
            })
        };
        let groups = self.geometry.groups;
        let behind = (0..groups).map(move |step| (near.0 + step) % groups);
        behind.map(GroupNo).filter(is_roomy)
    }

    async fn mark_inode(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNo,
        index: u32,
        directory: bool,
        used: bool,
    ) -> Result<()> {
        let step = |count: u32, up: bool| {
            if up { count.checked_add(1) } else { count.checked_sub(1) }
        };
        let (free, directories, unused) = self.group(group, |group| {
            (group.free_inodes(), group.directories(), group.unused_inodes())
        });
        let bad = || Corruption::group(group, "the count of free inodes is wrong");
        let free = step(free, !used).ok_or_else(bad)?;
        let directories = if directory { step(directories, used) } else { Some(directories) };
        let directories = directories.ok_or_else(bad)?;
        let unused = unused.min(self.geometry.inodes_per_group - index - 1);
        let fill = |bits: &mut [u8]| bitmap::fill(bits, index..index + 1, used);
        let count = |group: &mut GroupMut<'_>| {
            group.set_free_inodes(free);
            group.set_directories(directories);
            if used {
                group.set_unused_inodes(unused);
            }
        };
        self.change_bits(handle, group, BitmapKind::Inodes, fill, count).await?;
        handle.note_free_inodes(if used { -1 } else { 1 });
        Ok(())
    }
}
