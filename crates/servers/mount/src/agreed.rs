//! The protocol options agreed upon with the kernel.

use manylogs_fuse::{FileHandle, InitFlags, Opened, OpenedFlags, Wanted};

use crate::caches::Caches;

/// Most bytes of a write: 256 pages.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// The protocol options agreed upon with the kernel; `by_ring` if requests may come through a ring.
pub(crate) fn wanted(caches: Caches, by_ring: bool) -> Wanted {
    let ring = if by_ring { InitFlags::OVER_IO_URING } else { InitFlags::empty() };
    Wanted {
        // The kernel checks access control lists. We apply the umask, because a default list may
        // replace it. We remove privileges of files; the kernel says who may keep them.
        required: InitFlags::POSIX_ACL
            | InitFlags::DONT_MASK
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT,
        desired: InitFlags::ASYNC_READ
            | InitFlags::ASYNC_DIO
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::HAS_IOCTL_DIR
            | ring
            | caches.flags(),
        max_write: MAX_WRITE,
        max_background: 16,
        congestion_threshold: 12,
    }
}

/// How the kernel treats open files: their content stays cached, because nobody else changes them.
/// The kernel need not report closes: a close matters only for files with earlier content that are
/// open for writing.
pub(crate) const OPENED: Opened =
    Opened { handle: FileHandle(0), flags: OpenedFlags::KEEP_CACHE.union(OpenedFlags::NO_FLUSH) };
