//! Zeroing and discarding, of any length.

use std::fs::File;
use std::rc::Rc;

use manylogs_block::{Extent, IoError, IoResult, Payload, SECTOR_BYTES, Sectors, to_usize};
use manylogs_plant::{self as plant, Bug};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::access::Split;
use crate::buffer::Buffer;
use crate::device::{Core, Medium};
use crate::failure::{TRIES, is_passing, is_unsupported};
use crate::file_io::{Op, WriteMode};
use crate::{ioctl, partial};

/// Zeroes up to this length are written as data, like other writes. Longer ones are calls, which
/// may take long.
const ZEROES_WRITTEN: Sectors = Sectors((128 << 10) / SECTOR_BYTES);
/// Longest range of one call. A call occupies a thread for as long as the disk needs to write it,
/// about a second. Other requests have their turn between two calls of a longer range.
const CALL_MAX: Sectors = Sectors((128 << 20) / SECTOR_BYTES);
/// Zeroes written at a time if the system has no call for them: bounds the memory of a call.
const ZEROES_AT_A_TIME: u64 = 1 << 20;

/// An operation on a range of bytes of a file: start and length.
type Call = fn(&File, u64, u64) -> Result<(), Errno>;

/// Zeroes `extent`, durably if `durable`.
pub(crate) fn zero(
    core: Rc<Core>,
    extent: Extent,
    durable: bool,
    then: impl FnOnce(IoResult) + 'static,
) {
    if extent.len <= ZEROES_WRITTEN {
        let mode = WriteMode { durable, urgent: false };
        return partial::write(core, extent, Payload::zeroes(extent.len), mode, then);
    }
    let then = flushed_if(durable, &core, then);
    zero_by(core, extent, zero_range, then);
}

/// Zeroes `extent` by giving up its space. Fails if the system would have to write zeroes.
pub(crate) fn zero_fast(
    core: Rc<Core>,
    extent: Extent,
    durable: bool,
    then: impl FnOnce(IoResult) + 'static,
) {
    if split(&core, extent).whole.is_empty() {
        return then(Err(IoError::Unsupported));
    }
    let then = flushed_if(durable, &core, then);
    zero_by(core, extent, punch_only, then);
}

/// Gives up `extent` as far as the device supports it, durably if `durable`.
pub(crate) fn discard(
    core: Rc<Core>,
    extent: Extent,
    durable: bool,
    then: impl FnOnce(IoResult) + 'static,
) {
    if core.capabilities.discard {
        let then = flushed_if(durable, &core, then);
        return zero_by(core, extent, punch, then);
    }
    if core.medium == (Medium::Disk { discards: true }) {
        let whole = split(&core, extent).whole;
        return call(core, whole, advise, then);
    }
    // The content stays as it is.
    then(Ok(Payload::default()));
}

/// Wraps `then`: flushes first if `durable` and the result is a success.
fn flushed_if(
    durable: bool,
    core: &Rc<Core>,
    then: impl FnOnce(IoResult) + 'static,
) -> impl FnOnce(IoResult) + 'static {
    let core = Rc::clone(core);
    move |result| match result {
        Ok(_) if durable && !plant::is(Bug::ZeroesNotFlushed) => core.flush(then),
        other => then(other),
    }
}

/// Zeroes the whole logical sectors of `extent` with `zeroing`, and writes zeroes to the parts of
/// others.
fn zero_by(core: Rc<Core>, extent: Extent, zeroing: Call, then: impl FnOnce(IoResult) + 'static) {
    let Split { head, whole, tail } = split(&core, extent);
    zero_part(Rc::clone(&core), head, move |result| {
        if result.is_err() {
            return then(result);
        }
        zero_part(Rc::clone(&core), tail, move |result| {
            if result.is_err() {
                return then(result);
            }
            call(core, whole, zeroing, then);
        });
    });
}

fn split(core: &Core, extent: Extent) -> Split {
    if plant::is(Bug::DiscardRoundedOutwards) {
        let nothing = Extent::default();
        return Split { head: nothing, whole: core.access.covering(extent), tail: nothing };
    }
    core.access.split(extent)
}

/// Writes zeroes to `extent`, unless it is empty.
fn zero_part(core: Rc<Core>, extent: Extent, then: impl FnOnce(IoResult) + 'static) {
    if extent.is_empty() {
        return then(Ok(Payload::default()));
    }
    partial::write(core, extent, Payload::zeroes(extent.len), WriteMode::default(), then);
}

/// Lets a thread run `call` for the extent in bytes, one piece after the other.
fn call(core: Rc<Core>, extent: Extent, call: Call, then: impl FnOnce(IoResult) + 'static) {
    if extent.is_empty() {
        return then(Ok(Payload::default()));
    }
    Pieces { core, rest: extent, tries: 0, call, then }.step();
}

/// A range that is carried out piece by piece.
struct Pieces<T> {
    core: Rc<Core>,
    rest: Extent,
    tries: u32,
    call: Call,
    then: T,
}

impl<T: FnOnce(IoResult) + 'static> Pieces<T> {
    fn step(self) {
        let piece = Extent { len: self.rest.len.min(CALL_MAX), ..self.rest };
        let core = Rc::clone(&self.core);
        // Each piece is claimed on its own, so that writes to the others need not wait for the
        // whole range.
        partial::claim(&Rc::clone(&core), piece, move |claim| {
            let (call, at, len) = (self.call, piece.start.0 * SECTOR_BYTES, piece.len.bytes());
            let op = Op::Call(Box::new(move |file| call(file, at, len)));
            core.start(op, move |done| {
                drop(claim);
                self.ended(piece, done.result);
            });
        });
    }

    fn ended(mut self, piece: Extent, result: Result<usize, Errno>) {
        match result {
            Ok(_) => self.rest = Extent::between(piece.end(), self.rest.end()),
            Err(errno) if is_passing(errno) && self.tries < TRIES => self.tries += 1,
            Err(errno) => return (self.then)(Err(self.core.failure(errno, piece, false))),
        }
        if self.rest.is_empty() || plant::is(Bug::ZeroesCutShort) {
            return (self.then)(Ok(Payload::default()));
        }
        self.step();
    }
}

/// Zeroes a range and keeps its space.
fn zero_range(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, at, len) {
        Err(errno) if is_unsupported(errno) => write_zeroes(file, at, len),
        other => other,
    }
}

/// Zeroes a range and gives its space up.
fn punch(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    match punch_only(file, at, len) {
        Err(errno) if is_unsupported(errno) => zero_range(file, at, len),
        other => other,
    }
}

fn punch_only(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, at, len)
}

/// Tells a disk that a range is no longer needed. A disk without support for that is no failure.
fn advise(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    match ioctl::discard(file, at, len) {
        Err(errno) if is_unsupported(errno) => Ok(()),
        other => other,
    }
}

fn write_zeroes(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let zeroes = Buffer::new(to_usize(len.min(ZEROES_AT_A_TIME)));
    let end = at + len;
    let mut at = at;
    while at < end {
        let part = to_usize((end - at).min(ZEROES_AT_A_TIME));
        match rustix::io::pwrite(file, &zeroes.bytes()[..part], at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
