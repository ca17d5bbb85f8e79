//! Answers that take more than one question to the file system.

use bytes::Bytes;
use manylogs_ext4::{AccessTimes, Error, Ext4, Ino, Listed, SIZE_MOST, SetIds};
use manylogs_fuse::{IoctlDone, Kind as NodeKind, Names, Reply, Usage, Written};
use manylogs_operate::Asked;
use manylogs_operate::status::Kind;

use crate::asker::Asker;
use crate::convert::{Order, Sync, to_extended, to_kind, to_node};
use crate::hidden::Hidden;
use crate::jobs::{Refuse, note_access};

/// The names of a directory from a place on, as many as there is room for.
pub(crate) async fn list(
    fs: &Ext4,
    refuse: Refuse,
    (ino, offset, room): (Ino, u64, u32),
    (hidden, times): (Hidden, AccessTimes),
    reply: Reply<Names>,
) {
    let listed = match shown(fs, hidden, ino, offset).await {
        Ok(listed) => listed,
        Err(error) => return reply.error(refuse.errno(fs, &error)),
    };
    let mut names = Names::with_room(room);
    for entry in listed {
        // What the directory does not say is said when somebody looks.
        let kind = entry.kind.map_or(NodeKind::File, to_kind);
        if !names.push(entry.ino.0.into(), entry.next, kind, &entry.name) {
            break;
        }
    }
    let noted = note_access(fs, ino, times).await;
    reply.send(&names);
    noted.keep(fs).await;
}

/// The next names that anybody may see; none at the end of the directory only.
async fn shown(fs: &Ext4, hidden: Hidden, ino: Ino, mut offset: u64) -> Result<Vec<Listed>, Error> {
    loop {
        let mut listed = fs.list(ino, offset).await?;
        let Some(last) = listed.last() else { return Ok(listed) };
        offset = last.next;
        listed.retain(|entry| !hidden.has(ino, &entry.name));
        if !listed.is_empty() {
            return Ok(listed);
        }
    }
}

/// A write, and what comes with it.
pub(crate) struct Writing {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// Past caches, as `O_DIRECT` has it.
    pub(crate) direct: bool,
    pub(crate) sync: Option<Sync>,
    /// Set-id bits go, as the caller may not keep them.
    pub(crate) kill_set_ids: bool,
    pub(crate) asker: Asker,
}

impl Writing {
    /// As the operator hears of it.
    pub(crate) fn asked(&self) -> Asked {
        let kind = if self.sync.is_some() { Kind::DurableWrite } else { Kind::Write };
        Asked { kind, bytes: self.data.len() as u64 }
    }
}

pub(crate) async fn write(
    fs: &Ext4,
    refuse: Refuse,
    ino: Ino,
    write: Writing,
    reply: Reply<Written>,
) {
    // What goes beyond the largest size is left out, unless it is all.
    let room = SIZE_MOST.checked_sub(write.offset).filter(|room| *room > 0);
    let room = room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
    let data = write.data.slice(..write.data.len().min(room));
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let written = async {
        fs.check_write(write.offset, len.into())?;
        // After a write past its page cache the kernel still has the mode from before.
        let in_group = |gid| write.asker.is_in(gid);
        let set_ids = SetIds::taken_if(write.kill_set_ids, write.asker.credentials(&in_group));
        if fs.drop_privileges(ino, set_ids).await? {
            reply.forget_attributes(to_node(ino));
        }
        if write.direct {
            fs.write_through(ino, write.offset, data).await?;
        } else {
            fs.write(ino, write.offset, data).await?;
        }
        match write.sync {
            Some(Sync::All) => fs.sync(ino).await,
            Some(Sync::Content) => fs.sync_content(ino).await,
            None => Ok(()),
        }
    };
    match written.await {
        Ok(()) => reply.send(&Written(len)),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}

pub(crate) fn usage(fs: &Ext4) -> Usage {
    let usage = fs.usage();
    Usage {
        block_bytes: 4096,
        blocks: usage.blocks,
        free_blocks: usage.free_blocks,
        available_blocks: usage.available_blocks,
        inodes: usage.inodes,
        free_inodes: usage.free_inodes,
        longest_name: 255,
    }
}

/// The names of attributes, each with a zero behind it; `trusted` ones are for root.
pub(crate) async fn xattrs(fs: &Ext4, ino: Ino, trusted: bool) -> Result<Bytes, Error> {
    let names = fs.xattrs(ino).await?.into_iter();
    let shown = names.filter(|name| trusted || !name.starts_with(b"trusted."));
    Ok(shown.flat_map(|name| name.into_iter().chain([0])).collect())
}

/// Answers `lsattr` and `chattr`.
pub(crate) async fn inode_flags(
    fs: &Ext4,
    refuse: Refuse,
    ino: Ino,
    order: Order,
    reply: Reply<IoctlDone>,
) {
    let answer = match order {
        Order::GetFlags => fs.inode_flags(ino).await.map(|flags| flags.to_ne_bytes().to_vec()),
        Order::GetExtended => fs.inode_flags(ino).await.map(|flags| to_extended(flags).to_vec()),
        Order::SetFlags(flags) => fs.set_inode_flags(ino, flags).await.map(|()| {
            // The time of change, which the kernel has from before.
            reply.forget_attributes(to_node(ino));
            Vec::new()
        }),
    };
    match answer {
        Ok(data) => reply.send(&IoctlDone { result: 0, data }),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}
