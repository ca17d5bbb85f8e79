//! The power of a real drive: ATA and SCSI commands, which the kernel passes on (`SG_IO`).
//!
//! A drive behind libata, or behind a SAS controller that translates, gets its ATA commands in ATA
//! PASS-THROUGH (16) of SAT. Other SCSI drives get START STOP UNIT. Files, virtual disks, arrays
//! and partitions have no spindle of their own that could be stopped: the commands are refused.

use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use manylogs_block::{Completion, IoError, IoResult, PowerCommand, PowerState, completion};
use rustix::io::Errno;

use crate::attached::Transport;
use crate::device::Core;
use crate::file_io::Op;
use crate::sysfs::Disk;
use crate::{failure, sg};

/// Operation code of ATA PASS-THROUGH (16).
pub(crate) const ATA_16: u8 = 0x85;
/// The protocol without data, in byte 1 of it.
const NO_DATA: u8 = 3 << 1;
/// In byte 2: the answer comes with the drive's registers.
const WITH_REGISTERS: u8 = 1 << 5;
const READ_VERIFY: u8 = 0x40;
const STANDBY_IMMEDIATE: u8 = 0xe0;
const CHECK_POWER_MODE: u8 = 0xe5;
/// In the device register: addresses count sectors.
const BY_SECTORS: u8 = 1 << 6;
const START_STOP_UNIT: u8 = 0x1b;
const REQUEST_SENSE: u8 = 0x03;
/// Bytes of sense data that are asked for.
pub(crate) const SENSE: usize = 64;
/// Condition "standby" in byte 4 of START STOP UNIT. The drive leaves it by itself when it is read
/// or written, unlike one that was stopped.
const CONDITION_STANDBY: u8 = 3 << 4;
const START: u8 = 1;

/// The language in which a drive is told what its spindle should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spindle {
    /// ATA commands.
    Ata,
    /// SCSI commands.
    Scsi,
}

/// The bytes of a command, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cdb {
    pub(crate) bytes: [u8; 16],
    pub(crate) len: u8,
    /// Whether the drive returns sense data as its answer.
    pub(crate) returns_sense: bool,
}

impl Cdb {
    /// Whether it carries an ATA command.
    pub(crate) const fn is_ata(&self) -> bool {
        self.bytes[0] == ATA_16
    }
}

impl Spindle {
    /// The language of the disk; `None` if it has no spindle of its own.
    pub(crate) fn of(disk: &Disk) -> Option<Self> {
        if disk.attribute("partition").is_some() || disk.queue("rotational")? == "0" {
            return None;
        }
        let transport = Transport::of(disk);
        match transport {
            _ if transport.is_sata() => Some(Self::Ata),
            _ if transport.is_scsi() => Some(Self::Scsi),
            _ => None,
        }
    }

    pub(crate) fn cdb(self, command: PowerCommand) -> Cdb {
        match self {
            Self::Ata => ata(command),
            Self::Scsi => scsi(command),
        }
    }

    /// The command once more, if it failed. An ATA drive starts by reading a sector, which may be
    /// damaged: so another one.
    fn again(self, command: PowerCommand) -> Option<Cdb> {
        let mut cdb = self.cdb(command);
        // Bits 16 to 23 of the sector's number: it is half a gigabyte behind the first.
        cdb.bytes[12] = 0x10;
        (self == Self::Ata && command == PowerCommand::Wake).then_some(cdb)
    }

    /// The state that the drive's answer to [`PowerCommand::Check`] tells.
    pub(crate) fn state(self, sense: &[u8; SENSE]) -> Result<PowerState, Errno> {
        match self {
            Self::Ata => ata_state(sense),
            Self::Scsi => Ok(scsi_state(sense)),
        }
    }
}

fn ata(command: PowerCommand) -> Cdb {
    let (flags, count, device, code) = match command {
        PowerCommand::Check => (WITH_REGISTERS, 0, 0, CHECK_POWER_MODE),
        PowerCommand::Standby => (0, 0, 0, STANDBY_IMMEDIATE),
        // It needs the medium, unlike IDLE IMMEDIATE, after which some drives still stand.
        PowerCommand::Wake => (0, 1, BY_SECTORS, READ_VERIFY),
    };
    let mut bytes = [0; 16];
    (bytes[0], bytes[1], bytes[2]) = (ATA_16, NO_DATA, flags);
    (bytes[6], bytes[13], bytes[14]) = (count, device, code);
    Cdb { bytes, len: 16, returns_sense: false }
}

fn scsi(command: PowerCommand) -> Cdb {
    let mut bytes = [0; 16];
    (bytes[0], bytes[4]) = match command {
        PowerCommand::Check => (REQUEST_SENSE, manylogs_block::narrow(SENSE)),
        PowerCommand::Standby => (START_STOP_UNIT, CONDITION_STANDBY),
        PowerCommand::Wake => (START_STOP_UNIT, START),
    };
    Cdb { bytes, len: 6, returns_sense: command == PowerCommand::Check }
}

/// The count register, which tells the state, in sense data of either format.
fn ata_state(sense: &[u8; SENSE]) -> Result<PowerState, Errno> {
    let count = match sense[0] & 0x7f {
        // A descriptor of the registers, behind the head.
        0x72 | 0x73 if sense[8] == 0x09 => sense[13],
        0x70 | 0x71 => sense[6],
        _ => return Err(Errno::NOTSUP),
    };
    Ok(match count {
        0x00 | 0x01 | 0x40 => PowerState::Standby,
        _ => PowerState::Awake,
    })
}

/// The state by the additional sense code and its qualifier.
fn scsi_state(sense: &[u8; SENSE]) -> PowerState {
    let (code, qualifier) = match sense[0] & 0x7f {
        0x72 | 0x73 => (sense[2], sense[3]),
        _ => (sense[12], sense[13]),
    };
    match (code, qualifier) {
        // Low power: of the conditions, those of standby; or stopped until it is started.
        (0x5e, 0x00 | 0x02 | 0x04 | 0x09 | 0x0a) | (0x04, 0x02 | 0x11) => PowerState::Standby,
        (0x04, 0x01) => PowerState::SpinningUp,
        _ => PowerState::Awake,
    }
}

/// Sends the command to the drive and waits for its end. Returns the state after it.
fn carry_out(file: &File, spindle: Spindle, command: PowerCommand) -> Result<PowerState, Errno> {
    let mut answer = sg::pass_command(file, &spindle.cdb(command));
    if let (Err(Errno::IO), Some(elsewhere)) = (&answer, spindle.again(command)) {
        answer = sg::pass_command(file, &elsewhere);
    }
    let sense = answer?;
    match command {
        PowerCommand::Check => spindle.state(&sense),
        PowerCommand::Standby => Ok(PowerState::Standby),
        PowerCommand::Wake => Ok(PowerState::Awake),
    }
}

const STATES: [PowerState; 3] = [PowerState::Awake, PowerState::SpinningUp, PowerState::Standby];

/// See [`manylogs_block::BlockDevice::power`].
pub(crate) fn power(core: &Rc<Core>, command: PowerCommand) -> Completion<PowerState> {
    let Some(spindle) = core.spindle else { return Completion::ready(Err(IoError::Unsupported)) };
    let (completer, answer) = completion();
    let passed = Rc::clone(core);
    let pass = move |flushed: IoResult| match flushed {
        Ok(_) => {
            let told = Arc::new(AtomicU8::new(0));
            let tells = Arc::clone(&told);
            let call = move |file: &File| {
                let state = carry_out(file, spindle, command)?;
                let number = STATES.iter().position(|known| *known == state).unwrap_or(0);
                tells.store(manylogs_block::narrow(number), Ordering::Release);
                Ok(())
            };
            passed.start(Op::Call(Box::new(call)), move |done| {
                let state = STATES.get(usize::from(told.load(Ordering::Acquire)));
                let state = state.copied().unwrap_or_default();
                completer.complete(done.result.map(|_| state).map_err(refusal));
            });
        }
        Err(error) => completer.complete(Err(error)),
    };
    match command {
        // The kernel must know of a flush that fails; the drive flushes once more by itself.
        PowerCommand::Standby => Rc::clone(core).flush(pass),
        PowerCommand::Check | PowerCommand::Wake => pass(Ok(manylogs_block::Payload::default())),
    }
    answer
}

/// A drive, or a controller, that knows no such command is not at fault.
fn refusal(errno: Errno) -> IoError {
    match errno {
        Errno::NOTTY
        | Errno::NOTSUP
        | Errno::INVAL
        | Errno::PERM
        | Errno::ACCESS
        | Errno::NOSYS => IoError::Unsupported,
        errno => failure::io_error(errno, manylogs_block::Extent::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_standards() {
        let ata = |command| Spindle::Ata.cdb(command);
        let standby = [0x85, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0];
        assert_eq!(ata(PowerCommand::Standby).bytes, standby);
        let check = [0x85, 6, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe5, 0];
        assert_eq!(ata(PowerCommand::Check).bytes, check);
        let wake = [0x85, 6, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0x40, 0];
        assert_eq!(ata(PowerCommand::Wake).bytes, wake);
        let again = [0x85, 6, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x10, 0x40, 0x40, 0];
        assert_eq!(Spindle::Ata.again(PowerCommand::Wake).map(|cdb| cdb.bytes), Some(again));
        assert_eq!(Spindle::Ata.again(PowerCommand::Standby), None);
        assert_eq!(Spindle::Scsi.again(PowerCommand::Wake), None);
        let scsi = |command| Spindle::Scsi.cdb(command).bytes[..6].to_vec();
        assert_eq!(scsi(PowerCommand::Standby), [0x1b, 0, 0, 0, 0x30, 0]);
        assert_eq!(scsi(PowerCommand::Wake), [0x1b, 0, 0, 0, 1, 0]);
        assert_eq!(scsi(PowerCommand::Check), [3, 0, 0, 0, 64, 0]);
    }

    fn sense(bytes: &[(usize, u8)]) -> [u8; SENSE] {
        let mut sense = [0; SENSE];
        bytes.iter().for_each(|(at, byte)| sense[*at] = *byte);
        sense
    }

    #[test]
    fn states_are_read_from_sense_data_of_both_formats() {
        let ata = |bytes: &[(usize, u8)]| Spindle::Ata.state(&sense(bytes));
        assert_eq!(ata(&[(0, 0x72), (8, 9), (9, 12), (13, 0xff)]), Ok(PowerState::Awake));
        assert_eq!(ata(&[(0, 0x72), (8, 9), (9, 12), (13, 0)]), Ok(PowerState::Standby));
        assert_eq!(ata(&[(0, 0x70), (6, 0x80)]), Ok(PowerState::Awake));
        assert_eq!(ata(&[(0, 0x70), (6, 0)]), Ok(PowerState::Standby));
        assert_eq!(ata(&[]), Err(Errno::NOTSUP));
        let scsi = |bytes: &[(usize, u8)]| Spindle::Scsi.state(&sense(bytes)).unwrap();
        assert_eq!(scsi(&[(0, 0x70), (12, 0x5e), (13, 4)]), PowerState::Standby);
        assert_eq!(scsi(&[(0, 0x70), (12, 0x5e), (13, 1)]), PowerState::Awake, "idle");
        assert_eq!(scsi(&[(0, 0x72), (2, 4), (3, 1)]), PowerState::SpinningUp);
        assert_eq!(scsi(&[(0, 0x70)]), PowerState::Awake);
    }

    #[test]
    fn a_drive_that_knows_no_such_command_is_not_at_fault() {
        assert_eq!(refusal(Errno::NOTTY), IoError::Unsupported);
        assert_eq!(refusal(Errno::NODEV), IoError::Gone);
    }
}
