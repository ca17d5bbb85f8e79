//! fio iolog, versions 2 and 3. Files are numbered as devices in the order they appear.
//!
//! Version 2 has no times except `wait`: microseconds since the wait before. All other actions
//! arrive at the last wait. Version 3 begins each line with a time since the start.

use manylogs_block::Time;

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::{TraceOp, TraceRequest};
use crate::text::{self, Blanks, blanks};

/// The first line of a version 2 log.
pub(crate) const HEADER2: &[u8] = b"fio version 2 iolog";
/// The first line of a version 3 log.
pub(crate) const HEADER3: &[u8] = b"fio version 3 iolog";

/// fio ignores waits shorter than this.
pub(crate) const MIN_WAIT_US: u64 = 100;
/// Most files: a larger number means a misread column.
const MAX_FILES: usize = 4096;
const ACTION: &str = "read, write, sync, datasync, trim, wait, add, open or close";

/// The numbers of the files seen.
#[derive(Default)]
struct Files(Vec<Box<[u8]>>);

impl Files {
    fn number(&mut self, name: &[u8]) -> Result<u32, Fault> {
        let known = self.0.iter().position(|known| **known == *name);
        let number = match known {
            Some(number) => number,
            None if self.0.len() == MAX_FILES => {
                return Err(fault("at most 4096 different file names", name));
            }
            None => {
                self.0.push(name.into());
                self.0.len() - 1
            }
        };
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// What an action word stands for.
enum Action {
    File,
    Wait,
    Request(TraceOp),
}

impl Action {
    fn parse(word: &[u8]) -> Result<Self, Fault> {
        match word {
            b"add" | b"open" | b"close" => Ok(Self::File),
            b"wait" => Ok(Self::Wait),
            b"read" => Ok(Self::Request(TraceOp::Read)),
            b"write" => Ok(Self::Request(TraceOp::Write)),
            b"trim" => Ok(Self::Request(TraceOp::Discard)),
            b"sync" | b"datasync" => Ok(Self::Request(TraceOp::Flush)),
            other => Err(fault(ACTION, other)),
        }
    }
}

fn request(
    at_ns: u64,
    op: TraceOp,
    device: u32,
    fields: &mut Blanks<'_>,
) -> Result<Decoded, Fault> {
    if op == TraceOp::Flush {
        return Ok(Decoded::Request(TraceRequest::flush(Time(at_ns), device)));
    }
    const OFFSET: &str = "an offset in bytes behind the action";
    const LENGTH: &str = "a length in bytes behind the offset";
    let offset = text::number(fields.field(OFFSET)?, OFFSET)?;
    let length = text::number(fields.field(LENGTH)?, LENGTH)?;
    plain(at_ns, op, text::byte_extent(offset, length)?, device)
}

/// Decodes version 2.
#[derive(Default)]
pub(crate) struct Iolog2 {
    files: Files,
    now_ns: u64,
}

impl Iolog2 {
    fn wait(&mut self, fields: &mut Blanks<'_>) -> Result<Decoded, Fault> {
        const WAIT: &str = "a wait in microseconds behind wait";
        let field = fields.field(WAIT)?;
        let micros = text::number(field, WAIT)?;
        if micros >= MIN_WAIT_US {
            let wait = micros.checked_mul(1000).ok_or_else(|| fault(WAIT, field))?;
            self.now_ns = self.now_ns.checked_add(wait).ok_or_else(|| fault(WAIT, field))?;
        }
        Ok(Decoded::Nothing)
    }
}

impl LineDecoder for Iolog2 {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(HEADER2) {
            return Ok(Decoded::Nothing);
        }
        let mut fields = blanks(line);
        let name = fields.field("a file name as field 1")?;
        match Action::parse(fields.field(ACTION)?)? {
            Action::File => self.files.number(name).map(|_| Decoded::Nothing),
            Action::Wait => self.wait(&mut fields),
            Action::Request(op) => {
                let device = self.files.number(name)?;
                request(self.now_ns, op, device, &mut fields)
            }
        }
    }
}

/// Decodes version 3.
pub(crate) struct Iolog3 {
    files: Files,
    unit: TimeUnit,
}

impl Iolog3 {
    pub(crate) fn new(unit: TimeUnit) -> Self {
        Self { files: Files::default(), unit }
    }
}

impl LineDecoder for Iolog3 {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(HEADER3) {
            return Ok(Decoded::Nothing);
        }
        const TIME: &str = "a time as field 1";
        let mut fields = blanks(line);
        let at = text::time(fields.field(TIME)?, self.unit, TIME)?;
        let name = fields.field("a file name as field 2")?;
        match Action::parse(fields.field(ACTION)?)? {
            Action::File => self.files.number(name).map(|_| Decoded::Nothing),
            Action::Wait => Ok(Decoded::Nothing),
            Action::Request(op) => {
                let device = self.files.number(name)?;
                request(at, op, device, &mut fields)
            }
        }
    }
}
