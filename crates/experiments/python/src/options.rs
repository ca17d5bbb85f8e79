//! Named arguments, with the names of the program's options.

use std::sync::Arc;

use manylogs_block::{Sectors, parse_bytes, parse_share};
use manylogs_disk::LinkSettings;
use manylogs_lab::load::{LoadOptions, LoadRate};
use manylogs_lab::prepare::{Prepared, TraceSpec, WindowChoice};
use manylogs_lab::replay::{Durability, Loop, Progress};
use manylogs_lab::sweep::WindowText;
use manylogs_workload::{BlockEvent, Devices, Format, OpenOptions, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::interrupt::stoppable;
use crate::trace::Trace;

/// Named arguments of a call. An argument that is None counts as not given.
pub(crate) struct Named<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'a, 'py> Named<'a, 'py> {
    pub(crate) const fn of(dict: Option<&'a Bound<'py, PyDict>>) -> Self {
        Self(dict)
    }

    fn item(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = self.0.map(|dict| dict.get_item(name)).transpose()?.flatten();
        Ok(item.filter(|item| !item.is_none()))
    }

    /// The argument of this name, if given.
    ///
    /// # Errors
    /// If it has another type.
    pub(crate) fn get<T: for<'b> FromPyObject<'b, 'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(item) = self.item(name)? else { return Ok(None) };
        match item.extract::<T>() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Failure::input(format!("{name}: cannot use {}", item.repr()?)).into()),
        }
    }

    /// The value of an argument that must be one of `words`.
    fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> PyResult<Option<T>> {
        let Some(text) = self.get::<String>(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let unknown =
            || Failure::input(format!("{name}: expected {}, found {text:?}", known.join(" or ")));
        Ok(Some(found.ok_or_else(unknown)?.1))
    }
}

/// How a trace is read.
pub(crate) fn open_options(named: &Named<'_, '_>) -> PyResult<OpenOptions> {
    let format = named.get::<String>("format")?;
    let format = format.map(|text| text.parse::<Format>()).transpose();
    let units = [
        ("s", TimeUnit::Seconds),
        ("ms", TimeUnit::Milliseconds),
        ("us", TimeUnit::Microseconds),
        ("ns", TimeUnit::Nanoseconds),
    ];
    let devices = match named.item("device")? {
        None => Devices::OneAfterAnother,
        Some(all) if all.extract::<String>().is_ok_and(|text| text == "all") => {
            Devices::OneAfterAnother
        }
        Some(_) => Devices::Only(named.get("device")?.unwrap_or_default()),
    };
    let events = [("queue", BlockEvent::Queue), ("issue", BlockEvent::Issue)];
    Ok(OpenOptions {
        format: format.map_err(Failure::from)?,
        time_unit: named.word("time_unit", &units)?,
        skip_bad: named.get("skip_bad")?.unwrap_or(false),
        devices,
        event: named.word("event", &events)?.unwrap_or_default(),
        ..OpenOptions::default()
    })
}

/// The part of a trace to use.
pub(crate) fn window(named: &Named<'_, '_>) -> PyResult<Option<WindowChoice>> {
    let Some(text) = named.get::<String>("window")? else { return Ok(None) };
    let choice = WindowText(text.clone()).choice();
    let unknown = || {
        Failure::input(format!(
            "window: expected START+LENGTH as 1h+5m, busiest-reads:LENGTH, busiest-writes:LENGTH \
             or random:LENGTH, found {text:?}"
        ))
    };
    Ok(Some(choice.ok_or_else(unknown)?))
}

/// A share as 0.5 or "50%".
fn share(named: &Named<'_, '_>, name: &str) -> PyResult<Option<f64>> {
    let Some(item) = named.item(name)? else { return Ok(None) };
    let share = parse_share(&item.str()?.to_string());
    let share = share.filter(|share| *share > 0.0 && *share < 1.0);
    let bad = || {
        Failure::input(format!("{name}: expected a share between 0 and 1 such as 0.5 or \"50%\""))
    };
    Ok(Some(share.ok_or_else(bad)?))
}

/// A factor of arrivals, or "auto".
pub(crate) fn rate(named: &Named<'_, '_>) -> PyResult<LoadRate> {
    let Some(item) = named.item("rate")? else { return Ok(LoadRate::Factor(1.0)) };
    let text = item.str()?.to_string();
    if text == "auto" {
        return Ok(LoadRate::Busy(share(named, "utilisation")?.unwrap_or(0.5)));
    }
    let factor = text.trim_end_matches('x').parse::<f64>().ok();
    let factor = factor.filter(|factor| (1e-6..=1e6).contains(factor));
    let bad = || Failure::input(format!("rate: expected \"auto\" or a factor, found {text:?}"));
    Ok(LoadRate::Factor(factor.ok_or_else(bad)?))
}

/// The share of a persistent cache that is in use at the start.
fn smr_cache(named: &Named<'_, '_>) -> PyResult<Option<f64>> {
    let text = named.item("smr_cache")?.map(|item| item.str()).transpose()?;
    match text.map(|text| text.to_string()).as_deref() {
        Some("empty") => Ok(Some(0.0)),
        Some("full") => Ok(Some(1.0)),
        _ => share(named, "smr_cache"),
    }
}

/// Sizes as 262144 or "256K".
fn size(named: &Named<'_, '_>, name: &str) -> PyResult<Option<Sectors>> {
    let Some(item) = named.item(name)? else { return Ok(None) };
    let bytes = parse_bytes(&item.str()?.to_string()).filter(|bytes| *bytes > 0);
    let bad = || Failure::input(format!("{name}: expected a size such as 512 or \"256K\""));
    Ok(Some(Sectors::from_bytes_ceil(bytes.ok_or_else(bad)?)))
}

/// A number from `least` on.
fn at_least<'py, T>(named: &Named<'_, 'py>, name: &str, least: T) -> PyResult<Option<T>>
where
    T: for<'b> FromPyObject<'b, 'py> + PartialOrd + std::fmt::Display,
{
    let value = named.get::<T>(name)?;
    if value.as_ref().is_some_and(|value| *value < least) {
        return Err(Failure::input(format!("{name}: expected {least} or more")).into());
    }
    Ok(value)
}

/// When writes are durable.
pub(crate) fn durability(named: &Named<'_, '_>) -> PyResult<Option<Durability>> {
    let text = named.get::<String>("durability")?;
    Ok(text.map(|text| text.parse()).transpose().map_err(|error: String| Failure::input(error))?)
}

/// The options of a load of `traces`; reading ends once `progress` says so.
pub(crate) fn load_options(
    traces: &[PyRef<'_, Trace>],
    named: &Named<'_, '_>,
) -> PyResult<Loading> {
    let links = [("sata", "sata"), ("sas", "sas")];
    let kind = named.word("link", &links)?.and_then(|kind| kind.parse().ok());
    let options = LoadOptions {
        traces: TraceSpec {
            files: traces.iter().map(|trace| trace.file.clone()).collect(),
            open: OpenOptions::default(),
            opens: Vec::new(),
            window: None,
            windows: Vec::new(),
            read: traces.iter().map(|trace| trace.prepared.clone()).collect(),
            limit: None,
            seed: named.get("seed")?.unwrap_or(1),
        },
        link: LinkSettings { kind, fua: named.get("fua")? },
        array: None,
        smr_cache: smr_cache(named)?,
        fit: named.get("fit")?.unwrap_or(false),
        rate: rate(named)?,
        repeat: at_least(named, "repeat", 1)?.unwrap_or(1),
        durability: durability(named)?,
        seeds: at_least(named, "seeds", 1)?.unwrap_or(3),
    };
    Ok(Loading(options))
}

/// Options of a load, before [`Loading::until`] says what can end its reading.
pub(crate) struct Loading(LoadOptions);

impl Loading {
    pub(crate) fn until(mut self, progress: &Arc<Progress>) -> LoadOptions {
        for read in &mut self.0.traces.read {
            let open = stoppable(Arc::clone(&read.open), progress);
            *read = Prepared { open, transforms: read.transforms.clone() };
        }
        self.0
    }
}

/// How requests are fed to the device.
pub(crate) struct Letting {
    pub(crate) mode: Loop,
    pub(crate) small: Option<Sectors>,
    pub(crate) checkpoint: bool,
    pub(crate) requests: bool,
}

impl Letting {
    pub(crate) fn of(named: &Named<'_, '_>) -> PyResult<Self> {
        let closed = named.word("loop", &[("open", false), ("closed", true)])?.unwrap_or(false);
        let stops = [("continue", false), ("stop", true)];
        let outstanding_max = at_least(named, "outstanding", 1)?.unwrap_or(1024);
        let depth = at_least(named, "depth", 1)?.unwrap_or(32);
        let stop_at_overload = named.word("on_overload", &stops)?.unwrap_or(false);
        Ok(Self {
            mode: match closed {
                true => Loop::Closed { depth },
                false => Loop::Open { outstanding_max, stop_at_overload },
            },
            small: size(named, "small")?,
            checkpoint: named.get("checkpoint")?.unwrap_or(true),
            requests: named.get("requests")?.unwrap_or(false),
        })
    }
}

/// Number of threads; one per core if not given.
pub(crate) fn threads(named: &Named<'_, '_>) -> PyResult<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(at_least(named, "threads", 1)?.unwrap_or(cores))
}
