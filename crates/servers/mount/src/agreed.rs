//! What is agreed upon with the kernel.

use manylogs_fuse::{FileHandle, InitFlags, Opened, OpenedFlags, Wanted};

use crate::caches::Caches;

/// Most bytes of a write: 256 pages.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// What is agreed upon with the kernel.
pub(crate) fn wanted(caches: Caches) -> Wanted {
    Wanted {
        // The kernel checks lists of access; the umask is ours, as a default list may replace it.
        // Privileges of files are ours to take, as the kernel says who may keep them.
        required: InitFlags::POSIX_ACL
            | InitFlags::DONT_MASK
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT,
        desired: InitFlags::ASYNC_READ
            | InitFlags::ASYNC_DIO
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::HAS_IOCTL_DIR
            | caches.flags(),
        max_write: MAX_WRITE,
        max_background: 16,
        congestion_threshold: 12,
    }
}

/// How the kernel treats open files: nobody else changes them. A close promises something of files
/// that had content before, if they are open for writing; of others the kernel need not tell.
pub(crate) const OPENED: Opened =
    Opened { handle: FileHandle(0), flags: OpenedFlags::KEEP_CACHE.union(OpenedFlags::NO_FLUSH) };
