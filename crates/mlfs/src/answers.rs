//! Answers that take more than one question to the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use fuser::{FileType, ReplyDirectory, ReplyIoctl, ReplyStatfs, ReplyWrite};
use manylogs_ext4::{AccessTimes, Error, Ext4, Ino, SetXattr};

use crate::callers::Caller;
use crate::convert::{Order, Sync, to_extended, to_node, to_type};
use crate::jobs::{Refuse, note_access};

/// Flags of setting an extended attribute (`man 2 setxattr`).
const XATTR_CREATE: i32 = 1;
/// See [`XATTR_CREATE`].
const XATTR_REPLACE: i32 = 2;

/// The names of a directory from a place on, as many as there is room for.
pub(crate) async fn list(
    fs: &Ext4,
    refuse: Refuse,
    (ino, offset): (Ino, u64),
    times: AccessTimes,
    mut reply: ReplyDirectory,
) {
    let listed = match fs.list(ino, offset).await {
        Ok(listed) => listed,
        Err(error) => return reply.error(refuse.errno(fs, &error)),
    };
    for entry in listed {
        // What the directory does not say is said when somebody looks.
        let kind = entry.kind.map_or(FileType::RegularFile, to_type);
        let name = OsStr::from_bytes(&entry.name);
        if reply.add(to_node(entry.ino), entry.next, kind, name) {
            break;
        }
    }
    reply.ok();
    note_access(fs, ino, times).await;
}

pub(crate) async fn write(
    fs: &Ext4,
    refuse: Refuse,
    (ino, offset): (Ino, u64),
    data: Bytes,
    sync: Option<Sync>,
    reply: ReplyWrite,
) {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let written = async {
        fs.write(ino, offset, data).await?;
        match sync {
            Some(Sync::All) => fs.sync(ino).await,
            Some(Sync::Content) => fs.sync_content(ino).await,
            None => Ok(()),
        }
    };
    match written.await {
        Ok(()) => reply.written(len),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}

pub(crate) fn usage(fs: &Ext4, reply: ReplyStatfs) {
    let usage = fs.usage();
    let (free, available) = (usage.free_blocks, usage.available_blocks);
    let (inodes, free_inodes) = (usage.inodes, usage.free_inodes);
    reply.statfs(usage.blocks, free, available, inodes, free_inodes, 4096, 255, 4096);
}

/// The names of attributes, each with a zero behind it; `trusted` ones are for root.
pub(crate) async fn xattrs(fs: &Ext4, ino: Ino, trusted: bool) -> Result<Bytes, Error> {
    let names = fs.xattrs(ino).await?.into_iter();
    let shown = names.filter(|name| trusted || !name.starts_with(b"trusted."));
    Ok(shown.flat_map(|name| name.into_iter().chain([0])).collect())
}

pub(crate) async fn set_xattr(
    fs: &Ext4,
    ino: Ino,
    name: &[u8],
    value: Bytes,
    (flags, caller): (i32, Caller),
) -> Result<(), Error> {
    // Only whoever is in the group may let programs have it.
    let group = fs.attributes(ino).await?.gid;
    let how = SetXattr {
        create: flags & XATTR_CREATE != 0,
        replace: flags & XATTR_REPLACE != 0,
        drop_set_gid: !caller.may_set_gid(group),
    };
    fs.set_xattr(ino, name, value, how).await
}

/// Answers `lsattr` and `chattr`.
pub(crate) async fn inode_flags(
    fs: &Ext4,
    refuse: Refuse,
    ino: Ino,
    order: Order,
    reply: ReplyIoctl,
) {
    let answer = match order {
        Order::GetFlags => fs.inode_flags(ino).await.map(|flags| flags.to_ne_bytes().to_vec()),
        Order::GetExtended => fs.inode_flags(ino).await.map(|flags| to_extended(flags).to_vec()),
        Order::SetFlags(flags) => fs.set_inode_flags(ino, flags).await.map(|()| Vec::new()),
    };
    match answer {
        Ok(bytes) => reply.ioctl(0, &bytes),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}
