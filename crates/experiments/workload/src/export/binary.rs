//! Formats of binary records, little-endian.

use manylogs_block::Time;

use super::encode::{ALL_BUT_ZEROES, Encode, Holds, Kept, LENGTH_OF_32_BITS, READS_AND_WRITES};
use crate::format::blktrace::{self, ACTION_QUEUE, category};
use crate::format::vscsi::{RecordLayout, V1, V2};
use crate::request::{TraceOp, TraceRequest};

const NANOS_PER_MICRO: u64 = 1000;

/// vSCSI records; the format knows one device.
pub(super) struct Vscsi {
    layout: &'static RecordLayout,
    serial: u32,
}

const VSCSI: Holds = Holds { ops: READS_AND_WRITES, fua: false, longest: LENGTH_OF_32_BITS };

impl Vscsi {
    pub(super) const fn v1() -> Self {
        Self { layout: &V1, serial: 0 }
    }

    pub(super) const fn v2() -> Self {
        Self { layout: &V2, serial: 0 }
    }

    /// The SCSI operation code: READ(10), WRITE(10), and of 16 bytes for addresses beyond these.
    fn code(request: &TraceRequest) -> u8 {
        let far = u32::try_from(request.extent.end().0).is_err();
        match (request.op == TraceOp::Read, far) {
            (true, false) => 0x28,
            (false, false) => 0x2a,
            (true, true) => 0x88,
            (false, true) => 0x8a,
        }
    }
}

impl Encode for Vscsi {
    fn holds(&self) -> &'static Holds {
        &VSCSI
    }

    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept {
        let layout = self.layout;
        out.resize(layout.bytes, 0);
        let at_us = request.at.0 / NANOS_PER_MICRO;
        let bytes = u32::try_from(request.extent.len.bytes()).unwrap_or(u32::MAX);
        self.serial = self.serial.wrapping_add(1);
        out[layout.cmd] = Self::code(request);
        out[layout.ver + 1] = layout.version;
        put(out, layout.sn, &self.serial.to_le_bytes());
        put(out, layout.len, &bytes.to_le_bytes());
        put(out, layout.lbn, &request.extent.start.0.to_le_bytes());
        put(out, layout.ts, &at_us.to_le_bytes());
        Kept { at: Time(at_us * NANOS_PER_MICRO), device: 0 }
    }
}

fn put(out: &mut [u8], offset: usize, value: &[u8]) {
    out[offset..offset + value.len()].copy_from_slice(value);
}

/// blktrace: queued events of CPU 0, as in the file `NAME.blktrace.0`.
#[derive(Default)]
pub(super) struct Blktrace {
    sequence: u32,
}

const BLKTRACE: Holds = Holds { ops: ALL_BUT_ZEROES, fua: true, longest: LENGTH_OF_32_BITS };

impl Encode for Blktrace {
    fn holds(&self) -> &'static Holds {
        &BLKTRACE
    }

    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept {
        let operation = match request.op {
            TraceOp::Read => category::READ,
            TraceOp::Discard => category::DISCARD | category::WRITE,
            TraceOp::Write | TraceOp::WriteZeroes => category::WRITE,
            TraceOp::Flush => category::FLUSH,
        };
        let fua = if request.fua { category::FUA } else { 0 };
        let bytes = u32::try_from(request.extent.len.bytes()).unwrap_or(u32::MAX);
        self.sequence = self.sequence.wrapping_add(1);
        out.extend_from_slice(&blktrace::MAGIC.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&request.at.0.to_le_bytes());
        out.extend_from_slice(&request.extent.start.0.to_le_bytes());
        let action = ACTION_QUEUE | (operation | fua) << 16;
        // Process 1, CPU 0; no error and nothing behind the record.
        for value in [bytes, action, 1, request.device, 0, 0] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Kept { at: request.at, device: request.device }
    }
}
