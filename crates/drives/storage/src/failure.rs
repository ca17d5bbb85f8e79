//! Translates the kernel's error numbers into errors of a request.

use manylogs_block::{Extent, IoError};
use manylogs_plant::{self as plant, Bug};
use rustix::io::Errno;

/// Number of tries of an operation that the kernel interrupts.
pub(crate) const TRIES: u32 = 16;

/// Why a request for `extent` failed.
///
/// The error numbers are those that the block layer makes from a drive's answer (`blk_errors` in
/// the kernel's `block/blk-core.c`), and those that file systems return.
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
        // A medium error, and stored data that does not match its protection information. Only by
        // these two numbers does a drive say that the data at this place is bad. EIO says nothing:
        // the cause may be a cable. EUCLEAN and EBADMSG concern the metadata of a file system,
        // whose repair brings the data back, too.
        Errno::NODATA | Errno::ILSEQ => IoError::Medium { extent },
        _ if plant::is(Bug::TransientTakenForMedium) => IoError::Medium { extent },
        _ => IoError::Transient { extent },
    }
}

/// Whether the same operation may succeed if it is tried again at once.
pub(crate) fn is_passing(errno: Errno) -> bool {
    [Errno::INTR, Errno::AGAIN].contains(&errno)
}

/// Whether the kernel says that it does not support the operation here.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::NOTTY].contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_the_block_layer_and_of_file_systems_has_its_meaning() {
        let extent = Extent::new(8, 2);
        let (medium, transient) = (IoError::Medium { extent }, IoError::Transient { extent });
        let (full, gone) = (IoError::NoSpace { extent }, IoError::Gone);
        let refused = IoError::ReadOnly { reason: "the system refuses writes to it" };
        for (errno, meaning, source) in [
            (Errno::OPNOTSUPP, &IoError::Unsupported, "BLK_STS_NOTSUPP"),
            (Errno::TIMEDOUT, &transient, "BLK_STS_TIMEOUT"),
            (Errno::NOSPC, &full, "BLK_STS_NOSPC"),
            (Errno::NOLINK, &transient, "BLK_STS_TRANSPORT"),
            (Errno::REMOTEIO, &transient, "BLK_STS_TARGET"),
            (Errno::BADE, &transient, "BLK_STS_RESV_CONFLICT"),
            (Errno::NODATA, &medium, "BLK_STS_MEDIUM"),
            (Errno::ILSEQ, &medium, "BLK_STS_PROTECTION"),
            (Errno::NOMEM, &transient, "BLK_STS_RESOURCE"),
            (Errno::BUSY, &transient, "BLK_STS_DEV_RESOURCE"),
            (Errno::AGAIN, &transient, "BLK_STS_AGAIN"),
            (Errno::NODEV, &gone, "BLK_STS_OFFLINE"),
            (Errno::REMCHG, &transient, "BLK_STS_DM_REQUEUE"),
            (Errno::TOOMANYREFS, &transient, "BLK_STS_ZONE_OPEN_RESOURCE"),
            (Errno::OVERFLOW, &transient, "BLK_STS_ZONE_ACTIVE_RESOURCE"),
            (Errno::TIME, &transient, "BLK_STS_DURATION_LIMIT"),
            (Errno::INVAL, &IoError::Unsupported, "BLK_STS_INVAL"),
            (Errno::IO, &transient, "BLK_STS_IOERR"),
            (Errno::UCLEAN, &transient, "a file system whose metadata is damaged"),
            (Errno::BADMSG, &transient, "a file system whose metadata has a wrong checksum"),
            (Errno::DQUOT, &full, "a file system whose quota is used up"),
            (Errno::FBIG, &full, "a file that may not be so long"),
            (Errno::ROFS, &refused, "a file system that is read-only after an error"),
            (Errno::PERM, &refused, "a sealed or immutable file"),
            (Errno::STALE, &gone, "a network file system whose server lost the file"),
            (Errno::NOTCONN, &gone, "FUSE without its server"),
            (Errno::SHUTDOWN, &gone, "a file system that was shut down"),
            (Errno::CANCELED, &transient, "an operation that was cancelled"),
        ] {
            assert_eq!(io_error(errno, extent), *meaning, "{source}");
        }
    }
}
