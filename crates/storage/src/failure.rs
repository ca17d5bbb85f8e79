//! What the kernel's error numbers mean for a request.

use manylogs_block::{Extent, IoError};
use rustix::io::Errno;

/// Why a request for `extent` failed.
pub(crate) fn io_error(errno: Errno, extent: Extent) -> IoError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace { extent },
        Errno::NODEV
        | Errno::NXIO
        | Errno::NOTCONN
        | Errno::NOMEDIUM
        | Errno::STALE
        | Errno::SHUTDOWN => IoError::Gone,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY => IoError::Unsupported,
        Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::BADF => {
            IoError::ReadOnly { reason: "the system refuses writes to it" }
        }
        // What the block layer makes of "medium error" and "protection error", and file systems of
        // content whose checksum is wrong. No other number speaks of the medium: EIO may be a
        // cable as well.
        Errno::NODATA | Errno::ILSEQ | Errno::UCLEAN | Errno::BADMSG => IoError::Medium { extent },
        _ => IoError::Transient { extent },
    }
}

/// Whether the same operation may succeed when it is tried again at once.
pub(crate) fn is_passing(errno: Errno) -> bool {
    [Errno::INTR, Errno::AGAIN].contains(&errno)
}

/// Whether the kernel says that it has no such operation here.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::NOTTY].contains(&errno)
}
