//! Formats of one line a request.

use std::fmt::{self, Display};
use std::io::Write;

use manylogs_block::{SECTOR_BYTES, Time};

use super::encode::{ALL_BUT_ZEROES, ANY_LENGTH, Encode, Holds, Kept, READS_AND_WRITES};
use crate::format::fio::{HEADER2, HEADER3, MIN_WAIT_US};
use crate::request::{TraceOp, TraceRequest};

const NANOS_PER_MICRO: u64 = 1000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_FILETIME: u64 = 100;
/// 1970 as a Windows filetime, which counts from 1601: traces begin there.
const FILETIME_OF_1970: u64 = 116_444_736_000_000_000;

/// A format in which each line describes one request completely.
#[derive(Clone, Copy)]
pub(super) struct LineFormat {
    head: &'static [u8],
    holds: &'static Holds,
    /// Step of times in nanoseconds.
    step_ns: u64,
    line: fn(&TraceRequest, &mut Vec<u8>) -> std::io::Result<()>,
}

const ALL: Holds = Holds { ops: &TraceOp::ALL, fua: true, longest: ANY_LENGTH };
const PLAIN: Holds = Holds { ops: READS_AND_WRITES, fua: false, longest: ANY_LENGTH };

pub(super) const CSV: LineFormat =
    LineFormat { head: b"t_ns,op,lba,sectors,fua,dev\n", holds: &ALL, step_ns: 1, line: csv };
pub(super) const BLKPARSE: LineFormat =
    LineFormat { head: b"", holds: &ALL, step_ns: 1, line: blkparse };
pub(super) const MSR: LineFormat =
    LineFormat { head: b"", holds: &PLAIN, step_ns: NANOS_PER_FILETIME, line: msr };
pub(super) const SPC: LineFormat = LineFormat { head: b"", holds: &PLAIN, step_ns: 1, line: spc };
pub(super) const DISKSIM: LineFormat =
    LineFormat { head: b"", holds: &PLAIN, step_ns: 1, line: disksim };
pub(super) const REPLAY: LineFormat =
    LineFormat { head: b"", holds: &PLAIN, step_ns: 1, line: replay };
pub(super) const ALIBABA: LineFormat =
    LineFormat { head: b"", holds: &PLAIN, step_ns: NANOS_PER_MICRO, line: alibaba };
pub(super) const TENCENT: LineFormat =
    LineFormat { head: b"", holds: &PLAIN, step_ns: NANOS_PER_SECOND, line: tencent };
pub(super) const FIU: LineFormat = LineFormat { head: b"", holds: &PLAIN, step_ns: 1, line: fiu };

impl Encode for LineFormat {
    fn head(&self) -> &'static [u8] {
        self.head
    }

    fn holds(&self) -> &'static Holds {
        self.holds
    }

    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept {
        let at = Time(request.at.0 - request.at.0 % self.step_ns);
        append(out, |out| (self.line)(&TraceRequest { at, ..*request }, out));
        Kept { at, device: request.device }
    }
}

/// Appends to `out`, which takes everything.
fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
    let written = write(out);
    debug_assert!(written.is_ok(), "a vector takes what is written");
}

/// Nanoseconds in a larger unit, as a decimal number with all digits.
struct Decimal {
    ns: u64,
    unit_ns: u64,
}

impl Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ns, unit_ns } = *self;
        let digits = unit_ns.ilog10() as usize;
        write!(f, "{}.{:0digits$}", ns / unit_ns, ns % unit_ns)
    }
}

const fn seconds(at: Time) -> Decimal {
    Decimal { ns: at.0, unit_ns: NANOS_PER_SECOND }
}

const fn millis(at: Time) -> Decimal {
    Decimal { ns: at.0, unit_ns: NANOS_PER_MILLI }
}

/// The byte at which the request begins.
const fn byte_of(request: &TraceRequest) -> u64 {
    request.extent.start.0 * SECTOR_BYTES
}

fn letter(op: TraceOp) -> char {
    match op {
        TraceOp::Read => 'R',
        TraceOp::Write => 'W',
        TraceOp::Discard => 'D',
        TraceOp::WriteZeroes => 'Z',
        TraceOp::Flush => 'F',
    }
}

fn csv(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let TraceRequest { at, extent, device, .. } = request;
    let (op, fua) = (letter(request.op), u8::from(request.fua));
    writeln!(out, "{},{op},{},{},{fua},{device}", at.0, extent.start.0, extent.len.0)
}

/// As blkparse prints events that were queued. The kernel has no letter for write-zeroes but N.
fn blkparse(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let TraceRequest { at, extent, device, .. } = request;
    let (major, minor, at) = (device >> 20, device & 0xf_ffff, seconds(*at));
    write!(out, "{major},{minor} 0 1 {at} 1 Q ")?;
    let letters = match request.op {
        TraceOp::Flush => return writeln!(out, "FF [manylogs]"),
        TraceOp::Read => "R",
        TraceOp::Write => "W",
        TraceOp::Discard => "D",
        TraceOp::WriteZeroes => "N",
    };
    let fua = if request.fua { "F" } else { "" };
    writeln!(out, "{letters}{fua} {} + {} [manylogs]", extent.start.0, extent.len.0)
}

fn msr(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let filetime = FILETIME_OF_1970.saturating_add(request.at.0 / NANOS_PER_FILETIME);
    let op = if request.op == TraceOp::Read { "Read" } else { "Write" };
    let (offset, size) = (byte_of(request), request.extent.len.bytes());
    writeln!(out, "{filetime},manylogs,{},{op},{offset},{size},0", request.device)
}

fn spc(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let op = if request.op == TraceOp::Read { 'r' } else { 'w' };
    let (lba, size) = (request.extent.start.0, request.extent.len.bytes());
    writeln!(out, "{},{lba},{size},{op},{}", request.device, seconds(request.at))
}

fn disksim(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    five_columns(request, 1, out)
}

fn replay(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    five_columns(request, SECTOR_BYTES, out)
}

/// The five columns of DiskSim and replay text; addresses and lengths are multiplied by `unit`.
fn five_columns(request: &TraceRequest, unit: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let is_read = u8::from(request.op == TraceOp::Read);
    let (start, len) = (request.extent.start.0 * unit, request.extent.len.0 * unit);
    writeln!(out, "{} {} {start} {len} {is_read}", millis(request.at), request.device)
}

fn alibaba(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (offset, size) = (byte_of(request), request.extent.len.bytes());
    let (device, op, at_us) = (request.device, letter(request.op), request.at.0 / NANOS_PER_MICRO);
    writeln!(out, "{device},{op},{offset},{size},{at_us}")
}

fn tencent(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (start, len) = (request.extent.start.0, request.extent.len.0);
    let is_write = u8::from(request.op == TraceOp::Write);
    writeln!(out, "{},{start},{len},{is_write},{}", request.at.0 / NANOS_PER_SECOND, request.device)
}

/// FIU's line. The digest of the content is all zeroes, because requests have no content.
fn fiu(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let TraceRequest { at, extent, device, .. } = request;
    let (start, len, op) = (extent.start.0, extent.len.0, letter(request.op));
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    writeln!(out, "{} 1 manylogs {start} {len} {op} {major} {minor} {:032}", at.0, 0)
}

const FIO: Holds = Holds { ops: ALL_BUT_ZEROES, fua: false, longest: ANY_LENGTH };

/// The files of an iolog: one for each device, numbered in the order they appear.
#[derive(Default)]
struct Files(Vec<u32>);

impl Files {
    /// The place of the device's file, and whether it is new.
    fn place(&mut self, device: u32) -> (u32, bool) {
        let found = self.0.iter().position(|known| *known == device);
        let place = found.unwrap_or_else(|| {
            self.0.push(device);
            self.0.len() - 1
        });
        (u32::try_from(place).unwrap_or(u32::MAX), found.is_none())
    }
}

/// Writes the part of a line after the time: file, action, and extent in bytes.
fn action(request: &TraceRequest, out: &mut Vec<u8>) -> std::io::Result<()> {
    let word = match request.op {
        TraceOp::Read => "read",
        TraceOp::Write => "write",
        TraceOp::Discard => "trim",
        TraceOp::Flush | TraceOp::WriteZeroes => {
            return writeln!(out, "device-{} sync", request.device);
        }
    };
    let (offset, length) = (byte_of(request), request.extent.len.bytes());
    writeln!(out, "device-{} {word} {offset} {length}", request.device)
}

/// fio iolog, version 2: times are waits, of at least 100 us.
#[derive(Default)]
pub(super) struct Iolog2 {
    files: Files,
    now_us: u64,
}

impl Encode for Iolog2 {
    fn head(&self) -> &'static [u8] {
        const HEAD: &[u8] = b"fio version 2 iolog\n";
        debug_assert!(HEAD.starts_with(HEADER2));
        HEAD
    }

    fn holds(&self) -> &'static Holds {
        &FIO
    }

    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept {
        let file = request.device;
        let (device, is_new) = self.files.place(file);
        let wait_us = (request.at.0 / NANOS_PER_MICRO).saturating_sub(self.now_us);
        append(out, |out| {
            if is_new {
                writeln!(out, "device-{file} add\ndevice-{file} open")?;
            }
            if wait_us >= MIN_WAIT_US {
                self.now_us += wait_us;
                writeln!(out, "device-{file} wait {wait_us}")?;
            }
            action(request, out)
        });
        Kept { at: Time(self.now_us * NANOS_PER_MICRO), device }
    }
}

/// fio iolog, version 3: each line begins with its time in microseconds.
#[derive(Default)]
pub(super) struct Iolog3 {
    files: Files,
}

impl Encode for Iolog3 {
    fn head(&self) -> &'static [u8] {
        const HEAD: &[u8] = b"fio version 3 iolog\n";
        debug_assert!(HEAD.starts_with(HEADER3));
        HEAD
    }

    fn holds(&self) -> &'static Holds {
        &FIO
    }

    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept {
        let file = request.device;
        let (device, is_new) = self.files.place(file);
        let at_us = request.at.0 / NANOS_PER_MICRO;
        append(out, |out| {
            if is_new {
                writeln!(out, "{at_us} device-{file} add\n{at_us} device-{file} open")?;
            }
            write!(out, "{at_us} ")?;
            action(request, out)
        });
        Kept { at: Time(at_us * NANOS_PER_MICRO), device }
    }
}
