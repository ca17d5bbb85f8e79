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
