//! Answers that take more than one call of the file system.

use std::ops::Range;

use bytes::Bytes;
use manylogs_ext4::{
    AccessTimes, Allocate, Caller, DURABLE_XATTR, Error, Ext4, Ino, Listed, SIZE_MOST, SetIds,
};
use manylogs_fuse::{IoctlDone, Names, NodeKind, Reply, Usage, Written};
use manylogs_operate::Asked;
use manylogs_operate::status::AskedKind;

use crate::asker::Asker;
use crate::asking::Touched;
use crate::caches::Caches;
use crate::convert::{FlagsIoctl, Sync, to_extended, to_kind, to_node};
use crate::hidden::Hidden;
use crate::jobs::{Refuse, answer_empty, note_access};
use crate::listings::Listings;
use crate::teller::Teller;

/// Bytes of the largest directory whose listing comes with inodes. A program that lists a larger
/// one may want names alone, and the kernel uses a KiB for each inode that it knows.
const PLUS_MOST: u64 = 1 << 20;

/// A request for a part of a directory's listing.
pub(crate) struct Listing {
    pub(crate) dir: Ino,
    pub(crate) offset: u64,
    pub(crate) room: u32,
    /// The process that reads.
    pub(crate) reader: u32,
    /// If set, each name comes with its inode's attributes, which the kernel may cache as stated
    /// here.
    pub(crate) plus: Option<Caches>,
    pub(crate) hidden: Hidden,
    pub(crate) times: AccessTimes,
}

impl Listing {
    /// Answers with the names from `offset` on, as many as there is room for. `kept` is given if
    /// the kernel caches lists.
    pub(crate) async fn answer(
        self,
        fs: &Ext4,
        refuse: Refuse,
        kept: Option<(Listings, Teller)>,
        reply: Reply<Names>,
    ) {
        if let (0, Some((listings, _))) = (self.offset, &kept) {
            listings.begin(self.dir, self.reader);
        }
        let names = match self.names(fs).await {
            Ok(names) => names,
            Err(error) => return reply.error(refuse.errno(fs, &error)),
        };
        let noted = note_access(fs, self.dir, self.times).await;
        match kept {
            Some((listings, teller)) if names.is_empty() && listings.end(self.dir, self.reader) => {
                teller.end_forgotten(self.dir, reply);
            }
            _ => reply.send(&names),
        }
        noted.keep(fs).await;
    }

    async fn names(&self, fs: &Ext4) -> Result<Names, Error> {
        let mut names = Names::with_room(self.room);
        let mut offset = self.offset;
        let with_inodes = match self.plus {
            Some(_) => fs.attributes(self.dir).await?.size <= PLUS_MOST,
            None => false,
        };
        loop {
            let listed = match shown(fs, self.hidden, self.dir, offset).await {
                // The names found before the error are valid.
                Err(_) if !names.is_empty() => return Ok(names),
                listed => listed?,
            };
            let Some(last) = listed.last() else { return Ok(names) };
            offset = last.next;
            for entry in &listed {
                if !self.push(fs, &mut names, entry, with_inodes).await {
                    return Ok(names);
                }
            }
        }
    }

    /// Adds a name; false if there is no room.
    async fn push(&self, fs: &Ext4, names: &mut Names, listed: &Listed, with_inode: bool) -> bool {
        // If the directory does not record the kind, a program learns it when it looks up the name.
        let kind = listed.kind.map_or(NodeKind::File, to_kind);
        let number = listed.ino.0.into();
        let Some(caches) = self.plus else {
            return names.push(number, listed.next, kind, &listed.name);
        };
        if !names.have_room_for_known(listed.name.len()) {
            return false;
        }
        let is_own = matches!(&*listed.name, b"." | b"..");
        // If an inode cannot be read its lookup reports the error.
        let known = match with_inode && !is_own {
            true => fs.attributes(listed.ino).await.ok(),
            false => None,
        };
        if let Some(known) = &known {
            fs.open(known.ino);
        }
        let entry = known.map(|known| caches.entry(&known));
        names.push_known(entry.as_ref(), (number, listed.next), kind, &listed.name)
    }
}

/// The next names that are not hidden; empty only at the end of the directory.
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

/// A write with its options.
pub(crate) struct Writing {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// Bypasses caches, as `O_DIRECT` does.
    pub(crate) direct: bool,
    pub(crate) sync: Option<Sync>,
    /// Set-id bits are to be cleared, because the caller may not keep them.
    pub(crate) kill_set_ids: bool,
    pub(crate) asker: Asker,
}

impl Writing {
    /// The write as the operator's statistics count it.
    pub(crate) fn asked(&self) -> Asked {
        let kind = if self.sync.is_some() { AskedKind::DurableWrite } else { AskedKind::Write };
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
    // The part beyond the largest file size is left out, unless that is all of it.
    let room = SIZE_MOST.checked_sub(write.offset).filter(|room| *room > 0);
    let room = room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
    let data = write.data.slice(..write.data.len().min(room));
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let written = async {
        fs.check_write(write.offset, len.into())?;
        // After a direct write the kernel's cache still has the old mode.
        let in_group = |gid| write.asker.is_in(gid);
        let set_ids = SetIds::taken_if(write.kill_set_ids, write.asker.credentials(&in_group));
        if fs.drop_privileges(ino, set_ids).await? {
            reply.forget_attributes(to_node(ino));
        }
        if write.sync.is_some() {
            fs.write_synced(ino, write.offset, data).await?;
        } else if write.direct {
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
        Err(error) => {
            // A part may be written.
            reply.forget_attributes(to_node(ino));
            reply.error(refuse.errno(fs, &error));
        }
    }
}

/// What `fallocate` asks for.
pub(crate) struct Allocating {
    pub(crate) ino: Ino,
    pub(crate) range: Range<u64>,
    pub(crate) what: Allocate,
    pub(crate) keep_size: bool,
    pub(crate) touched: Touched,
}

pub(crate) async fn allocate(
    fs: &Ext4,
    refuse: Refuse,
    Allocating { ino, range, what, keep_size, touched }: Allocating,
    (uid, asker): (u32, Asker),
    reply: Reply<()>,
) {
    let allocated = async {
        fs.check_allocation(ino, &range, what).await?;
        let in_group = |gid| asker.is_in(gid);
        let set_ids = SetIds::taken_if(uid != 0, asker.credentials(&in_group));
        if fs.drop_privileges(ino, set_ids).await? {
            reply.forget_attributes(to_node(ino));
        }
        fs.allocate(ino, range, what, keep_size).await
    };
    let allocated = allocated.await;
    touched.forget(fs, &allocated, &reply).await;
    answer_empty(fs, &refuse, reply, allocated);
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

/// The names of attributes, each followed by a zero; `trusted` ones are for root.
pub(crate) async fn xattrs(fs: &Ext4, ino: Ino, trusted: bool) -> Result<Bytes, Error> {
    let names = fs.xattrs(ino).await?.into_iter();
    let shown = names.filter(|name| trusted || !name.starts_with(b"trusted."));
    Ok(shown.flat_map(|name| name.into_iter().chain([0])).collect())
}

/// Answers the `ioctl`s of `lsattr` and `chattr`, and those of the durable-only property of files.
pub(crate) async fn inode_flags(
    fs: &Ext4,
    refuse: Refuse,
    (caller, ino): (Caller, Ino),
    order: FlagsIoctl,
    reply: Reply<IoctlDone>,
) {
    let answer = match order {
        FlagsIoctl::GetFlags => fs.inode_flags(ino).await.map(|flags| flags.to_ne_bytes().to_vec()),
        FlagsIoctl::GetExtended => {
            fs.inode_flags(ino).await.map(|flags| to_extended(flags).to_vec())
        }
        FlagsIoctl::SetFlags(flags) => fs.set_inode_flags(ino, flags).await.map(|()| {
            // The kernel's cache still has the old time of change.
            reply.forget_attributes(to_node(ino));
            Vec::new()
        }),
        FlagsIoctl::GetDurable => durable(fs, ino).await.map(|flag| flag.to_ne_bytes().to_vec()),
        FlagsIoctl::SetDurable(flag) => set_durable(fs, caller, ino, flag).await.map(|()| {
            reply.forget_attributes(to_node(ino));
            Vec::new()
        }),
    };
    match answer {
        Ok(data) => reply.send(&IoctlDone { result: 0, data }),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}

/// 1 if the inode has the durable attribute with the value 1, else 0.
async fn durable(fs: &Ext4, ino: Ino) -> manylogs_ext4::Result<u32> {
    match fs.xattr(ino, DURABLE_XATTR.as_bytes()).await {
        Ok(value) => Ok(u32::from(*value == *b"1")),
        Err(Error::NoXattr) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Sets the durable attribute as `setfattr` would. The kernel does not check permissions for an
/// `ioctl`, so this does.
async fn set_durable(fs: &Ext4, caller: Caller, ino: Ino, flag: u32) -> manylogs_ext4::Result<()> {
    let owner = fs.attributes(ino).await?.uid;
    if caller.uid != Caller::ROOT.uid && caller.uid != owner {
        return Err(Error::NotPermitted);
    }
    let value = Bytes::from(flag.to_string());
    let how = manylogs_ext4::SetXattr::default();
    fs.on_behalf_of(caller).set_xattr(ino, DURABLE_XATTR.as_bytes(), value, how).await
}
