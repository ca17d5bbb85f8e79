//! Flags of an inode.

use super::FileKind;

/// Changes are durable when they return.
pub(crate) const SYNC: u32 = 0x8;
pub(crate) const IMMUTABLE: u32 = 0x10;
pub(crate) const APPEND: u32 = 0x20;
pub(crate) const NO_DUMP: u32 = 0x40;
/// Reads do not change the time of access.
pub(crate) const NO_ACCESS_TIME: u32 = 0x80;
pub(crate) const INDEX: u32 = 0x1000;
/// For a directory: changes of names are durable when they return.
pub(crate) const DIR_SYNC: u32 = 0x10000;
pub(crate) const HUGE_FILE: u32 = 0x40000;
pub(crate) const EXTENTS: u32 = 0x80000;
/// Flags that a new directory inherits from its parent: sync, noatime, nodump and the like.
const INHERITED: u32 = 0x1
    | 0x2
    | SYNC
    | NO_DUMP
    | NO_ACCESS_TIME
    | 0x400
    | 0x4000
    | 0x8000
    | DIR_SYNC
    | 0x200_0000
    | 0x2000_0000;
/// Flags that only directories have: dirsync, and the inheritance of project ids.
const OF_DIRECTORIES: u32 = DIR_SYNC | 0x2000_0000;
/// Flags of inodes that this crate cannot keep intact: compressed, encrypted, verity, value in
/// another inode, inline, casefolded.
pub(crate) const FOREIGN: u32 = 0x4 | 0x800 | 0x10_0000 | 0x20_0000 | 0x1000_0000 | 0x4000_0000;

/// The flags that a new inode inherits from its directory, as in the kernel.
pub(crate) const fn inherited(above: u32, kind: FileKind) -> u32 {
    above
        & match kind {
            FileKind::Directory => INHERITED,
            FileKind::File => INHERITED & !OF_DIRECTORIES,
            _ => NO_DUMP | NO_ACCESS_TIME,
        }
}
