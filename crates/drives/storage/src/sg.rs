//! Passes commands to ATA and SCSI drives through the kernel (`SG_IO`).

#![expect(unsafe_code, reason = "the kernel reads and writes what it is pointed to")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use crate::spindle::{Cdb, SENSE};

const SG_IO: libc::c_ulong = 0x2285;
const SG_NO_DATA: i32 = -1;
const SG_FROM_DEVICE: i32 = -3;
/// Longest time for a command; a spindle may start for half a minute.
const SG_PATIENCE_MS: u32 = 90_000;
/// Status of a command that ended well, and of one whose sense data tell more.
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
struct SgIo {
    interface: i32,
    direction: i32,
    command_len: u8,
    sense_len: u8,
    vectors: u16,
    data_len: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    left: i32,
    duration_ms: u32,
    info: u32,
}

/// Passes a command to a drive and waits for its end. Returns the sense data that tell the answer;
/// zeroes, if there are none.
///
/// # Errors
/// [`Errno::NOTTY`] if the file is no SCSI or ATA disk, [`Errno::NOTSUP`] if the drive refuses the
/// command, [`Errno::IO`] if it did not get there.
pub(crate) fn pass_command(file: &File, cdb: &Cdb) -> Result<[u8; SENSE], Errno> {
    let (mut sense, mut data) = ([0_u8; SENSE], [0_u8; SENSE]);
    let len: u32 = if cdb.returns_sense { manylogs_block::narrow(SENSE) } else { 0 };
    let mut io = SgIo {
        interface: i32::from(b'S'),
        direction: if len > 0 { SG_FROM_DEVICE } else { SG_NO_DATA },
        command_len: cdb.len,
        sense_len: manylogs_block::narrow(SENSE),
        vectors: 0,
        data_len: len,
        data: data.as_mut_ptr(),
        command: cdb.bytes.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: SG_PATIENCE_MS,
        flags: 0,
        pack: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        left: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: the kernel reads `io` and the command, and writes `io`, and at most SENSE bytes each
    // of sense and data, until the call returns. Other files than SCSI disks answer ENOTTY.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SG_IO, &raw mut io) };
    if done != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    answer_of(io.status, io.host_status, cdb, sense, data)
}

/// The answer in what the drive returned.
fn answer_of(
    status: u8,
    host: u16,
    cdb: &Cdb,
    sense: [u8; SENSE],
    data: [u8; SENSE],
) -> Result<[u8; SENSE], Errno> {
    // "Recovered error" and "no sense" come with what the drive was asked for.
    let key = if sense[0] & 2 == 0 { sense[2] & 0xf } else { sense[1] & 0xf };
    match (host, status) {
        (0, GOOD) if cdb.returns_sense => Ok(data),
        (0, GOOD) => Ok(sense),
        (0, CHECK_CONDITION) if key <= 1 => Ok(sense),
        // "Illegal request": the drive has no such command.
        (0, CHECK_CONDITION) if key == 5 => Err(Errno::NOTSUP),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_the_length_of_the_kernels() {
        assert_eq!(size_of::<SgIo>(), 88);
    }

    #[test]
    fn a_file_is_no_drive() {
        let file = File::open("/proc/self/exe").unwrap();
        let cdb = Cdb { bytes: [0; 16], len: 6, returns_sense: false };
        assert_eq!(pass_command(&file, &cdb), Err(Errno::NOTTY));
    }

    #[test]
    fn a_refused_command_is_told_from_one_that_failed() {
        let cdb = Cdb { bytes: [0; 16], len: 6, returns_sense: false };
        let with_key = |key: u8| {
            let mut sense = [0; SENSE];
            (sense[0], sense[2]) = (0x70, key);
            answer_of(CHECK_CONDITION, 0, &cdb, sense, [0; SENSE]).map(|_| ())
        };
        assert_eq!(
            [with_key(1), with_key(5), with_key(4)],
            [Ok(()), Err(Errno::NOTSUP), Err(Errno::IO)]
        );
        assert!(answer_of(GOOD, 7, &cdb, [0; SENSE], [0; SENSE]).is_err(), "no way to the drive");
    }
}
