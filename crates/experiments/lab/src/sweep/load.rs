//! A load of a sweep: traces, the part of them to use, and the way requests are fed.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use manylogs_block::Sectors;
use manylogs_workload::OpenOptions;

use super::job::JobError;
use super::row::Aim;
use crate::prepare::{TraceSpec, WindowChoice, prepare};
use crate::replay::{
    DriveSettings, Durability, Loop, NamedPolicy, Plan, Workload, exported_capacity, find_rate,
};
use crate::runs::{Content, KeyBuilder, content_of};

/// A load, before it is put on a drive.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Its name in tables.
    pub name: String,
    /// Traces; several are tenants that share the drive.
    pub files: Vec<PathBuf>,
    /// The part of each trace.
    pub window: Option<WindowChoice>,
    /// Parts for single traces, in the order of `files`, that replace `window`. May be shorter.
    pub windows: Vec<Option<WindowChoice>>,
    /// Reader options of single traces, in the order of `files`; the defaults if not given.
    pub opens: Vec<OpenOptions>,
    /// The most requests of each trace.
    pub limit: Option<u64>,
    /// Whether addresses beyond the drive are moved into it.
    pub fit: bool,
    /// How fast requests arrive.
    pub rate: LoadRate,
    /// When writes are durable; if not given, the default of `replay`.
    pub durability: Option<Durability>,
    /// The most requests in the device at a time; if not given, the default of `replay`.
    pub outstanding: Option<u32>,
}

/// How fast requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadRate {
    /// This many times as fast as recorded.
    Factor(f64),
    /// At the rate at which the plain drive is busy for this share of the time.
    Busy(f64),
}

/// A load on a drive, read when the first run asks for it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spec: Arc<LoadSpec>,
    pub(super) contents: Vec<Content>,
    /// The least capacity that the drive exports under any of the policies.
    pub(super) capacity: Sectors,
    pub(super) drive: DriveSettings,
    load: OnceLock<Result<Load, JobError>>,
}

/// The load after it was read.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) workload: Workload,
    pub(super) durability: Durability,
    pub(super) rate: f64,
    /// Target and result of the search, if the rate was searched.
    pub(super) aim: Option<Aim>,
}

impl LoadSpec {
    /// Hashes of the traces' contents.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub fn contents(&self) -> Result<Vec<Content>, JobError> {
        let content = |file: &PathBuf| {
            content_of(file).map_err(|(path, error)| JobError::Trace {
                trace: self.name.clone(),
                reason: format!("cannot read {}: {error}", path.display()),
                kind: Some(error.kind()),
            })
        };
        self.files.iter().map(content).collect()
    }
}

impl Shared {
    pub(super) fn new(
        spec: &Arc<LoadSpec>,
        contents: &[Content],
        drive: &DriveSettings,
        policies: &[NamedPolicy],
    ) -> Result<Self, JobError> {
        let mut capacity = Sectors(u64::MAX);
        for policy in policies {
            capacity = capacity.min(exported_capacity(drive, policy).map_err(JobError::of_replay)?);
        }
        let (spec, contents) = (Arc::clone(spec), contents.to_vec());
        Ok(Self { spec, contents, capacity, drive: drive.clone(), load: OnceLock::new() })
    }

    /// Adds everything that the load depends on.
    pub(super) fn add_to(&self, key: KeyBuilder) -> KeyBuilder {
        let Self { spec, contents, capacity, drive, load: _ } = self;
        // The name is only for tables, and the contents of the files count instead of their names.
        let LoadSpec {
            name: _,
            files: _,
            window,
            windows,
            opens,
            limit,
            fit,
            rate,
            durability,
            outstanding,
        } = &**spec;
        let contents: Vec<String> = contents.iter().map(ToString::to_string).collect();
        let key = key
            .with("traces", contents.join(", "))
            .with("part", format!("{window:?} {windows:?} {opens:?} {limit:?} {fit}"))
            .with("arrivals", format!("{rate:?} {durability:?} {outstanding:?}"))
            .with("capacity", capacity.0);
        drive.add_to(key)
    }

    pub(super) fn load(&self) -> Result<Load, JobError> {
        self.load.get_or_init(|| self.read()).clone()
    }

    /// A plan of a replay of `load` from this seed.
    pub(super) fn plan(&self, load: &Load, seed: u64) -> Plan {
        let write_cache = load.durability.write_cache();
        let drive = DriveSettings { write_cache, ..self.drive.clone() };
        let usual = Plan::new(load.workload.clone(), drive, load.durability);
        let mut pump = usual.pump;
        if let Some(outstanding_max) = self.spec.outstanding {
            pump.mode = Loop::Open { outstanding_max, stop_at_overload: false };
        }
        Plan { rate: load.rate, pump, seed, ..usual }
    }

    fn read(&self) -> Result<Load, JobError> {
        let spec = &*self.spec;
        let unusable = |reason: &dyn std::fmt::Display, kind: Option<io::ErrorKind>| {
            let (trace, reason) = (spec.name.clone(), reason.to_string());
            JobError::Trace { trace, reason, kind }
        };
        let traces = TraceSpec {
            files: spec.files.clone(),
            open: OpenOptions::default(),
            opens: spec.opens.clone(),
            window: spec.window,
            windows: spec.windows.clone(),
            read: Vec::new(),
            limit: spec.limit,
            seed: 1,
        };
        let prepared = prepare(&traces, self.capacity, spec.fit);
        let prepared = prepared.map_err(|error| unusable(&error, error.io_kind()))?;
        let workload = Workload::measure(prepared.open);
        let workload = workload.map_err(|error| unusable(&error, error.io_kind()))?;
        if workload.requests() == 0 {
            return Err(unusable(&"no request is left of the trace", None));
        }
        let durability = spec.durability.unwrap_or_else(|| Durability::of(workload.summary()));
        let mut load = Load { workload, durability, rate: 1.0, aim: None };
        match spec.rate {
            LoadRate::Factor(factor) => load.rate = factor,
            LoadRate::Busy(target) => {
                let found = find_rate(&self.plan(&load, 1), target, &Arc::default());
                let found = found.map_err(JobError::of_replay)?;
                load.aim = Some(Aim { target, found: found.utilisation });
                load.rate = found.factor;
            }
        }
        Ok(load)
    }
}
