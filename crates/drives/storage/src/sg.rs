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
/// Keys of sense data.
const NO_SENSE: u8 = 0;
const RECOVERED: u8 = 1;
const ILLEGAL_REQUEST: u8 = 5;
const UNIT_ATTENTION: u8 = 6;
const ABORTED: u8 = 0xb;
/// Least length of sense data of either format.
const SENSE_LEAST: u8 = 8;

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
/// zeroes, if there are none. A drive that was reset says so once in answer to some command: then
/// the command is passed once more.
///
/// # Errors
/// [`Errno::NOTTY`] if the file is no SCSI or ATA disk, [`Errno::NOTSUP`] if the drive refuses the
/// command, [`Errno::IO`] if it did not get there.
pub(crate) fn pass_command(file: &File, cdb: &Cdb) -> Result<[u8; SENSE], Errno> {
    let answer = pass_once(file, cdb)?;
    match is_attention(&answer) {
        true => answer_of(&pass_once(file, cdb)?, cdb),
        false => answer_of(&answer, cdb),
    }
}

/// What a drive returned.
struct Answer {
    status: u8,
    host: u16,
    /// Bytes of sense data that count.
    sense_len: u8,
    sense: [u8; SENSE],
    data: [u8; SENSE],
}

fn pass_once(file: &File, cdb: &Cdb) -> Result<Answer, Errno> {
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
    let (status, host, sense_len) = (io.status, io.host_status, io.sense_written);
    Ok(Answer { status, host, sense_len, sense, data })
}

/// What went wrong, in sense data; `None` if there are too few of them to tell.
fn sense_key(answer: &Answer) -> Option<u8> {
    let sense = &answer.sense;
    let key = if sense[0] & 2 == 0 { sense[2] & 0xf } else { sense[1] & 0xf };
    (answer.sense_len >= SENSE_LEAST).then_some(key)
}

/// Whether the drive carried nothing out, and tells that something happened to it before.
fn is_attention(answer: &Answer) -> bool {
    let is_checked = (answer.host, answer.status) == (0, CHECK_CONDITION);
    is_checked && sense_key(answer) == Some(UNIT_ATTENTION)
}

/// The answer in what the drive returned.
fn answer_of(answer: &Answer, cdb: &Cdb) -> Result<[u8; SENSE], Errno> {
    match (answer.host, answer.status) {
        (0, GOOD) if cdb.returns_sense => Ok(answer.data),
        (0, GOOD) => Ok(answer.sense),
        (0, CHECK_CONDITION) => match sense_key(answer) {
            // They come with what the drive was asked for.
            Some(NO_SENSE | RECOVERED) => Ok(answer.sense),
            Some(ILLEGAL_REQUEST) => Err(Errno::NOTSUP),
            // An ATA drive aborts a command that it does not know, or was told not to obey.
            Some(ABORTED) if cdb.is_ata() => Err(Errno::NOTSUP),
            _ => Err(Errno::IO),
        },
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spindle::ATA_16;

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

    const SCSI: Cdb = Cdb { bytes: [0; 16], len: 6, returns_sense: false };
    const ATA: Cdb =
        Cdb { bytes: [ATA_16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], len: 16, ..SCSI };

    fn checked(key: u8, sense_len: u8) -> Answer {
        let mut sense = [0; SENSE];
        (sense[0], sense[2]) = (0x70, key);
        Answer { status: CHECK_CONDITION, host: 0, sense_len, sense, data: [0; SENSE] }
    }

    #[test]
    fn a_refused_command_is_told_from_one_that_failed() {
        let with_key = |key: u8, cdb: &Cdb| answer_of(&checked(key, 18), cdb).map(|_| ());
        assert_eq!(
            [with_key(1, &SCSI), with_key(5, &SCSI), with_key(4, &SCSI), with_key(0xb, &SCSI)],
            [Ok(()), Err(Errno::NOTSUP), Err(Errno::IO), Err(Errno::IO)]
        );
        assert_eq!(
            [with_key(1, &ATA), with_key(0xb, &ATA), with_key(4, &ATA)],
            [Ok(()), Err(Errno::NOTSUP), Err(Errno::IO)]
        );
        let lost = Answer { host: 7, ..checked(0, 18) };
        assert!(answer_of(&lost, &SCSI).is_err(), "no way to the drive");
    }

    #[test]
    fn a_check_without_sense_data_is_no_success() {
        assert_eq!(answer_of(&checked(0, 0), &SCSI), Err(Errno::IO));
        assert_eq!(answer_of(&checked(0, 7), &ATA), Err(Errno::IO));
        assert!(answer_of(&checked(0, 8), &ATA).is_ok());
    }

    #[test]
    fn a_drive_that_was_reset_is_asked_once_more() {
        assert!(is_attention(&checked(6, 18)));
        assert!(!is_attention(&checked(6, 0)) && !is_attention(&checked(4, 18)));
        assert!(!is_attention(&Answer { status: GOOD, ..checked(6, 18) }));
        assert_eq!(answer_of(&checked(6, 18), &ATA), Err(Errno::IO), "the second time it fails");
    }
}
