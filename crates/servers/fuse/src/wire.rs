//! The structures of the protocol, as they lie in memory.
//!
//! Facts are from the kernel's public header `linux/fuse.h`, protocol 7.31 to 7.45. All numbers
//! are in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Defines structures that consist of numbers alone, without gaps, and checks their sizes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal {
        $($field:ident: $kind:ty),* $(,)?
    })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable,
            KnownLayout,
        )]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}

/// Numbers and names of operations.
macro_rules! operations {
    ($($name:ident $text:literal = $number:literal),* $(,)?) => {
        /// Numbers of operations.
        pub(crate) mod opcode {
            $(pub(crate) const $name: u32 = $number;)*

            /// The name of an operation.
            pub(crate) const fn name(number: u32) -> &'static str {
                match number {
                    $($number => $text,)*
                    _ => "other",
                }
            }
        }
    };
}

operations! {
    LOOKUP "lookup" = 1,
    FORGET "forget" = 2,
    GETATTR "getattr" = 3,
    SETATTR "setattr" = 4,
    READLINK "readlink" = 5,
    SYMLINK "symlink" = 6,
    MKNOD "mknod" = 8,
    MKDIR "mkdir" = 9,
    UNLINK "unlink" = 10,
    RMDIR "rmdir" = 11,
    RENAME "rename" = 12,
    LINK "link" = 13,
    OPEN "open" = 14,
    READ "read" = 15,
    WRITE "write" = 16,
    STATFS "statfs" = 17,
    RELEASE "release" = 18,
    FSYNC "fsync" = 20,
    SETXATTR "setxattr" = 21,
    GETXATTR "getxattr" = 22,
    LISTXATTR "listxattr" = 23,
    REMOVEXATTR "removexattr" = 24,
    FLUSH "flush" = 25,
    INIT "init" = 26,
    OPENDIR "opendir" = 27,
    READDIR "readdir" = 28,
    RELEASEDIR "releasedir" = 29,
    FSYNCDIR "fsyncdir" = 30,
    ACCESS "access" = 34,
    CREATE "create" = 35,
    DESTROY "destroy" = 38,
    IOCTL "ioctl" = 39,
    BATCH_FORGET "batch_forget" = 42,
    FALLOCATE "fallocate" = 43,
    RENAME2 "rename" = 45,
    LSEEK "lseek" = 46,
    READDIRPLUS "readdirplus" = 44,
    SYNCFS "syncfs" = 50,
    TMPFILE "tmpfile" = 51,
    STATX "statx" = 52,
}

/// Which fields of a `SETATTR` count.
pub(crate) mod setattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Of a `WRITE`: clear set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Of an `OPEN` that truncates the file: clear set-id bits.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// Of a `SETXATTR` of an access control list: clear the set-group-id bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Of an `FSYNC`: only content must become durable.
pub(crate) const FSYNC_DATASYNC: u32 = 1 << 0;

/// Fields of a `STATX` answer that every file has: all but the birth.
pub(crate) const STATX_BASIC: u32 = 0x7ff;
/// The field of a `STATX` answer with the time of birth.
pub(crate) const STATX_BIRTH: u32 = 0x800;

structures! {
    /// Before each request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before each answer.
    OutHeader: 16 { len: u32, error: i32, unique: u64 }
    /// A notification: the kernel forgets attributes, and pages from `off` on unless it is
    /// negative.
    InvalidateInode: 24 { ino: u64, off: i64, len: i64 }
    /// A notification: the kernel forgets a name, which follows with a zero behind it.
    InvalidateEntry: 16 { parent: u64, namelen: u32, flags: u32 }
    /// A notification: the kernel forgets inodes that nobody uses, whose numbers follow.
    Prune: 16 { count: u32, padding: u32, spare: u64 }
    /// The attributes of an inode.
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// The part of `INIT` that every kernel sends.
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// What kernels from 7.36 on add.
    InitInMore: 48 { flags2: u32, unused: [u32; 11] }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    ForgetIn: 8 { nlookup: u64 }
    BatchForgetIn: 8 { count: u32, dummy: u32 }
    ForgetOne: 16 { nodeid: u64, nlookup: u64 }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    SetattrIn: 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    SxTime: 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx: 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut: 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn: 8 { mode: u32, umask: u32 }
    RenameIn: 8 { newdir: u64 }
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn: 8 { oldnodeid: u64 }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    /// Of `CREATE` and `TMPFILE`.
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// Of `READ` and `READDIR`.
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut: 8 { size: u32, padding: u32 }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// Of `SETXATTR`, if its extended form was not agreed upon.
    SetxattrIn: 8 { size: u32, flags: u32 }
    /// What the extended form adds.
    SetxattrMore: 8 { setxattr_flags: u32, padding: u32 }
    GetxattrIn: 8 { size: u32, padding: u32 }
    GetxattrOut: 8 { size: u32, padding: u32 }
    AccessIn: 8 { mask: u32, padding: u32 }
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut: 8 { offset: u64 }
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
}
