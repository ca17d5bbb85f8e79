//! Error numbers for kernels and clients.

use manylogs_block::IoError;
use rustix::io::Errno;

/// The error number that describes the error best.
#[must_use]
pub const fn errno(error: &IoError) -> Errno {
    match error {
        IoError::OutOfRange { .. } => Errno::INVAL,
        IoError::ReadOnly { .. } => Errno::ROFS,
        IoError::NoSpace { .. } => Errno::NOSPC,
        IoError::Unsupported => Errno::OPNOTSUPP,
        IoError::Gone => Errno::NODEV,
        _ => Errno::IO,
    }
}

/// The error number for NBD: the protocol has eight numbers, equal to those of Linux. If the engine
/// is gone the answer is "shutting down", so that clients that can reconnect do so.
#[must_use]
pub const fn nbd_errno(error: &IoError) -> Errno {
    match error {
        IoError::Gone => Errno::SHUTDOWN,
        IoError::ReadOnly { .. } => Errno::PERM,
        error => errno(error),
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Extent;

    use super::*;

    #[test]
    fn numbers_over_nbd_are_some_that_the_protocol_knows() {
        let extent = Extent::default();
        let known = [Errno::PERM, Errno::IO, Errno::INVAL, Errno::NOSPC, Errno::SHUTDOWN];
        for error in [
            IoError::OutOfRange { extent, capacity: extent.len },
            IoError::Medium { extent },
            IoError::Transient { extent },
            IoError::Checksum { extent },
            IoError::ReadOnly { reason: "a test" },
            IoError::NoSpace { extent },
            IoError::Shrunk { extent },
            IoError::FlushFailed,
            IoError::Gone,
        ] {
            assert!(known.contains(&nbd_errno(&error)), "{error}");
        }
        assert_eq!(nbd_errno(&IoError::Unsupported), Errno::NOTSUP);
    }
}
