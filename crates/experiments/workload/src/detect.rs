//! Guesses the format of a trace from its beginning.

use crate::error::{TraceError, UnknownFormat, printable};
use crate::format::{alibaba, blkparse, blktrace, csv, disksim, fio, fiu, mobile, msr, own};
use crate::format::{spc, tencent, vscsi};
use crate::input::Input;
use crate::lines::{LineDecoder, is_blank};
use crate::open::{BlockEvent, Format, OpenOptions, TimeUnit};
use crate::text;

use manylogs_block::SECTOR_BYTES;

const SAMPLE_BYTES: usize = 64 << 10;
const SAMPLE_LINES: usize = 256;

/// What the beginning of a file suggests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    pub(crate) format: Format,
    /// The unit of times, where the format leaves it open and the numbers suggest one.
    pub(crate) time_unit: Option<TimeUnit>,
}

/// The format that the options force, or that the beginning of `input` suggests.
pub(crate) fn detect(input: &mut Input, options: &OpenOptions) -> Result<Guess, TraceError> {
    let file = input.file().to_owned();
    let sample = input.peek(SAMPLE_BYTES)?;
    let lines = sample_lines(sample);
    let format = match options.format {
        Some(format) => format,
        None => binary(sample).or_else(|| text(&lines)).ok_or_else(|| unknown(&file, sample))?,
    };
    let time_unit = (format == Format::DiskSim).then(|| disksim_unit(&lines));
    Ok(Guess { format, time_unit })
}

fn unknown(file: &std::path::Path, sample: &[u8]) -> TraceError {
    let unknown = |beginning: String| {
        TraceError::UnknownFormat(Box::new(UnknownFormat { file: file.to_owned(), beginning }))
    };
    if sample.is_empty() {
        return unknown("nothing: it is empty".to_owned());
    }
    let compressed = match sample {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz data: unpack it, or pack it with zstd"),
        [b'B', b'Z', b'h', ..] => Some("bzip2 data: unpack it, or pack it with zstd"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive: unpack it, or pack it with zstd"),
        _ => None,
    };
    unknown(compressed.map_or_else(|| printable(first_line(sample)), str::to_owned))
}

fn first_line(sample: &[u8]) -> &[u8] {
    sample.split(|&byte| byte == b'\n').next().unwrap_or(sample)
}

/// The whole lines of the sample that are not empty.
fn sample_lines(sample: &[u8]) -> Vec<&[u8]> {
    let whole = match sample.iter().rposition(|&byte| byte == b'\n') {
        Some(end) if sample.len() >= SAMPLE_BYTES => &sample[..end],
        _ => sample,
    };
    let lines = whole.split(|&byte| byte == b'\n').filter(|line| !is_blank(line));
    lines.take(SAMPLE_LINES).collect()
}

fn binary(sample: &[u8]) -> Option<Format> {
    if own::probe(sample) {
        return Some(Format::Manylogs);
    }
    if blktrace::probe(sample) {
        return Some(Format::Blktrace);
    }
    match vscsi::probe(sample)? {
        1 => Some(Format::Vscsi1),
        _ => Some(Format::Vscsi2),
    }
}

fn text(lines: &[&[u8]]) -> Option<Format> {
    headed(text::trim(lines.first()?)).or_else(|| most_lines_decoded(lines))
}

/// The format, for those formats that have a telling first line.
fn headed(first: &[u8]) -> Option<Format> {
    match first {
        mobile::HEADER => Some(Format::Mobile),
        b"BeginHeader" => Some(Format::Etw),
        _ if first.starts_with(fio::HEADER2) => Some(Format::FioIolog2),
        _ if first.starts_with(fio::HEADER3) => Some(Format::FioIolog3),
        _ if csv::probe(first) => Some(Format::Csv),
        _ => None,
    }
}

/// The format that decodes most of the lines, if more than half of them.
fn most_lines_decoded(lines: &[&[u8]]) -> Option<Format> {
    let scores = [
        (Format::Msr, score(lines, msr::Msr)),
        (Format::Alibaba, score(lines, alibaba::Alibaba)),
        (Format::Tencent, score(lines, tencent::Tencent)),
        (Format::Spc, score(lines, spc::Spc)),
        (Format::Fiu, score(lines, fiu::Fiu)),
        (Format::Blkparse, score(lines, blkparse::Blkparse::new(BlockEvent::Queue))),
        (Format::Mobile, score(lines, mobile::MobileCsv)),
        (Format::DiskSim, score(lines, disksim::DiskSim::new(TimeUnit::Nanoseconds))),
    ];
    // Of formats that decode equally many lines the first one wins: later ones accept more.
    let (format, best) = scores.into_iter().rev().max_by_key(|&(_, score)| score)?;
    if best * 2 <= lines.len() {
        return None;
    }
    Some(if format == Format::DiskSim { sectors_or_bytes(lines) } else { format })
}

fn score(lines: &[&[u8]], mut decoder: impl LineDecoder) -> usize {
    lines.iter().filter(|line| decoder.decode(line).is_ok()).count()
}

/// DiskSim and replay text look the same, but addresses and sizes in bytes are all multiples of a
/// sector, which that many sizes in sectors are not.
fn sectors_or_bytes(lines: &[&[u8]]) -> Format {
    let five = |line: &&[u8]| disksim::five_numbers(line, TimeUnit::Nanoseconds).ok();
    let mut decoded = lines.iter().filter_map(five);
    let in_bytes =
        decoded.all(|[_, _, at, size, _]| at % SECTOR_BYTES == 0 && size % SECTOR_BYTES == 0);
    if in_bytes { Format::Replay } else { Format::DiskSim }
}

/// DiskSim's milliseconds have a fraction, the nanoseconds of SSDsim and MQSim have none.
fn disksim_unit(lines: &[&[u8]]) -> TimeUnit {
    let has_point = |line: &&[u8]| {
        text::blanks(line).next().is_some_and(|time| memchr::memchr(b'.', time).is_some())
    };
    if lines.iter().any(has_point) { TimeUnit::Milliseconds } else { TimeUnit::Nanoseconds }
}
