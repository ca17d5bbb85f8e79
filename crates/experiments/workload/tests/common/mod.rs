//! Fixtures made by hand, one for each format, and ways to read them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use manylogs_block::{Extent, Time};
use manylogs_workload::{
    BlockEvent, Format, OpenOptions, RecordingInfo, RecordingWriter, SourceCounts, TraceClock,
    TraceError, TraceOp, TraceRequest, TraceSource, open, open_reader,
};

pub fn request(at_ns: u64, op: TraceOp, start: u64, len: u64, device: u32) -> TraceRequest {
    TraceRequest { at: Time(at_ns), op, extent: Extent::new(start, len), fua: false, device }
}

/// Every request of a source, and its counts.
pub fn drain(source: &mut dyn TraceSource) -> Result<Vec<TraceRequest>, TraceError> {
    let mut requests = Vec::new();
    while let Some(request) = source.next_request() {
        requests.push(request?);
    }
    assert!(source.next_request().is_none(), "the end is final");
    Ok(requests)
}

pub fn try_read(
    bytes: impl AsRef<[u8]>,
    options: &OpenOptions,
) -> Result<(Vec<TraceRequest>, SourceCounts), TraceError> {
    let reader = Cursor::new(bytes.as_ref().to_vec());
    let mut source = open_reader(Path::new("fixture"), reader, options)?;
    let requests = drain(&mut source)?;
    Ok((requests, source.counts()))
}

pub fn read_bytes(
    bytes: impl AsRef<[u8]>,
    options: &OpenOptions,
) -> (Vec<TraceRequest>, SourceCounts) {
    try_read(bytes, options).unwrap()
}

pub fn error_of(bytes: impl AsRef<[u8]>, options: &OpenOptions) -> TraceError {
    try_read(bytes, options).unwrap_err()
}

pub fn read_all(path: &Path, options: &OpenOptions) -> (Vec<TraceRequest>, SourceCounts) {
    let mut source = open(path, options).unwrap();
    let requests = drain(&mut source).unwrap();
    (requests, source.counts())
}

pub fn file(bytes: impl AsRef<[u8]>, suffix: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
    file.write_all(bytes.as_ref()).unwrap();
    file
}

/// A trace that may not be shipped; `None`, with a message, where it is absent.
pub fn shared_trace(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("MANYLOGS_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared");
    let path = shared.unwrap_or(beside).join("data/traces").join(name);
    if !path.exists() {
        manylogs_testkit::skip(format_args!(
            "{} is not here (set MANYLOGS_SHARED)",
            path.display()
        ));
        return None;
    }
    Some(path)
}

const MSR: &str = "\
128166372003061629,host,0,Write,4096,8192,1000
128166372053061629,host,1,Read,1048576,65536,1000
128166372003061630,host,0,Read,0,512,2000
";

const ETW: &str = "\
BeginHeader
  DiskRead,  TimeStamp,  Process Name ( PID),  ThreadID,  CPU,  IrpPtr,  ByteOffset,  IOSize,  ElapsedTime,  DiskNum,  IrpFlags,  DiskSvcTime,  I/O Pri,  VolSnap,  FileObject,  FileName
  DiskWrite,  TimeStamp,  Process Name ( PID),  ThreadID,  CPU,  IrpPtr,  ByteOffset,  IOSize,  ElapsedTime,  DiskNum,  IrpFlags,  DiskSvcTime,  I/O Pri,  VolSnap,  FileObject,  FileName
  DiskFlush,  TimeStamp,  Process Name ( PID),  ThreadID,  CPU,  IrpPtr,  ElapsedTime,  DiskNum,  IrpFlags,  DiskSvcTime,  I/O Pri
  DiskReadInit,  TimeStamp,  Process Name ( PID),  ThreadID,  IrpPtr
EndHeader
  DiskReadInit,  50,  app.exe (77),  12,  0xfa80
  DiskWrite,  300,  app.exe (77),  12,  1,  0xfa80,  0x00001000,  0x00000200,  150,  0,  0x060043,  90,  3,  Original,  0xfa90,  \"C:\\a, b.txt\"
  DiskRead,  1050,  app.exe (77),  12,  1,  0xfa80,  0x00001000,  0x00002000,  1000,  2,  0x060043,  90,  3,  Original,  0xfa90,  \"C:\\c.txt\"
  DiskFlush,  400,  app.exe (77),  12,  0,  0xfa80,  200,  0,  0x0,  90,  3
  Image,  500,  app.exe (77)
";

const SPC: &str = "\
0,303567,3584,R,0.000000
1,240840,3072,w,0.026214
0,10,4096,W,1.000000,extra
";

const DISKSIM: &str = "0.000 0 303567 7 1\n1.500 1 55590 6 0\n";
const REPLAY: &str = "0.000 0 200626176 4096 0\n223.412 0 8192 36864 1\n";
const ALIBABA: &str = "419,W,4096,4096,1577808000000046\n725,R,8192,16384,1577808000000092\n";

const TENCENT: &str = "\
1538323200,100,8,0,1283
1538323200,200,16,1,1360
1538323201,300,8,1,1283
1538323201,301,8,1,1283
1538323201,302,8,0,1283
";

const MOBILE: &str = "\
proces,device,rw_flag,sector,size,timestamp
app-1,8388608,W,65006512,40,100.000
kworker/u17:0-9,8388608,W,65006512,40,100.002
f2fs_discard-25,8388608,R,4096,64,100.010
kworker/u17:0-9,8388608,R,4096,64,100.011
<...>-7,8388608,R,8192,2048,100.020
a,b,8388608,R,100,8,100.030
app-1,8388608,R,100,8,100.090
";

const FIO2: &str = "\
fio version 2 iolog
/dev/sda add
/dev/sdb add
/dev/sda open
/dev/sda write 0 4096
/dev/sdb wait 500 0
/dev/sdb wait 99 0
/dev/sdb read 8192 4096
/dev/sda sync 0 0
/dev/sda trim 4096 4096
/dev/sda close
";

const FIO3: &str = "\
fio version 3 iolog
0 /dev/sda add
10 /dev/sda open
100 /dev/sda write 0 4096
1500 /dev/sda read 8192 4096
1600 /dev/sda sync
1700 /dev/sda close
";

const BLKPARSE: &str = "  \
  8,16   5        1     0.000000000 18046  Q  RM 488386593 + 1 [DataXceiver for]
  8,16   5        2     0.000005724 18046  G  RM 488386593 + 1 [DataXceiver for]
  8,16   5        3     0.000006395 18046  P   N [DataXceiver for]
  8,16   5        0     0.000007000     0  m   N cfq18046S  / alloced
  8,16   5        4     0.000009504 18046  D  RM 488386593 + 1 [DataXceiver for]
  8,16   5        5     0.000019504     0  C  RM 488386593 + 1 [0]
  8,16   5        6     0.002000000   812  Q FWS [jbd2/sdb1-8]
  8,16   5        7     0.003000000   812  Q FWFS 2048 + 8 [jbd2/sdb1-8]
  8,16   5        8     0.004000000   812  Q   D 4096 + 128 [jbd2/sdb1-8]
CPU5 (8,16):
 Reads Queued:           1,        0KiB
Total (8,16):
";

const FIU: &str = "\
89966463000 4892 syslogd 508726688 8 W 6 0 531e779d39b9c0ab
89966466000 4892 syslogd 8 16 R 6 1 ca5d6a4b2a4b2a4b
";

const CSV: &str = "t_us,op,dev,offset,size\n0,R,3,4096,512\n1371163,W,3,8192,19456\n";

/// A tiny trace of `format`.
pub fn fixture(format: Format) -> Vec<u8> {
    match format {
        Format::Manylogs => recording(),
        Format::Blktrace => [
            blktrace_record(1_000_000, 2048, 4096, 0x1 << 16 | 1, 3),
            // A notification that carries the number of a queue event.
            blktrace_record(1_000_500, 0, 0, 0x400 << 16 | 1, 3),
            blktrace_record(1_001_000, 4096, 8192, (0x2 | 0x8000) << 16 | 1, 3),
            blktrace_record(1_002_000, 0, 0, (0x2 | 0x4) << 16 | 1, 3),
            blktrace_record(1_003_000, 8192, 8192, (0x2 | 0x2000) << 16 | 1, 3),
        ]
        .concat(),
        Format::Blkparse => BLKPARSE.into(),
        Format::Msr => MSR.into(),
        Format::Etw => ETW.into(),
        Format::Spc => SPC.into(),
        Format::DiskSim => DISKSIM.into(),
        Format::Replay => REPLAY.into(),
        Format::Vscsi1 => [vscsi1(0x2a, 4096, 1000, 50), vscsi1(0x28, 1, 2000, 57)].concat(),
        Format::Vscsi2 => [vscsi2(0x8a, 4096, 1000, 50), vscsi2(0x88, 1, 2000, 57)].concat(),
        Format::Alibaba => ALIBABA.into(),
        Format::Tencent => TENCENT.into(),
        Format::Mobile => MOBILE.into(),
        Format::FioIolog2 => FIO2.into(),
        Format::FioIolog3 => FIO3.into(),
        Format::Fiu => FIU.into(),
        Format::Csv => CSV.into(),
        other => panic!("no fixture of {other}"),
    }
}

/// A blktrace record with two bytes of payload.
pub fn blktrace_record(at: u64, sector: u64, bytes: u32, action: u32, cpu: u32) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(0x6561_7407_u32.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(at.to_le_bytes());
    record.extend(sector.to_le_bytes());
    record.extend(bytes.to_le_bytes());
    record.extend(action.to_le_bytes());
    record.extend(77_u32.to_le_bytes());
    record.extend((8_u32 << 20 | 16).to_le_bytes());
    record.extend(cpu.to_le_bytes());
    record.extend(0_u16.to_le_bytes());
    record.extend(2_u16.to_le_bytes());
    record.extend(b"xy");
    record
}

fn vscsi1(cmd: u16, len: u32, lbn: u64, at_us: u64) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(0x8000_00f4_u32.to_le_bytes());
    record.extend(len.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(cmd.to_le_bytes());
    record.extend(0x0100_u16.to_le_bytes());
    record.extend(lbn.to_le_bytes());
    record.extend(at_us.to_le_bytes());
    record
}

fn vscsi2(cmd: u16, len: u32, lbn: u64, at_us: u64) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(cmd.to_le_bytes());
    record.extend(0x0200_u16.to_le_bytes());
    record.extend(5_u32.to_le_bytes());
    record.extend(len.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(lbn.to_le_bytes());
    record.extend(at_us.to_le_bytes());
    record.extend(300_u64.to_le_bytes());
    record
}

pub fn info() -> RecordingInfo {
    RecordingInfo {
        device: "/dev/sdb".to_owned(),
        model: "Disk 1000".to_owned(),
        sectors: 1_953_525_168,
        rotational: Some(true),
        started_unix_ns: 1_700_000_000_000_000_000,
        resolution_ns: 1000,
        clock: TraceClock::Monotonic,
        event: Some(BlockEvent::Queue),
        ..RecordingInfo::default()
    }
}

/// Requests with every feature of our own format.
pub fn own_requests() -> Vec<TraceRequest> {
    let mut fua = request(2_000, TraceOp::Write, 72, 8, 0);
    fua.fua = true;
    vec![
        request(0, TraceOp::Write, 64, 8, 0),
        fua,
        TraceRequest::flush(Time(3_000), 0),
        request(4_000, TraceOp::Read, 1 << 40, 2048, 7),
        request(4_000, TraceOp::Discard, 0, 1 << 41, 7),
        request(9_000_000_000, TraceOp::WriteZeroes, 16, 8, 0),
    ]
}

/// A recording of [`own_requests`].
pub fn recording() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &info()).unwrap();
    for request in own_requests() {
        writer.push(&request).unwrap();
    }
    writer.add_lost(3);
    writer.finish().unwrap()
}
