//! Frames of the handshake, and of calls.

use manylogs_block::Sectors;

use super::coder::{Reader, Writer};
use super::frame::{Frame, FrameError, FrameKind};
use super::lies_on::LiesOn;
use crate::call::{Ask, BaseId, Call, Opening, Session, StoreId};

const CLAIM: u8 = 1;
const WRITE: u8 = 2;
const WRITE_ZEROES: u8 = 3;
const DELETE: u8 = 4;
const READ: u8 = 5;

/// The first frame of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The client's base volume.
    pub base: BaseId,
}

/// The store's answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Name of the store.
    pub store: StoreId,
    /// Longest content of one write.
    pub longest_write: Sectors,
    /// The disks that it lies on.
    pub lies_on: LiesOn,
}

fn is_of(frame: &Frame, kind: FrameKind) -> Result<Reader, FrameError> {
    if frame.kind != kind || frame.more {
        return Err(FrameError::Malformed("a frame of another kind was expected"));
    }
    Ok(Reader::of(frame))
}

impl Hello {
    /// Encodes it as a frame.
    #[must_use]
    pub fn encode(self) -> Frame {
        let mut writer = Writer::default();
        writer.bytes(&self.base);
        Frame::new(FrameKind::Hello, writer.finish())
    }

    /// Decodes the first frame of a client.
    ///
    /// # Errors
    /// If the frame is not the first one of a client.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut reader = is_of(frame, FrameKind::Hello)?;
        let hello = Self { base: reader.array()? };
        reader.end().map(|()| hello)
    }
}

impl Welcome {
    /// Encodes it as a frame.
    #[must_use]
    pub fn encode(self) -> Frame {
        let mut writer = Writer::default();
        writer.bytes(&self.store).u64(self.longest_write.0);
        self.lies_on.write(&mut writer);
        Frame::new(FrameKind::Welcome, writer.finish())
    }

    /// Decodes the first frame of a store.
    ///
    /// # Errors
    /// If the frame is not the first one of a store, or says something impossible.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut reader = is_of(frame, FrameKind::Welcome)?;
        let (store, longest_write) = (reader.array()?, Sectors(reader.u64()?));
        let lies_on = LiesOn::read(&mut reader)?;
        reader.end()?;
        if longest_write.0 == 0 {
            return Err(FrameError::Malformed("a store that takes no writes"));
        }
        Ok(Self { store, longest_write, lies_on })
    }
}

fn write_opening(writer: &mut Writer, opening: Opening) {
    writer.u32(opening.incarnation).u64(opening.token);
}

fn read_opening(reader: &mut Reader) -> Result<Opening, FrameError> {
    Ok(Opening { incarnation: reader.u32()?, token: reader.u64()? })
}

impl Call {
    /// The call as a frame; it is the `number`th call of its connection.
    #[must_use]
    pub fn encode(&self, number: u64) -> Frame {
        let mut writer = Writer::default();
        writer.bytes(&self.base);
        write_opening(&mut writer, self.session.opening);
        writer.u32(self.session.number).u64(self.number);
        match &self.ask {
            Ask::Claim { lineage } => {
                writer.u8(CLAIM).count(lineage.len());
                lineage.iter().for_each(|opening| write_opening(&mut writer, *opening));
            }
            Ask::Write { extent, version, content: Some(content) } => {
                writer.u8(WRITE).extent(*extent).u64(version.0).payload(content);
            }
            Ask::Write { extent, version, content: None } => {
                writer.u8(WRITE_ZEROES).extent(*extent).u64(version.0);
            }
            Ask::Delete { extent, version } => {
                writer.u8(DELETE).extent(*extent).u64(version.0);
            }
            Ask::Read { extent } => {
                writer.u8(READ).extent(*extent);
            }
        }
        Frame { number, ..Frame::new(FrameKind::Call, writer.finish()) }
    }

    /// The call of a frame.
    ///
    /// # Errors
    /// If the frame holds no call, or one that is malformed.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut reader = is_of(frame, FrameKind::Call)?;
        let base = reader.array()?;
        let opening = read_opening(&mut reader)?;
        let session = Session { opening, number: reader.u32()? };
        let number = reader.u64()?;
        let ask = match reader.u8()? {
            CLAIM => {
                let count = reader.count(12)?;
                let mut lineage = Vec::with_capacity(count);
                for _ in 0..count {
                    lineage.push(read_opening(&mut reader)?);
                }
                Ask::Claim { lineage }
            }
            WRITE => {
                let (extent, version) = (reader.extent()?, reader.version()?);
                Ask::Write { extent, version, content: Some(reader.payload(extent.len)?) }
            }
            WRITE_ZEROES => {
                let (extent, version) = (reader.extent()?, reader.version()?);
                Ask::Write { extent, version, content: None }
            }
            DELETE => Ask::Delete { extent: reader.extent()?, version: reader.version()? },
            READ => Ask::Read { extent: reader.extent()? },
            _ => return Err(FrameError::Malformed("an unknown call")),
        };
        reader.end()?;
        Ok(Self { base, session, number, ask })
    }
}
