//! Kernel requests for disks and files that rustix has no function for.

#![expect(unsafe_code, reason = "the kernel reads and writes what it is pointed to")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

use crate::loops::{FileId, Object};
use crate::mapped::Target;
use crate::sysfs::DeviceNumber;

/// `_IO(0x12, 119)`.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// `_IOWR(0xfd, 12, struct dm_ioctl)`.
const DM_TABLE_STATUS: libc::c_ulong = 0xc138_fd0c;
/// Asks for what targets were told, not for their state.
const DM_STATUS_TABLE: u32 = 1 << 4;
/// The answer has more bytes than there is room for.
const DM_BUFFER_FULL: u32 = 1 << 8;
/// Length of `struct dm_ioctl` of `linux/dm-ioctl.h`, behind which the answer begins.
const DM_HEAD: usize = 312;
/// Length of a `struct dm_target_spec`, behind which its parameters are.
const DM_TARGET: usize = 40;
/// Tables of mapped devices fit into so many bytes, or are not read.
const DM_ANSWER_MOST: usize = 1 << 20;

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

/// The rows of the table of a mapped device. `control` is device-mapper's control device.
pub(crate) fn mapped_table(control: &File, number: DeviceNumber) -> io::Result<Vec<Target>> {
    let mut len = 16 << 10;
    while len <= DM_ANSWER_MOST {
        let mut bytes = vec![0_u8; len];
        fill_request(&mut bytes, number);
        // SAFETY: the kernel reads and writes at most as many bytes as the request's length says,
        // which are there.
        let done = unsafe { libc::ioctl(control.as_raw_fd(), DM_TABLE_STATUS, bytes.as_mut_ptr()) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        if word(&bytes, 28).is_some_and(|flags| flags & DM_BUFFER_FULL == 0) {
            let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "no table");
            return parse_table(&bytes).ok_or_else(nonsense);
        }
        len *= 4;
    }
    Err(io::ErrorKind::OutOfMemory.into())
}

/// Asks for the table of the device: the fields of `struct dm_ioctl` that are not zero.
fn fill_request(bytes: &mut [u8], number: DeviceNumber) {
    let DeviceNumber { major, minor } = number;
    let device = u64::from((minor & 0xff) | (major << 8)) | u64::from(minor >> 8) << 20;
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    // The version of the interface, the request's length, and where the answer begins.
    for (at, value) in
        [(0, 4), (12, len), (16, manylogs_block::narrow(DM_HEAD)), (28, DM_STATUS_TABLE)]
    {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    bytes[40..48].copy_from_slice(&device.to_ne_bytes());
}

/// Reads the rows of an answer: each is a `struct dm_target_spec` and a text that ends with a zero.
fn parse_table(bytes: &[u8]) -> Option<Vec<Target>> {
    let (begin, count) = (usize::try_from(word(bytes, 16)?).ok()?, word(bytes, 20)?);
    let answer = bytes.get(begin.max(DM_HEAD)..)?;
    let text = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let (mut targets, mut at) = (Vec::new(), 0);
    for _ in 0..count {
        let row = answer.get(at..)?;
        let start = u64::from_ne_bytes(*row.first_chunk()?);
        let (kind, parameters) = (text(row.get(24..DM_TARGET)?), text(row.get(DM_TARGET..)?));
        targets.push(Target { start, kind, parameters });
        at = usize::try_from(word(row, 20)?).ok()?;
    }
    Some(targets)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
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

    /// An answer with two rows, as the kernel writes it.
    fn answer() -> Vec<u8> {
        let mut bytes = vec![0; 16 << 10];
        fill_request(&mut bytes, DeviceNumber { major: 253, minor: 7 });
        assert_eq!(bytes[40..48], 0xfd07_u64.to_ne_bytes());
        bytes[20..24].copy_from_slice(&2_u32.to_ne_bytes());
        let rows =
            [(0_u64, "linear", "8:1 2048", 56), (1024, "striped", "2 128 8:1 0 8:17 0", 120)];
        let mut at = DM_HEAD;
        for (start, kind, parameters, next) in rows {
            bytes[at..at + 8].copy_from_slice(&start.to_ne_bytes());
            bytes[at + 20..at + 24].copy_from_slice(&u32::to_ne_bytes(next));
            bytes[at + 24..at + 24 + kind.len()].copy_from_slice(kind.as_bytes());
            let text = at + DM_TARGET;
            bytes[text..text + parameters.len()].copy_from_slice(parameters.as_bytes());
            at = DM_HEAD + next as usize;
        }
        bytes
    }

    #[test]
    fn a_table_is_read_row_by_row() {
        let found = parse_table(&answer()).unwrap();
        let target = |start, kind: &str, parameters: &str| Target {
            start,
            kind: kind.to_owned(),
            parameters: parameters.to_owned(),
        };
        let expected =
            [target(0, "linear", "8:1 2048"), target(1024, "striped", "2 128 8:1 0 8:17 0")];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_no_table() {
        let mut bytes = answer();
        bytes[DM_HEAD + 20..DM_HEAD + 24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse_table(&bytes), None);
        assert_eq!(parse_table(&answer()[..DM_HEAD + 10]), None);
        assert_eq!(parse_table(&[]), None);
    }
}
