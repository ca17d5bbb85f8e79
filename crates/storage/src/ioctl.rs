//! The one request to a disk that has no other form.

#![expect(unsafe_code, reason = "an ioctl reads what it is pointed to")]

use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// `_IO(0x12, 119)`.
const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);

/// Tells the disk that `len` bytes from `start` are no longer needed. Unlike a punched hole this
/// says nothing of what they read as afterwards.
pub(crate) fn discard(file: &File, start: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length in bytes, and writes nothing
    // to memory. Other files than disks answer ENOTTY.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([start, len])) }
}
