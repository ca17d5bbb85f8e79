//! Errors as kernels and clients know them.

use manylogs_block::IoError;
use rustix::io::Errno;

/// The error number that says best what went wrong.
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

/// The same as NBD has it: the protocol knows eight numbers, which are those of Linux. A server
/// that is gone is reported as shutting down, so that clients that can reconnect do.
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
