//! Prepares trace files for a replay: selects windows, mixes traces and fits addresses to the
//! drive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use manylogs_block::{Extent, Nanos, Sectors, Time};
use manylogs_workload::transform::{
    Cut, Fit, FitPlan, FitRule, Limit, Mix, Tenant, Window, busiest_windows, random_windows,
};
use manylogs_workload::{BoxedSource, OpenOptions, TraceError, TraceSource};
use thiserror::Error;

use crate::replay::OpenTrace;
use crate::synthetic::Synthetic;
use crate::tenants::{self, TenantLoad};

/// Name of a generated trace, given in place of a file. `tenant:T1` to `tenant:T10` are others: see
/// [`tenants`].
pub const SYNTHETIC: &str = "synthetic";
const SYNTHETIC_REQUESTS: u64 = 60_000;
/// Tenants' slices begin at whole mebibytes.
const SLICE_ALIGN_SECTORS: u64 = 2048;

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowChoice {
    /// The part that begins at a given time.
    At(Window),
    /// The part of this length with the most reads.
    BusiestReads(Nanos),
    /// The part of this length with the most writes.
    BusiestWrites(Nanos),
    /// A part of this length, drawn at random from the seed.
    Random(Nanos),
}

/// Trace files and the selection of their requests.
#[derive(Clone, Debug)]
pub struct TraceSpec {
    /// The files. Several files are tenants of a mix. [`SYNTHETIC`] stands for the generated trace.
    pub files: Vec<PathBuf>,
    /// Options of the reader.
    pub open: OpenOptions,
    /// Options for single files, in the order of `files`, that replace `open`. May be shorter.
    pub opens: Vec<OpenOptions>,
    /// The part of each trace to use.
    pub window: Option<WindowChoice>,
    /// Parts for single files, in the order of `files`, that replace `window`. May be shorter.
    pub windows: Vec<Option<WindowChoice>>,
    /// Streams that replace single files, in the order of `files`, with their earlier preparation.
    /// May be shorter.
    pub read: Vec<Prepared>,
    /// Largest number of requests to use of each trace.
    pub limit: Option<u64>,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A stream of requests with a description of its preparation.
#[derive(Clone)]
pub struct Prepared {
    /// Opens the stream from its start.
    pub open: OpenTrace,
    /// Preparation of the traces, in words.
    pub transforms: Vec<String>,
}

/// The reason why traces cannot be prepared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The drive is too small for so many tenants.
    #[error("a drive of {} bytes cannot be divided among {tenants} tenants", capacity.bytes())]
    TooManyTenants {
        /// Size of the drive.
        capacity: Sectors,
        /// Number of traces.
        tenants: usize,
    },
    /// A trace reaches beyond its place.
    #[error(
        "{}: reaches to byte {} of a {} of {} bytes: --fit leaves out address space that the \
         trace never touches, or choose a larger drive",
        file.display(), end.bytes(), what, capacity.bytes()
    )]
    BeyondDrive {
        /// The trace.
        file: PathBuf,
        /// The first sector after the trace's last one.
        end: Sectors,
        /// The place: the drive, or a tenant's slice of it.
        what: &'static str,
        /// Its size.
        capacity: Sectors,
    },
}

impl PrepareError {
    /// The kind of the operating system's error; `None` if there is no such error.
    #[must_use]
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            Self::Trace(error) => error.io_kind(),
            _ => None,
        }
    }
}

/// Prepares the traces of `spec` for a device of `capacity`; `fit` moves addresses beyond it.
///
/// # Errors
/// If a trace cannot be read, or does not fit and may not be fitted.
pub fn prepare(spec: &TraceSpec, capacity: Sectors, fit: bool) -> Result<Prepared, PrepareError> {
    let slices = slices(capacity, spec.files.len())?;
    let mut transforms = Vec::new();
    let mut tenants = Vec::new();
    for (index, &slice) in slices.iter().enumerate() {
        tenants.push((tenant(spec, index, slice, &slices, fit, &mut transforms)?, slice));
    }
    if let [(open, _)] = tenants.as_slice() {
        return Ok(Prepared { open: Arc::clone(open), transforms });
    }
    transforms.push(format!(
        "mixed, each of {} tenants in its own slice of {} bytes",
        tenants.len(),
        slices[0].len.bytes()
    ));
    let mixed = move || -> Result<BoxedSource, TraceError> {
        let opened =
            tenants.iter().map(|(open, slice)| Ok(Tenant { source: open()?, slice: *slice }));
        Ok(Box::new(Mix::new(opened.collect::<Result<_, TraceError>>()?)?))
    };
    Ok(Prepared { open: Arc::new(mixed), transforms })
}

/// Prepares one trace without fitting it to a drive.
///
/// # Errors
/// If the trace cannot be read.
pub fn prepare_unplaced(spec: &TraceSpec, file: &Path) -> Result<Prepared, PrepareError> {
    let mut transforms = Vec::new();
    let whole = whole(spec, 0, (file, spec.open), &mut transforms);
    let open = part(spec, (file, whole), spec.window, &mut transforms)?;
    Ok(Prepared { open, transforms })
}

fn slices(capacity: Sectors, tenants: usize) -> Result<Vec<Extent>, PrepareError> {
    if tenants == 1 {
        return Ok(vec![Extent::new(0, capacity.0)]);
    }
    let count = tenants as u64;
    let len = capacity.0 / count.max(1) / SLICE_ALIGN_SECTORS * SLICE_ALIGN_SECTORS;
    if len == 0 {
        return Err(PrepareError::TooManyTenants { capacity, tenants });
    }
    Ok((0..count).map(|index| Extent::new(index * len, len)).collect())
}

/// One trace, cut to its window and fitted to its slice.
fn tenant(
    spec: &TraceSpec,
    index: usize,
    slice: Extent,
    slices: &[Extent],
    fit: bool,
    transforms: &mut Vec<String>,
) -> Result<OpenTrace, PrepareError> {
    let file = spec.files[index].as_path();
    let choice = spec.windows.get(index).copied().flatten().or(spec.window);
    let open = spec.opens.get(index).copied().unwrap_or(spec.open);
    let whole = whole(spec, index, (file, open), transforms);
    let open = part(spec, (file, whole), choice, transforms)?;
    if fit {
        let plan = Arc::new(FitPlan::measure(&mut open()?, slice.len)?);
        match plan.rule() {
            FitRule::AsIs => return Ok(open),
            FitRule::Compacted => {
                transforms.push(format!("{}: untouched address space left out", file.display()));
            }
            FitRule::Folded => transforms.push(format!(
                "{}: untouched address space left out and the rest folded, since it touches {} \
                 bytes",
                file.display(),
                plan.touched_bytes()
            )),
        }
        let fitted = move || -> Result<BoxedSource, TraceError> {
            Ok(Box::new(Fit::new(open()?, (*plan).clone())))
        };
        return Ok(Arc::new(fitted));
    }
    let end = end_of(&mut open()?)?;
    if end > slice.len {
        let what = if slices.len() == 1 { "device" } else { "tenant's slice" };
        let (file, capacity) = (file.to_owned(), slice.len);
        return Err(PrepareError::BeyondDrive { file, end, what, capacity });
    }
    Ok(open)
}

fn end_of(source: &mut impl TraceSource) -> Result<Sectors, TraceError> {
    let mut end = 0;
    while let Some(request) = source.next_request() {
        end = end.max(request?.extent.end().0);
    }
    Ok(Sectors(end))
}

/// One trace, cut to the window that `choice` says.
fn part(
    spec: &TraceSpec,
    (file, whole): (&Path, OpenTrace),
    choice: Option<WindowChoice>,
    transforms: &mut Vec<String>,
) -> Result<OpenTrace, PrepareError> {
    let window = choice.map(|choice| resolve(choice, &whole, spec.seed)).transpose()?;
    if let Some(window) = window {
        transforms.push(format!(
            "{}: window of {} s from {} s on",
            file.display(),
            window.len.as_secs_f64(),
            window.start.as_secs_f64()
        ));
    }
    let limit = spec.limit;
    if let Some(limit) = limit {
        transforms.push(format!("{}: first {limit} requests", file.display()));
    }
    let cut = move || -> Result<BoxedSource, TraceError> {
        let mut source = whole()?;
        if let Some(window) = window {
            source = Box::new(Cut::new(source, window));
        }
        if let Some(limit) = limit {
            source = Box::new(Limit::new(source, limit, Nanos(u64::MAX)));
        }
        Ok(source)
    };
    Ok(Arc::new(cut))
}

/// Whether `file` is the name of a generated trace.
#[must_use]
pub fn is_generated(file: &Path) -> bool {
    file.as_os_str() == SYNTHETIC || tenants::named(file).is_some()
}

fn whole(
    spec: &TraceSpec,
    index: usize,
    (file, open): (&Path, OpenOptions),
    transforms: &mut Vec<String>,
) -> OpenTrace {
    if let Some(read) = spec.read.get(index) {
        transforms.extend(read.transforms.iter().cloned());
        return Arc::clone(&read.open);
    }
    if let Some(server) = tenants::named(file) {
        let seed = spec.seed ^ (server.nth + 1) << 32;
        return Arc::new(move || Ok(Box::new(TenantLoad::new(server, seed))));
    }
    if file.as_os_str() == SYNTHETIC {
        let seed = spec.seed;
        let count = spec.limit.unwrap_or(SYNTHETIC_REQUESTS);
        return Arc::new(move || Ok(Box::new(Synthetic::reader_and_writers(seed, count))));
    }
    let file = file.to_owned();
    Arc::new(move || manylogs_workload::open(&file, &open))
}

fn resolve(choice: WindowChoice, open: &OpenTrace, seed: u64) -> Result<Window, TraceError> {
    match choice {
        WindowChoice::At(window) => Ok(window),
        WindowChoice::BusiestReads(len) => {
            Ok(Window::at_second(busiest_windows(&mut open()?, len)?.reads.start_s, len))
        }
        WindowChoice::BusiestWrites(len) => {
            Ok(Window::at_second(busiest_windows(&mut open()?, len)?.writes.start_s, len))
        }
        WindowChoice::Random(len) => {
            let mut source = open()?;
            let mut last = Time(0);
            while let Some(request) = source.next_request() {
                last = request?.at;
            }
            let drawn = random_windows(last.since(Time(0)), len, 1, seed);
            Ok(drawn.first().copied().unwrap_or(Window::at_second(0, len)))
        }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("transforms", &self.transforms).finish_non_exhaustive()
    }
}
