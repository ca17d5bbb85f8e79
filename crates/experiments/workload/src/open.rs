//! Opening a trace: its format, its records, and the address spaces of its devices.

use std::io::Read;
use std::path::Path;

use crate::detect;
use crate::error::TraceError;
use crate::format;
pub use crate::format::Format;
use crate::format::mobile::{MobileCsv, MobileStage};
use crate::input::Input;
use crate::lines::{LineDecoder, LineSource};
use crate::order::{Disorder, Ordered};
use crate::request::BoxedSource;
use crate::select;
use crate::spread::SpreadSeconds;
pub use crate::text::TimeUnit;

/// Which event of a block-layer trace counts as the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockEvent {
    /// Queued: as the file system or application asked (arrivals).
    #[default]
    Queue,
    /// Issued: as the scheduler sent it to the drive, merged and reordered.
    Issue,
}

/// Which devices' requests to read, and at which addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// All, with the addresses of their own device: they may overlap.
    #[default]
    All,
    /// Only the device with this number.
    Only(u32),
    /// All, laid out one after another in the order of their numbers, each in the space up to
    /// its highest address rounded up to 1 MiB. Reads the file twice.
    OneAfterAnother,
}

/// What to do with the second logging of one request in the mobile traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echoes {
    /// Drop a record equal to one at most 50 ms before it, once per original.
    #[default]
    Drop,
    /// Keep every record.
    Keep,
}

/// What to do with the discards that the mobile traces log as reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MobileDiscards {
    /// Turn them into discards.
    #[default]
    AsDiscard,
    /// Leave them as reads, as in the file.
    AsRead,
    /// Drop them.
    Drop,
}

/// How to read a trace; the default detects the format and takes everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The format; detected when `None`.
    pub format: Option<Format>,
    /// Unit of arrival times where the format leaves it open (DiskSim, replay, fio 3, CSV);
    /// the format's default or guess when `None`.
    pub time_unit: Option<TimeUnit>,
    /// Pass over malformed records and count them, instead of stopping at the first.
    pub skip_bad: bool,
    /// Which devices, and at which addresses.
    pub devices: Devices,
    /// Which event of blktrace and blkparse traces.
    pub event: BlockEvent,
    /// Echoes in mobile traces.
    pub echoes: Echoes,
    /// Discards in mobile traces.
    pub mobile_discards: MobileDiscards,
}

/// Opens the trace at `path`, detecting compression and format.
///
/// Requests come in the order of arrival, with times since the first request of the file.
///
/// # Errors
///
/// If the file cannot be read, its format is not known, or it holds no request of the kind
/// and device asked for.
pub fn open(path: &Path, options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    of_devices(options.devices, &|| open_all(path, options))
}

/// The requests of `devices` in a trace; `open` opens it with all devices.
///
/// # Errors
///
/// If it cannot be read, or holds no request of the device asked for.
pub fn of_devices(
    devices: Devices,
    open: &dyn Fn() -> Result<BoxedSource, TraceError>,
) -> Result<BoxedSource, TraceError> {
    match devices {
        Devices::All => open(),
        Devices::Only(device) => select::only(open()?, device),
        Devices::OneAfterAnother => {
            let layout = select::DeviceOffsets::measure(open()?)?;
            Ok(Box::new(layout.apply(open()?)))
        }
    }
}

/// Opens a trace that comes from `reader`; messages call it `name`.
///
/// # Errors
///
/// Those of [`open`]; and if the devices are to be laid out one after another, which needs two
/// passes.
pub fn open_reader(
    name: &Path,
    reader: impl Read + Send + 'static,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let all = || read(Input::from_reader(name, reader, None)?, options);
    match options.devices {
        Devices::All => all(),
        Devices::Only(device) => select::only(all()?, device),
        Devices::OneAfterAnother => Err(TraceError::Options(
            "laying out devices one after another reads the trace twice: give a file".into(),
        )),
    }
}

fn open_all(path: &Path, options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    if path.is_dir() {
        return format::blktrace_set::open_directory(path, options);
    }
    if let Some(set) = format::blktrace_set::open_siblings(path, options)? {
        return Ok(set);
    }
    if let Some(set) = format::blktrace_set::open_archive(path, options)? {
        return Ok(set);
    }
    read(Input::open(path)?, options)
}

/// The source for an input of one file.
fn read(mut input: Input, options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    let forced_other = options.format.is_some_and(|format| format != Format::Blktrace);
    if !forced_other && crate::tar::probe(input.peek(crate::tar::BLOCK_BYTES)?) {
        return format::blktrace_set::unpack_archive(input, options);
    }
    let guess = detect::detect(&mut input, options)?;
    let file = input.file().to_owned();
    let skip = options.skip_bad;
    let unit = options.time_unit.or(guess.time_unit);
    let ordered = |source: BoxedSource, disorder| -> BoxedSource {
        Box::new(Ordered::new(source, disorder, &file, guess.format))
    };
    let small = Disorder::SMALL;
    Ok(match guess.format {
        Format::Manylogs => Box::new(format::own::OwnReader::new(input, skip)?),
        Format::Blktrace => {
            let cpu = format::blktrace::Cpu::Any;
            ordered(Box::new(format::blktrace::BlktraceFile::new(input, cpu, options)), small)
        }
        Format::Vscsi1 => ordered(Box::new(format::vscsi::Vscsi::v1(input, skip)), small),
        Format::Vscsi2 => ordered(Box::new(format::vscsi::Vscsi::v2(input, skip)), small),
        Format::Blkparse => {
            let decoder = format::blkparse::Blkparse::new(options.event);
            ordered(lines(input, decoder, skip), small)
        }
        Format::Msr => ordered(lines(input, format::msr::Msr, skip), Disorder::COMPLETION),
        Format::Etw => {
            ordered(lines(input, format::etw::Etw::default(), skip), Disorder::COMPLETION)
        }
        Format::Spc => ordered(lines(input, format::spc::Spc, skip), small),
        Format::DiskSim => {
            let decoder = format::disksim::DiskSim::new(unit.unwrap_or(TimeUnit::Milliseconds));
            ordered(lines(input, decoder, skip), small)
        }
        Format::Replay => {
            let decoder = format::replay::Replay::new(unit.unwrap_or(TimeUnit::Milliseconds));
            ordered(lines(input, decoder, skip), small)
        }
        Format::Alibaba => ordered(lines(input, format::alibaba::Alibaba, skip), small),
        Format::Tencent => {
            let source = lines(input, format::tencent::Tencent, skip);
            ordered(Box::new(SpreadSeconds::new(source)), small)
        }
        Format::Mobile => {
            let sorted = ordered(Box::new(LineSource::new(input, MobileCsv, skip)), small);
            Box::new(MobileStage::new(sorted, options.echoes, options.mobile_discards))
        }
        Format::FioIolog2 => ordered(lines(input, format::fio::Iolog2::default(), skip), small),
        Format::FioIolog3 => {
            let unit = unit.unwrap_or(TimeUnit::Microseconds);
            ordered(lines(input, format::fio::Iolog3::new(unit), skip), small)
        }
        Format::Fiu => ordered(lines(input, format::fiu::Fiu, skip), small),
        Format::Csv => {
            ordered(lines(input, format::csv::NamedCsv::new(options.time_unit), skip), small)
        }
    })
}

fn lines(input: Input, decoder: impl LineDecoder + Send + 'static, skip_bad: bool) -> BoxedSource {
    Box::new(LineSource::new(input, decoder, skip_bad))
}
