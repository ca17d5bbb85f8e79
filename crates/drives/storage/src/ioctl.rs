//! Kernel requests for disks and files that rustix has no function for.

#![expect(unsafe_code, reason = "the kernel reads and writes what it is pointed to")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

use crate::loops::{FileId, Object};
use crate::sysfs::DeviceNumber;

/// `_IO(0x12, 119)`.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// `struct loop_info64` of `linux/loop.h`. The words behind the named ones are not needed.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    /// The number of the disk behind the loop device, if that is not a file.
    disk: u64,
    rest: [u64; 26],
}

/// Tells the disk that `len` bytes from `start` are no longer needed. Unlike after punching a hole,
/// their content is then undefined.
pub(crate) fn discard(file: &File, start: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length in bytes, and writes nothing
    // to memory. Other files than disks answer ENOTTY.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([start, len])) }
}

/// The file or disk that a loop device shows.
pub(crate) fn loop_status(node: &File) -> io::Result<Object> {
    // SAFETY: LOOP_GET_STATUS64 writes a `loop_info64`, which has 232 bytes as `LoopInfo` has, and
    // any bytes make one. Other files than loop devices answer ENOTTY.
    let info = unsafe { ioctl(node, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }?;
    let device = DeviceNumber::decoded(info.device);
    // If a file is behind it, the kernel gives no disk number, or that of the disk that holds the
    // file.
    if info.disk != 0 && info.disk != info.device {
        return Ok(Object::Disk(DeviceNumber::decoded(info.disk)));
    }
    Ok(Object::File(FileId { device, inode: info.inode }))
}

/// Locks bytes of a file until it is closed, against everybody else who opened the file. For an
/// exclusive lock (`alone`) the file must be open for writing.
///
/// # Errors
/// [`Errno::AGAIN`] if others have locked some of these bytes.
pub(crate) fn lock_bytes(file: &File, bytes: &Range<u64>, alone: bool) -> Result<(), Errno> {
    let clipped = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let start = clipped(bytes.start);
    // A length of zero means up to the end of the file, even if that moves.
    let len = if bytes.end > i64::MAX as u64 { 0 } else { clipped(bytes.end) - start };
    let narrow = |constant: libc::c_int| libc::c_short::try_from(constant).unwrap_or_default();
    let kind = if alone { libc::F_WRLCK } else { libc::F_RDLCK };
    let lock = libc::flock {
        l_type: narrow(kind),
        l_whence: narrow(libc::SEEK_SET),
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the call reads `lock`, which outlives it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_fills_what_it_is_given() {
        assert_eq!(size_of::<LoopInfo>(), 232);
    }
}
