//! System calls as values, which can be drawn at random, printed, and performed in any world.

use rustix::fs::{
    Access, AtFlags, FallocateFlags, FileType, IFlags, OFlags, RenameFlags, XattrFlags,
};

/// Open files at a time.
pub(crate) const SLOTS: usize = 8;

/// A place for an open file.
pub(crate) type Slot = usize;

/// The user who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    /// Is in a second group.
    Alice,
    Bob,
}

impl User {
    /// Alice's second group.
    pub(crate) const SECOND_GROUP: u32 = 2000;

    pub(crate) const fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Alice => 1001,
            Self::Bob => 1002,
        }
    }
}

/// The new value of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetTime {
    Now,
    Omit,
    /// Seconds and nanoseconds.
    At(i64, i64),
}

/// A path, and whether a symbolic link at its end is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) path: String,
    pub(crate) follow: bool,
}

/// Names a file: a path, or an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Path(At),
    File(Slot),
}

/// Where `lseek` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    Start(u64),
    Current(i64),
    End(i64),
    Data(u64),
    Hole(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open {
        slot: Slot,
        path: String,
        flags: OFlags,
        mode: u32,
    },
    Close(Slot),
    Read {
        slot: Slot,
        len: usize,
    },
    Pread {
        slot: Slot,
        len: usize,
        at: u64,
    },
    Write {
        slot: Slot,
        len: usize,
        fill: u8,
    },
    Pwrite {
        slot: Slot,
        len: usize,
        at: u64,
        fill: u8,
    },
    Seek {
        slot: Slot,
        whence: Whence,
    },
    Truncate {
        path: String,
        size: i64,
    },
    SetSize {
        slot: Slot,
        size: u64,
    },
    Allocate {
        slot: Slot,
        mode: FallocateFlags,
        at: u64,
        len: u64,
    },
    CopyRange {
        from: Slot,
        at: Option<u64>,
        to: Slot,
        to_at: Option<u64>,
        len: usize,
    },
    Sync(Slot),
    SyncContent(Slot),
    SyncAll,
    Rename {
        from: String,
        to: String,
        flags: RenameFlags,
    },
    Link {
        from: At,
        to: String,
    },
    LinkFile {
        slot: Slot,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Unlink(String),
    RemoveDirectory(String),
    MakeDirectory {
        path: String,
        mode: u32,
    },
    MakeNode {
        path: String,
        kind: FileType,
        mode: u32,
        device: u64,
    },
    SetMode {
        of: Of,
        mode: u32,
    },
    SetOwner {
        of: Of,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetTimes {
        of: Of,
        accessed: SetTime,
        modified: SetTime,
    },
    SetXattr {
        of: Of,
        name: String,
        value: Vec<u8>,
        flags: XattrFlags,
    },
    Xattr {
        of: Of,
        name: String,
    },
    Xattrs(Of),
    RemoveXattr {
        of: Of,
        name: String,
    },
    SetFlags {
        slot: Slot,
        flags: IFlags,
    },
    Flags(Slot),
    Known(Of),
    ReadLink(String),
    List(String),
    MayAccess {
        path: String,
        access: Access,
        flags: AtFlags,
    },
    Usage,
    Umask(u32),
    /// Creates or removes many files in a directory.
    Crowd {
        dir: String,
        files: u32,
        create: bool,
    },
    /// Closes open files, unmounts all worlds, and mounts them again.
    Remount,
}

/// A call and its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its number in the sequence of the seed.
    pub(crate) number: u64,
    pub(crate) user: User,
    /// Whether the files that the call may change are held open (`O_PATH`) meanwhile.
    pub(crate) held: bool,
    pub(crate) call: Call,
}

impl Step {
    /// The files that the call names, which are compared after it.
    pub(crate) fn subjects(&self) -> Vec<Of> {
        let mut subjects = Vec::new();
        let mut path = |path: &str, follow| {
            let below = path.trim_end_matches('/');
            let above = below.rsplit_once('/').map_or(".", |(above, _)| above);
            let at = |path: &str, follow| Of::Path(At { path: path.to_owned(), follow });
            subjects.push(at(above, true));
            // The name itself is also a subject where a `/` behind it asks for a directory.
            subjects.push(at(below, false));
            if follow {
                subjects.push(at(path, true));
            }
        };
        let mut slots = Vec::new();
        match &self.call {
            Call::Open { path: at, slot, .. } => {
                path(at, true);
                slots.push(*slot);
            }
            Call::Truncate { path: at, .. }
            | Call::ReadLink(at)
            | Call::List(at)
            | Call::MayAccess { path: at, .. }
            | Call::Crowd { dir: at, .. }
            | Call::Unlink(at)
            | Call::RemoveDirectory(at)
            | Call::MakeDirectory { path: at, .. }
            | Call::MakeNode { path: at, .. }
            | Call::Symlink { path: at, .. } => path(at, true),
            Call::Rename { from, to, .. } => {
                path(from, false);
                path(to, false);
            }
            Call::Link { from, to } => {
                path(&from.path, true);
                path(to, false);
            }
            Call::LinkFile { slot, to } => {
                path(to, false);
                slots.push(*slot);
            }
            Call::SetMode { of, .. }
            | Call::SetOwner { of, .. }
            | Call::SetTimes { of, .. }
            | Call::SetXattr { of, .. }
            | Call::Xattr { of, .. }
            | Call::Xattrs(of)
            | Call::RemoveXattr { of, .. }
            | Call::Known(of) => match of {
                Of::Path(at) => path(&at.path, true),
                Of::File(slot) => slots.push(*slot),
            },
            Call::CopyRange { from, to, .. } => slots.extend([*from, *to]),
            Call::Close(slot)
            | Call::Read { slot, .. }
            | Call::Pread { slot, .. }
            | Call::Write { slot, .. }
            | Call::Pwrite { slot, .. }
            | Call::Seek { slot, .. }
            | Call::SetSize { slot, .. }
            | Call::Allocate { slot, .. }
            | Call::Sync(slot)
            | Call::SyncContent(slot)
            | Call::SetFlags { slot, .. }
            | Call::Flags(slot) => slots.push(*slot),
            Call::SyncAll | Call::Usage | Call::Umask(_) | Call::Remount => {}
        }
        subjects.extend(slots.into_iter().map(Of::File));
        subjects
    }
}
