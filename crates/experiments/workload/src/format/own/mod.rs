//! Our own recording: compact, self-checking, documented byte by byte in `docs/traces.md`.
//!
//! A header, blocks of records (each with its own checksum and starting from a fresh state, so
//! that damage stays in its block), and an end mark with the number of records.

mod header;
mod read;
mod write;

pub use header::read_info;
pub(crate) use read::OwnReader;
pub use write::RecordingWriter;

use crate::open::BlockEvent;

/// First bytes of a recording.
const MAGIC: [u8; 8] = *b"MLTRACE\n";
const VERSION: u16 = 1;
/// Length of the header before its strings.
const HEADER_BYTES: usize = 48;
/// Longest header, with its strings and checksum.
const MAX_HEADER_BYTES: usize = 4096;

const BLOCK_MAGIC: [u8; 4] = *b"MLB1";
/// magic, records u32, payload bytes u32, first time u64, checksum u32.
const BLOCK_HEADER_BYTES: usize = 24;
/// The longest payload a reader accepts.
const MAX_PAYLOAD_BYTES: usize = 64 << 10;

const END_MAGIC: [u8; 4] = *b"MLEN";
/// magic, records u64, lost u64, span u64, checksum u32.
const END_BYTES: usize = 32;

/// Bits of a record's first byte; the low three are the operation.
mod tag {
    pub(super) const OP: u8 = 0b111;
    pub(super) const FUA: u8 = 1 << 3;
    /// A device number follows; else it is that of the record before.
    pub(super) const DEVICE: u8 = 1 << 4;
    /// The extent starts where the one before ended; no address follows.
    pub(super) const SEQUENTIAL: u8 = 1 << 5;
    /// The extent is as long as the one before; no length follows.
    pub(super) const SAME_LEN: u8 = 1 << 6;
    pub(super) const RESERVED: u8 = 1 << 7;
}

/// Whether a file that begins so is a recording.
pub(crate) fn probe(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}

/// The clock that timed a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceClock {
    /// Not known.
    #[default]
    Unknown = 0,
    /// The kernel's CLOCK_MONOTONIC.
    Monotonic = 1,
    /// Virtual time of a simulation.
    Virtual = 2,
}

/// The description in a recording's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingInfo {
    /// The device recorded, as the user named it (`/dev/sdb`).
    pub device: String,
    /// The drive's model, as far as the kernel knows it.
    pub model: String,
    /// The drive's serial number; empty if not known.
    pub serial: String,
    /// Revolutions of the drive a minute; `None` if not known.
    pub rpm: Option<u32>,
    /// The drive's link, `sata` or `sas`; empty if not known.
    pub link: String,
    /// The device's capacity in 512-byte sectors; 0 if not known.
    pub sectors: u64,
    /// Whether the device says it rotates; `None` if not known.
    pub rotational: Option<bool>,
    /// Start of the recording, nanoseconds since 1970 UTC; 0 if not known.
    pub started_unix_ns: u64,
    /// Granularity of the times in nanoseconds: they are multiples of it. At least 1.
    pub resolution_ns: u32,
    /// The clock.
    pub clock: TraceClock,
    /// The event recorded; `None` if not known.
    pub event: Option<BlockEvent>,
}

impl Default for RecordingInfo {
    fn default() -> Self {
        Self {
            device: String::new(),
            model: String::new(),
            serial: String::new(),
            rpm: None,
            link: String::new(),
            sectors: 0,
            rotational: None,
            started_unix_ns: 0,
            resolution_ns: 1,
            clock: TraceClock::Unknown,
            event: None,
        }
    }
}

/// The values against which the next record is encoded; reset at the start of every block.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    /// Time of the record before, in units of the resolution.
    at: u64,
    end: u64,
    len: u64,
    device: u32,
}
