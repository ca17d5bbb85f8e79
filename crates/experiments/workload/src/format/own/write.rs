//! Writing a recording.

use std::io::{self, Write};

use super::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, Context, END_BYTES, END_MAGIC, HEADER_BYTES, MAGIC,
    RecordingInfo, VERSION, tag,
};
use crate::open::BlockEvent;
use crate::request::{TraceOp, TraceRequest};

/// A block is closed when its payload reaches this length.
const BLOCK_BYTES: usize = 32 << 10;
/// Longer device and model names are truncated.
const MAX_STRING_BYTES: usize = 1024;
/// Longer serial numbers and links are truncated.
const MAX_SERIAL_BYTES: usize = 64;

/// Writes requests as a recording; call [`finish`](Self::finish) or the file counts as truncated.
#[derive(Debug)]
pub struct RecordingWriter<W: Write> {
    out: W,
    resolution_ns: u64,
    payload: Vec<u8>,
    block_records: u32,
    block_first: u64,
    context: Context,
    last: u64,
    records: u64,
    lost: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording on `out` by writing its header.
    ///
    /// # Errors
    ///
    /// If `out` cannot be written.
    pub fn new(mut out: W, info: &RecordingInfo) -> io::Result<Self> {
        out.write_all(&header(info))?;
        Ok(Self {
            out,
            resolution_ns: u64::from(info.resolution_ns.max(1)),
            payload: Vec::with_capacity(BLOCK_BYTES + 64),
            block_records: 0,
            block_first: 0,
            context: Context::default(),
            last: 0,
            records: 0,
            lost: 0,
        })
    }

    /// Appends a request. If its time is before its predecessor's, it is written with the
    /// predecessor's time.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn push(&mut self, request: &TraceRequest) -> io::Result<()> {
        let at = (request.at.0 / self.resolution_ns).max(self.last);
        if self.block_records == 0 {
            self.block_first = at;
            self.context = Context { at, ..Context::default() };
        }
        encode(&mut self.payload, &mut self.context, at, request);
        self.last = at;
        self.records += 1;
        self.block_records += 1;
        if self.payload.len() >= BLOCK_BYTES {
            self.flush_block()?;
        }
        Ok(())
    }

    /// Notes that `events` events were lost while recording.
    pub fn add_lost(&mut self, events: u64) {
        self.lost += events;
    }

    /// Requests pushed so far.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Writes the last block and the end mark, and gives the output back, flushed.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_block()?;
        let mut end = Vec::with_capacity(END_BYTES);
        end.extend_from_slice(&END_MAGIC);
        end.extend_from_slice(&self.records.to_le_bytes());
        end.extend_from_slice(&self.lost.to_le_bytes());
        end.extend_from_slice(&(self.last * self.resolution_ns).to_le_bytes());
        end.extend_from_slice(&crc32c::crc32c(&end).to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the records gathered so far as a block.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    fn flush_block(&mut self) -> io::Result<()> {
        if self.block_records == 0 {
            return Ok(());
        }
        let payload_bytes = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let mut head = Vec::with_capacity(BLOCK_HEADER_BYTES);
        head.extend_from_slice(&BLOCK_MAGIC);
        head.extend_from_slice(&self.block_records.to_le_bytes());
        head.extend_from_slice(&payload_bytes.to_le_bytes());
        head.extend_from_slice(&self.block_first.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &self.payload);
        head.extend_from_slice(&crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        self.block_records = 0;
        Ok(())
    }
}

fn header(info: &RecordingInfo) -> Vec<u8> {
    let mut texts = vec![shortened(&info.device, MAX_STRING_BYTES)];
    texts.push(shortened(&info.model, MAX_STRING_BYTES));
    let rpm = info.rpm.map_or_else(String::new, |rpm| rpm.to_string());
    let of_drive = [&info.serial, &rpm, &info.link];
    if of_drive.iter().any(|text| !text.is_empty()) {
        texts.extend(of_drive.map(|text| shortened(text, MAX_SERIAL_BYTES)));
    }
    let bytes = HEADER_BYTES + texts.iter().map(|text| 2 + text.len()).sum::<usize>() + 4;
    let mut header = Vec::with_capacity(bytes);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&0_u16.to_le_bytes());
    header.extend_from_slice(&u32::try_from(bytes).unwrap_or(0).to_le_bytes());
    header.extend_from_slice(&info.sectors.to_le_bytes());
    header.extend_from_slice(&info.started_unix_ns.to_le_bytes());
    header.extend_from_slice(&info.resolution_ns.max(1).to_le_bytes());
    header.push(info.clock as u8);
    header.push(match info.event {
        None => 0,
        Some(BlockEvent::Queue) => 1,
        Some(BlockEvent::Issue) => 2,
    });
    header.push(match info.rotational {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    });
    header.resize(HEADER_BYTES, 0);
    for text in texts {
        header.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        header.extend_from_slice(text.as_bytes());
    }
    header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
    header
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn encode(out: &mut Vec<u8>, context: &mut Context, at: u64, request: &TraceRequest) {
    let flush = request.op == TraceOp::Flush;
    let (start, len) = (request.extent.start.0, request.extent.len.0);
    let mut tag = request.op as u8;
    tag |= if request.fua { tag::FUA } else { 0 };
    tag |= if request.device != context.device { tag::DEVICE } else { 0 };
    tag |= if !flush && start == context.end { tag::SEQUENTIAL } else { 0 };
    tag |= if !flush && len == context.len { tag::SAME_LEN } else { 0 };
    out.push(tag);
    varint(out, at - context.at);
    context.at = at;
    if tag & tag::DEVICE != 0 {
        varint(out, u64::from(request.device));
        context.device = request.device;
    }
    if flush {
        return;
    }
    if tag & tag::SEQUENTIAL == 0 {
        varint(out, zigzag(start, context.end));
    }
    if tag & tag::SAME_LEN == 0 {
        varint(out, len);
    }
    context.end = start.saturating_add(len);
    context.len = len;
}

/// The distance from `from` to `to`, sign in the lowest bit.
fn zigzag(to: u64, from: u64) -> u64 {
    if to >= from { (to - from) << 1 } else { (from - to) << 1 | 1 }
}

/// Seven bits a byte, lowest first; the high bit says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
