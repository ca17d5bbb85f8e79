//! The disks that a store lies on, as its client can compare them with its own.

use super::coder::{Reader, Writer};
use super::frame::FrameError;

/// Most disks that a store names.
const DISKS_MAX: usize = 64;

/// The disks that a store, or a base volume, lies on. Numbers of disks mean something on one
/// machine alone, until it is started anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiesOn {
    /// The machine, and when it was started; zeroes if that is unknown.
    machine: [u8; 16],
    /// The kernel's numbers of the disks.
    disks: Vec<u64>,
}

impl LiesOn {
    /// These disks of a machine; at most 64 of them count.
    #[must_use]
    pub fn new(machine: [u8; 16], mut disks: Vec<u64>) -> Self {
        disks.truncate(DISKS_MAX);
        Self { machine, disks }
    }

    /// Whether a disk is known to be among both. False does not say that there is none: either
    /// may not know all its disks.
    #[must_use]
    pub fn shares_a_disk_with(&self, other: &Self) -> bool {
        let is_known = self.machine != [0; 16] && self.machine == other.machine;
        is_known && self.disks.iter().any(|disk| other.disks.contains(disk))
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.machine).u32(manylogs_block::narrow(self.disks.len()));
        self.disks.iter().for_each(|disk| {
            writer.u64(*disk);
        });
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, FrameError> {
        let machine = reader.array()?;
        let count = reader.count(size_of::<u64>())?;
        if count > DISKS_MAX {
            return Err(FrameError::Malformed("a store on too many disks"));
        }
        let disks: Result<Vec<u64>, _> = (0..count).map(|_| reader.u64()).collect();
        Ok(Self { machine, disks: disks? })
    }
}
