//! A read or a write, carried out in as many operations as needed.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, IoResult, Payload, Piece, SECTOR_BYTES, Sectors, to_usize};
use manylogs_plant::{self as plant, Bug};
use rustix::io::Errno;

use crate::buffer::Source;
use crate::device::Core;
use crate::failure::{TRIES, is_passing};
use crate::file_io::{Done, Op, WriteMode};

/// Longest operation: bounds the memory that a request needs beside its payload.
const OPERATION_MAX: Sectors = Sectors((4 << 20) / SECTOR_BYTES);

/// A request under way, for whole logical sectors. The memory that the kernel uses belongs to the
/// operations, not to this.
pub(crate) struct Transfer<T> {
    core: Rc<Core>,
    extent: Extent,
    /// Length of the part that is done.
    moved: Sectors,
    tries: u32,
    work: Work,
    /// Called with the answer.
    then: T,
}

pub(crate) enum Work {
    /// Collects the content that was read.
    Read(Payload),
    Write {
        payload: Payload,
        mode: WriteMode,
    },
}

/// Whether a disk can store `payload`: tags and absent content have no bytes.
pub(crate) fn has_bytes(payload: &Payload) -> bool {
    payload.pieces().iter().all(|piece| matches!(piece, Piece::Bytes(_) | Piece::Zeroes(_)))
}

impl<T: FnOnce(IoResult) + 'static> Transfer<T> {
    pub(crate) fn start(core: Rc<Core>, extent: Extent, work: Work, then: T) {
        Self { core, extent, moved: Sectors(0), tries: 0, work, then }.step();
    }

    /// The remaining part of the extent.
    fn rest(&self) -> Extent {
        Extent::between(self.extent.start + self.moved, self.extent.end())
    }

    fn step(self) {
        let rest = self.rest();
        let len = Sectors(rest.len.0.min(OPERATION_MAX.0));
        let at = rest.start.0 * SECTOR_BYTES;
        let core = Rc::clone(&self.core);
        let op = match &self.work {
            Work::Read(_) => Op::Read { at, into: core.buffer(to_usize(len.bytes())) },
            Work::Write { payload, mode } => {
                let from = source(&core, &payload.slice(self.moved, len));
                Op::Write { at, from, mode: *mode }
            }
        };
        core.start(op, move |done| self.ended(done));
    }

    fn ended(mut self, Done { result, buffer }: Done) {
        let moved = match result {
            Ok(_) if self.is_believed_whole() => self.rest().len,
            // A part of a logical sector does not count: a file may be cut anywhere, and the next
            // operation must begin at a whole one.
            Ok(bytes) => {
                let sectors = bytes as u64 / SECTOR_BYTES;
                Sectors(sectors - sectors % self.core.access.unit().0)
            }
            Err(errno) => {
                self.core.recycle(buffer);
                return self.failed(errno);
            }
        };
        match &mut self.work {
            Work::Read(content) => {
                if let (Some(buffer), true) = (buffer, moved.0 > 0) {
                    let (bytes, buffer) = buffer.share(to_usize(moved.bytes()));
                    content.append(Payload::bytes(bytes));
                    self.core.recycle(buffer);
                }
            }
            Work::Write { .. } => self.core.recycle(buffer),
        }
        self.moved += moved;
        if moved.0 == 0 {
            // An operation moves no bytes only at the end of a file.
            let extent = self.rest();
            return (self.then)(Err(IoError::Shrunk { extent }));
        }
        if self.moved < self.extent.len {
            return self.step();
        }
        (self.then)(Ok(match self.work {
            Work::Read(content) => content,
            Work::Write { .. } => Payload::default(),
        }));
    }

    fn is_believed_whole(&self) -> bool {
        matches!(self.work, Work::Write { .. }) && plant::is(Bug::ShortWriteTakenForWhole)
    }

    fn failed(mut self, errno: Errno) {
        if is_passing(errno) && self.tries < TRIES {
            self.tries += 1;
            return self.step();
        }
        let durable = matches!(&self.work, Work::Write { mode, .. } if mode.durable);
        let error = self.core.failure(errno, self.rest(), durable);
        (self.then)(Err(error));
    }
}

/// The memory to write `payload` from: a copy, unless direct I/O accepts its own place.
fn source(core: &Core, payload: &Payload) -> Source {
    if let [Piece::Bytes(bytes)] = payload.pieces()
        && let Some(shared) = Source::shared(bytes)
    {
        return shared;
    }
    let mut buffer = core.buffer(to_usize(payload.len().bytes()));
    fill(buffer.bytes_mut(), payload);
    Source::Own(buffer)
}

fn fill(mut memory: &mut [u8], payload: &Payload) {
    for piece in payload.pieces() {
        let (here, behind) = memory.split_at_mut(to_usize(piece.len().bytes()));
        match piece {
            Piece::Bytes(bytes) => here.copy_from_slice(bytes),
            _ => here.fill(0),
        }
        memory = behind;
    }
}
