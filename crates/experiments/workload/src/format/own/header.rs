//! The header of a recording.

use std::path::Path;

use super::{HEADER_BYTES, MAGIC, MAX_HEADER_BYTES, RecordingInfo, TraceClock, VERSION};
use crate::bytes::{u32_at, u64_at};
use crate::error::{Fault, TraceError, fault};
use crate::input::Input;
use crate::open::BlockEvent;

/// Reads the header of the recording at `path`, but not its records.
///
/// # Errors
///
/// If the file cannot be read or does not begin with the header of a recording.
pub fn read_info(path: &Path) -> Result<RecordingInfo, TraceError> {
    read(&mut Input::open(path)?)
}

/// Reads the header that `input` begins with.
pub(super) fn read(input: &mut Input) -> Result<RecordingInfo, TraceError> {
    let beginning = input.peek(MAX_HEADER_BYTES)?;
    let have = beginning.len();
    match parse_header(beginning) {
        Ok((info, bytes)) => {
            input.consume(bytes);
            Ok(info)
        }
        Err(fault) if have < HEADER_BYTES => Err(input.cut_short(0, fault.expected, have)),
        Err(fault) => Err(input.bad_bytes(0, fault)),
    }
}

/// The header that `bytes` begin with, and its length.
fn parse_header(bytes: &[u8]) -> Result<(RecordingInfo, usize), Fault> {
    const EXPECTED: &str = "the header of a Manylogs recording (MLTRACE)";
    let fixed = bytes.get(..HEADER_BYTES).filter(|fixed| fixed.starts_with(&MAGIC));
    let fixed = fixed.ok_or_else(|| fault(EXPECTED, &bytes[..bytes.len().min(8)]))?;
    let version = u16::from_le_bytes([fixed[8], fixed[9]]);
    if version != VERSION {
        let found = format!("version {version}");
        return Err(fault("a recording of version 1", found.as_bytes()));
    }
    let len = usize::try_from(u32_at(fixed, 12)).unwrap_or(usize::MAX);
    let whole = bytes.get(..len).filter(|whole| whole.len() >= HEADER_BYTES + 8);
    let whole = whole.ok_or_else(|| fault("a header of 56 to 4096 bytes", &fixed[12..16]))?;
    let (checked, crc) = whole.split_at(len - 4);
    if crc32c::crc32c(checked) != u32_at(crc, 0) {
        return Err(fault("a header with the right checksum", b"a wrong one"));
    }
    let mut strings = &checked[HEADER_BYTES..];
    let info = RecordingInfo {
        device: string(&mut strings),
        model: string(&mut strings),
        serial: string(&mut strings),
        rpm: string(&mut strings).parse().ok(),
        link: string(&mut strings),
        sectors: u64_at(fixed, 16),
        rotational: [None, Some(false), Some(true)].get(usize::from(fixed[38])).copied().flatten(),
        started_unix_ns: u64_at(fixed, 24),
        resolution_ns: u32_at(fixed, 32).max(1),
        clock: match fixed[36] {
            1 => TraceClock::Monotonic,
            2 => TraceClock::Virtual,
            _ => TraceClock::Unknown,
        },
        event: match fixed[37] {
            1 => Some(BlockEvent::Queue),
            2 => Some(BlockEvent::Issue),
            _ => None,
        },
    };
    Ok((info, len))
}

/// Takes a string with its length in front; an impossible length takes what is there.
fn string(rest: &mut &[u8]) -> String {
    let Some((len, after)) = rest.split_first_chunk::<2>() else { return String::new() };
    let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
    let (text, behind) = after.split_at(len);
    *rest = behind;
    String::from_utf8_lossy(text).into_owned()
}
