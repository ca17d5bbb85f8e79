//! `manylogs trace`: look at traces and change them.

use std::fmt::Write as _;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use manylogs_lab::prepare::{PrepareError, TraceSpec, prepare, prepare_unplaced};
use manylogs_lab::table::bytes;
use manylogs_workload::transform::{BusiestWindow, Fit, FitPlan, Repeat, Rerate};
use manylogs_workload::{
    BoxedSource, Format, Losses, TraceError, TraceSource, TraceStats, TraceWriter,
};

use super::trace_failure;
use crate::args::{
    ChangeArgs, ConvertArgs, MixArgs, OpenArgs, StatArgs, TraceArgs, TraceCommand, TraceOutputArgs,
};
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::units::Rate;

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Stat(args) => stat(args),
        TraceCommand::Convert(args) => convert(args),
        TraceCommand::Mix(args) => mix(args),
    }
}

fn stat(args: &StatArgs) -> Result<(), Failure> {
    let options = args.open.options_without_drive()?;
    let mut source =
        manylogs_workload::open(&args.trace, &options).map_err(|e| trace_failure(&e))?;
    let stats = TraceStats::collect(&mut source).map_err(|e| trace_failure(&e))?;
    if args.json {
        let json = serde_json::to_string_pretty(&stats).map_err(Failure::failed)?;
        return print(&(json + "\n"));
    }
    print(&stats_text(&args.trace, &stats))
}

fn stats_text(file: &Path, stats: &TraceStats) -> String {
    let mut out = format!("{}\n", file.display());
    let mut row = |name: &str, value: String| _ = writeln!(out, "  {name:<26} {value}");
    row("requests", stats.requests.to_string());
    row("span", format!("{:.3} s", stats.span_s));
    row("rate", format!("{:.1} requests/s", stats.requests as f64 / stats.span_s.max(1e-9)));
    row("reads among data requests", format!("{:.1} %", stats.read_percent));
    for (name, sizes) in [("reads", &stats.reads), ("writes", &stats.writes)] {
        row(
            name,
            format!(
                "{}, {}, mean {:.1} KiB; {:.1} % up to 32 KiB, {:.1} % up to 256 KiB",
                sizes.count,
                bytes(sizes.bytes),
                sizes.mean_kib,
                sizes.small_32k_percent,
                sizes.small_256k_percent
            ),
        );
    }
    row("durable writes (FUA)", stats.fua_writes.to_string());
    row("flushes", stats.flushes.to_string());
    row("discards", format!("{}, {}", stats.discards, bytes(stats.discarded_bytes)));
    row("blocks written at least once", bytes(stats.written_footprint_bytes));
    row("blocks touched at least once", bytes(stats.touched_footprint_bytes));
    row("block writes that overwrite", format!("{:.1} %", stats.overwrite_percent));
    row("highest address", bytes(stats.end_bytes));
    row("devices", stats.devices.len().to_string());
    // Of a trace of five minutes or less both windows are the whole trace.
    let is_hour = stats.busiest_1h.window_s > stats.busiest_5min.window_s;
    let hour = Some(&stats.busiest_1h).filter(|_| is_hour);
    for busiest in std::iter::once(&stats.busiest_5min).chain(hour) {
        let name = |what| format!("busiest {:.0} s by {what}", busiest.window_s);
        row(&name("reads"), window(&busiest.reads));
        row(&name("writes"), window(&busiest.writes));
    }
    let dropped = stats.source;
    if dropped != manylogs_workload::SourceCounts::default() {
        row(
            "dropped or changed",
            format!(
                "{} malformed, {} late, {} echoes, {} empty, {} lost",
                dropped.skipped, dropped.late, dropped.echoes, dropped.empty, dropped.lost
            ),
        );
    }
    out
}

fn window(window: &BusiestWindow) -> String {
    format!(
        "{:.1}/s, {}/s, from {} s on ({:.0} % reads)",
        window.per_second,
        bytes_per_second(window.bytes_per_second),
        window.start_s,
        window.read_percent
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn bytes_per_second(rate: f64) -> String {
    bytes(rate.round() as u64)
}

fn spec(files: Vec<PathBuf>, open: &OpenArgs, change: &ChangeArgs) -> Result<TraceSpec, Failure> {
    Ok(TraceSpec {
        opens: Vec::new(),
        files,
        open: open.options_without_drive()?,
        window: change.window.map(Into::into),
        windows: Vec::new(),
        read: Vec::new(),
        limit: change.limit,
        seed: change.seed,
    })
}

fn failure(error: PrepareError) -> Failure {
    match error {
        PrepareError::Trace(error) => trace_failure(&error),
        other => Failure::input(other),
    }
}

fn convert(args: &ConvertArgs) -> Result<(), Failure> {
    let output = TraceFile::reserve(&args.output)?;
    let spec = spec(vec![args.trace.clone()], &args.open, &args.change)?;
    let open = prepare_unplaced(&spec, &args.trace).map_err(failure)?.open;
    let changed = || -> Result<BoxedSource, TraceError> {
        let again = open.clone();
        let mut source: BoxedSource = match args.repeat {
            1 => open()?,
            times => Box::new(Repeat::new(move || again(), times)?),
        };
        if let Some(capacity) = args.fit {
            let plan = FitPlan::measure(&mut open()?, capacity)?;
            source = Box::new(Fit::new(source, plan));
        }
        match args.rate {
            Some(Rate::Factor(factor)) => Ok(Box::new(Rerate::new(source, factor)?)),
            _ => Ok(source),
        }
    };
    if args.rate == Some(Rate::Auto) {
        return Err(Failure::input("--rate auto needs a drive: it works with manylogs replay"));
    }
    write(&output, changed().map_err(|e| trace_failure(&e))?)
}

fn mix(args: &MixArgs) -> Result<(), Failure> {
    let output = TraceFile::reserve(&args.output)?;
    let spec = spec(args.traces.clone(), &args.open, &args.change)?;
    let open = prepare(&spec, args.drive_size, true).map_err(failure)?.open;
    write(&output, open().map_err(|e| trace_failure(&e))?)
}

/// A trace to write; its format is settled before any input is read.
struct TraceFile {
    output: Output,
    format: Format,
}

impl TraceFile {
    fn reserve(args: &TraceOutputArgs) -> Result<Self, Failure> {
        let format = match args.to.as_deref() {
            Some(name) => name.parse(),
            None => Format::of_output(&args.output),
        };
        let format = format.map_err(|error: TraceError| trace_failure(&error))?;
        if !Format::WRITTEN.contains(&format) {
            let written = Format::WRITTEN.map(Format::name).join(", ");
            let message = format!("{format} traces are only read; formats to write: {written}");
            return Err(Failure::input(message));
        }
        Ok(Self { output: Output::reserve(&args.output)?, format })
    }
}

fn write(to: &TraceFile, mut source: BoxedSource) -> Result<(), Failure> {
    let (partial, file) = to.output.create()?;
    match copy(to, &mut source, file) {
        Ok((requests, losses)) => {
            to.output.adopt(&partial)?;
            let (path, format) = (to.output.path().display(), to.format);
            let mut text = format!("{requests} requests written to {path} ({format})\n");
            for reason in losses.reasons() {
                text += &format!("what {format} cannot hold: {reason}\n");
            }
            print(&text)
        }
        Err(failure) => {
            // The half-written file is useless; a failure to remove it is not reported.
            let _ = std::fs::remove_file(partial);
            Err(failure)
        }
    }
}

fn copy(
    to: &TraceFile,
    source: &mut BoxedSource,
    file: std::fs::File,
) -> Result<(u64, Losses), Failure> {
    let cannot_write = |error| to.output.cannot_write(&error);
    let mut writer = TraceWriter::new(to.format, BufWriter::new(file)).map_err(cannot_write)?;
    while let Some(request) = source.next_request() {
        let request = request.map_err(|error| trace_failure(&error))?;
        writer.push(&request).map_err(cannot_write)?;
    }
    let written = (writer.records(), writer.losses());
    if written.0 == 0 {
        let format = to.format;
        return Err(Failure::input(format!("no request of this trace can be written as {format}")));
    }
    writer.finish().map_err(cannot_write)?;
    Ok(written)
}
