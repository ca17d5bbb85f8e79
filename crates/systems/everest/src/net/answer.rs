//! Answers of a store. The list of what a store holds may need several frames.

use manylogs_block::{Extent, IoError, Sectors};

use super::coder::{Reader, Writer};
use super::frame::{Frame, FrameError, FrameKind};
use crate::call::{Part, Reply};
use crate::lender::{LenderError, Load};
use crate::versions::Range;

const DONE: u8 = 1;
const HELD: u8 = 2;
const FOUND: u8 = 3;
const FAILED: u8 = 4;

/// Ranges in one frame: a megabyte.
const RANGES: usize = 40_000;
/// An answer with more ranges than this is refused, because each takes memory here.
const RANGES_MAX: usize = 1 << 27;

/// An answer, or a part of one.
#[derive(Debug)]
pub enum AnswerPart {
    /// The answer is whole.
    Whole(Result<Reply, LenderError>),
    /// The answer goes on in another frame.
    More,
}

/// Assembles answers from frames. A store sends the frames of an answer one after the other.
#[derive(Debug, Default)]
pub struct Answers {
    held: Vec<Range>,
    /// The call that the frames taken so far answer.
    begun: Option<u64>,
}

fn encode(answer: &Result<Reply, LenderError>, number: u64, load: Load) -> Vec<Frame> {
    let frame = |writer: Writer, more| Frame {
        more,
        number,
        load,
        ..Frame::new(FrameKind::Answer, writer.finish())
    };
    let mut writer = Writer::default();
    match answer {
        Ok(Reply::Done) => {
            writer.u8(DONE);
        }
        Ok(Reply::Held(ranges)) => {
            let mut frames = Vec::new();
            let chunks = ranges.chunks(RANGES);
            let (empty, last) = (chunks.len() == 0, chunks.len().saturating_sub(1));
            for (at, some) in chunks.chain(empty.then_some(&[][..])).enumerate() {
                let mut writer = Writer::default();
                writer.u8(HELD).count(some.len());
                some.iter().for_each(|range| {
                    writer.range(*range);
                });
                frames.push(frame(writer, at < last));
            }
            return frames;
        }
        Ok(Reply::Found(parts)) => {
            writer.u8(FOUND).count(parts.len());
            for Part { extent, stored } in parts {
                writer.extent(*extent);
                match stored {
                    None => writer.u8(0),
                    Some((version, content)) => writer.u8(1).u64(version.0).payload(content),
                };
            }
        }
        Err(error) => write_error(writer.u8(FAILED), error),
    }
    vec![frame(writer, false)]
}

impl Answers {
    /// The frames of an answer to call `number`; they also carry the load of the store's disk.
    #[must_use]
    pub fn encode(answer: &Result<Reply, LenderError>, number: u64, load: Load) -> Vec<Frame> {
        encode(answer, number, load)
    }

    /// Takes the next frame of answers.
    ///
    /// # Errors
    /// If the frame is no answer, or does not continue the last one: the connection must be ended.
    pub fn take(&mut self, frame: &Frame) -> Result<AnswerPart, FrameError> {
        if frame.kind != FrameKind::Answer {
            return Err(FrameError::Malformed("a frame of another kind was expected"));
        }
        if self.begun.is_some_and(|number| number != frame.number) {
            return Err(FrameError::Malformed("another answer came in between"));
        }
        let goes_on = self.begun.take().is_some();
        let mut reader = Reader::of(frame);
        let what = reader.u8()?;
        if what != HELD && (goes_on || frame.more) {
            return Err(FrameError::Malformed("an answer in parts that has none"));
        }
        let answer = match what {
            DONE => Ok(Reply::Done),
            HELD => {
                let count = reader.count(24)?;
                if self.held.len() + count > RANGES_MAX {
                    return Err(FrameError::Malformed("a store that holds too much"));
                }
                self.held.reserve(count);
                for _ in 0..count {
                    self.held.push(reader.range()?);
                }
                if frame.more {
                    self.begun = Some(frame.number);
                    return reader.end().map(|()| AnswerPart::More);
                }
                Ok(Reply::Held(std::mem::take(&mut self.held)))
            }
            FOUND => Ok(Reply::Found(read_parts(&mut reader)?)),
            FAILED => Err(read_error(&mut reader)?),
            _ => return Err(FrameError::Malformed("an unknown answer")),
        };
        reader.end().map(|()| AnswerPart::Whole(answer))
    }
}

fn read_parts(reader: &mut Reader) -> Result<Vec<Part>, FrameError> {
    let count = reader.count(17)?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let extent = reader.extent()?;
        let stored = match reader.u8()? {
            0 => None,
            1 => Some((reader.version()?, reader.payload(extent.len)?)),
            _ => return Err(FrameError::Malformed("a part that is neither there nor not")),
        };
        parts.push(Part { extent, stored });
    }
    Ok(parts)
}

fn write_error(writer: &mut Writer, error: &LenderError) {
    let none = Extent::default();
    let (code, extent) = match error {
        LenderError::Unreachable => (1, none),
        LenderError::NoSession => (2, none),
        LenderError::Repeated => (3, none),
        LenderError::Newer => (4, none),
        LenderError::Foreign => (5, none),
        LenderError::Failed(error) => match error {
            IoError::OutOfRange { extent, .. } => (16, *extent),
            IoError::Medium { extent } => (17, *extent),
            IoError::Transient { extent } => (18, *extent),
            IoError::Checksum { extent } => (19, *extent),
            IoError::ReadOnly { .. } => (20, none),
            IoError::NoSpace { extent } => (21, *extent),
            IoError::Shrunk { extent } => (22, *extent),
            IoError::Unsupported => (23, none),
            IoError::FlushFailed => (24, none),
            _ => (25, none),
        },
    };
    writer.u8(code).extent(extent);
}

fn read_error(reader: &mut Reader) -> Result<LenderError, FrameError> {
    let (code, start, len) = (reader.u8()?, reader.u64()?, reader.u64()?);
    if start.checked_add(len).is_none() {
        return Err(FrameError::Malformed("an impossible extent"));
    }
    let extent = Extent::new(start, len);
    Ok(match code {
        1 => LenderError::Unreachable,
        2 => LenderError::NoSession,
        3 => LenderError::Repeated,
        4 => LenderError::Newer,
        5 => LenderError::Foreign,
        16 => IoError::OutOfRange { extent, capacity: Sectors(0) }.into(),
        17 => IoError::Medium { extent }.into(),
        18 => IoError::Transient { extent }.into(),
        19 => IoError::Checksum { extent }.into(),
        20 => IoError::ReadOnly { reason: "the store takes no writes any more" }.into(),
        21 => IoError::NoSpace { extent }.into(),
        22 => IoError::Shrunk { extent }.into(),
        23 => IoError::Unsupported.into(),
        24 => IoError::FlushFailed.into(),
        25 => IoError::Gone.into(),
        _ => return Err(FrameError::Malformed("an unknown error")),
    })
}
