//! `manylogs trace`: look at traces and change them.

use std::fmt::Write as _;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use manylogs_lab::prepare::{PrepareError, TraceSpec, prepare, prepare_unplaced};
use manylogs_lab::table::bytes;
use manylogs_workload::transform::{BusiestWindow, Fit, FitPlan, Repeat, Rerate};
use manylogs_workload::{
    BoxedSource, CsvWriter, RecordingInfo, RecordingWriter, TraceError, TraceRequest, TraceSource,
    TraceStats,
};

use super::trace_failure;
use crate::args::{ChangeArgs, ConvertArgs, MixArgs, OpenArgs, StatArgs, TraceArgs, TraceCommand};
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
    let options = args.open.options()?;
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
    for busiest in [&stats.busiest_5min, &stats.busiest_1h] {
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
        files,
        open: open.options()?,
        window: change.window.map(Into::into),
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
    let output = Output::reserve(&args.output)?;
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
    let output = Output::reserve(&args.output)?;
    let spec = spec(args.traces.clone(), &args.open, &args.change)?;
    let open = prepare(&spec, args.drive_size, true).map_err(failure)?.open;
    write(&output, open().map_err(|e| trace_failure(&e))?)
}

fn write(output: &Output, mut source: BoxedSource) -> Result<(), Failure> {
    let (partial, file) = output.create()?;
    let written = copy(output, &mut source, file);
    match written {
        Ok(requests) => {
            output.adopt(&partial)?;
            print(&format!("{requests} requests written to {}\n", output.path().display()))
        }
        Err(failure) => {
            // The half-written file is of no use; that it stays would be no news.
            let _ = std::fs::remove_file(partial);
            Err(failure)
        }
    }
}

/// Writes what the output's name asks for: CSV for `.csv`, else our own format.
fn copy(output: &Output, source: &mut BoxedSource, file: std::fs::File) -> Result<u64, Failure> {
    let file = BufWriter::new(file);
    let is_csv = output.path().extension().is_some_and(|extension| extension == "csv");
    let cannot_write = |error| output.cannot_write(&error);
    if is_csv {
        let mut writer = CsvWriter::new(file).map_err(cannot_write)?;
        each(source, |request| writer.push(request).map_err(cannot_write))?;
        let requests = writer.records();
        writer.finish().map_err(cannot_write)?;
        return Ok(requests);
    }
    let info = RecordingInfo::default();
    let mut writer = RecordingWriter::new(file, &info).map_err(cannot_write)?;
    each(source, |request| writer.push(request).map_err(cannot_write))?;
    let requests = writer.records();
    writer.finish().map_err(cannot_write)?;
    Ok(requests)
}

fn each(
    source: &mut BoxedSource,
    mut write: impl FnMut(&TraceRequest) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while let Some(request) = source.next_request() {
        write(&request.map_err(|error| trace_failure(&error))?)?;
    }
    Ok(())
}
