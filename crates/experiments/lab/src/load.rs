//! Prepares a load for replay from options: the first step of `replay` and `advise`.

use std::io;
use std::sync::Arc;

use manylogs_block::Sectors;
use manylogs_disk::{LinkSettings, Profile};
use manylogs_workload::TraceError;
use thiserror::Error;

use crate::assemble::{Setting, assemble};
use crate::prepare::{PrepareError, TraceSpec, prepare};
use crate::replay::{
    ArraySettings, DriveSettings, Durability, Loop, NamedPolicy, Outcome, Plan, PolicyListError,
    Progress, PumpSettings, RateFound, ReplayError, SMALL_WRITE, Workload, exported_capacity,
    find_rate, parse_policies,
};
use crate::results::{RateDetails, Replay, TraceSummary};
use crate::stats::round3;
pub use crate::sweep::LoadRate;

/// The options of a load, and how it is put on a drive.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The traces, and the part of them to use. Its seed is that of all random choices.
    pub traces: TraceSpec,
    /// The drive's link to the host, where it differs from the profile's.
    pub link: LinkSettings,
    /// The array of such drives that the load is put on; `None` for one drive.
    pub array: Option<ArraySettings>,
    /// The share of a shingled drive's persistent cache that is in use at the start; `None` for an
    /// empty cache.
    pub smr_cache: Option<f64>,
    /// Whether addresses beyond the drive are moved into it.
    pub fit: bool,
    /// How fast requests arrive.
    pub rate: LoadRate,
    /// Passes over the trace, one behind the other.
    pub repeat: u64,
    /// When writes are durable; as recorded if not given.
    pub durability: Option<Durability>,
    /// Number of seeds from which each policy is replayed.
    pub seeds: u32,
}

/// Why a load cannot be put on a drive, or be replayed there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A conventional drive has no persistent cache.
    #[error("--smr-cache: {drive} is a conventional drive, without a persistent cache")]
    NoPersistentCache {
        /// The drive profile's name.
        drive: String,
    },
    /// An array's rows are written in place.
    #[error("--array: {drive} is a shingled drive, and an array writes in place: leave it out")]
    ShingledArray {
        /// The drive profile's name.
        drive: String,
    },
    /// The traces cannot be read, or do not fit.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// Nothing is left of the traces.
    #[error("no request is left of the trace: choose another window")]
    Empty,
    /// A list of policies cannot be read.
    #[error(transparent)]
    Policies(#[from] PolicyListError),
    /// A replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Who is to blame for an error; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The user's input.
    Input,
    /// The user may not read a file.
    Permission,
    /// The program, or the machine.
    Program,
}

impl Blame {
    /// Who is to blame for an error of a trace.
    #[must_use]
    pub fn of_trace(error: &TraceError) -> Self {
        match error.io_kind() {
            Some(io::ErrorKind::PermissionDenied) => Self::Permission,
            _ => Self::Input,
        }
    }

    /// Who is to blame for a replay that failed.
    #[must_use]
    pub fn of_replay(error: &ReplayError) -> Self {
        match error {
            ReplayError::Trace(error) => Self::of_trace(error),
            ReplayError::Volume { .. }
            | ReplayError::Policy { .. }
            | ReplayError::NotShingled { .. } => Self::Input,
            _ => Self::Program,
        }
    }
}

impl LoadError {
    /// Who is to blame.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Prepare(PrepareError::Trace(error)) => Blame::of_trace(error),
            Self::Replay(error) => Blame::of_replay(error),
            _ => Blame::Input,
        }
    }

    /// The underlying error of a trace, if there is one.
    #[must_use]
    pub const fn of_trace(&self) -> Option<&TraceError> {
        match self {
            Self::Prepare(PrepareError::Trace(error)) | Self::Replay(ReplayError::Trace(error)) => {
                Some(error)
            }
            _ => None,
        }
    }
}

/// A load on a drive, measured.
#[derive(Clone, Debug)]
pub struct Load {
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// The traces.
    pub workload: Workload,
    /// Their preparation, in words.
    pub transforms: Vec<String>,
    /// When writes are durable.
    pub durability: Durability,
    options: LoadOptions,
}

impl Load {
    /// Reads the traces, which must fit the capacity that the drive exports under each of
    /// `policies`.
    ///
    /// # Errors
    /// If a trace cannot be read or does not fit, or a policy does not go with the drive.
    pub fn read(
        profile: Profile,
        options: &LoadOptions,
        policies: &[NamedPolicy],
    ) -> Result<Self, LoadError> {
        let usual = DriveSettings::new(Arc::new(profile), false);
        let smr_cache = options.smr_cache.unwrap_or(0.0);
        let (link, array) = (options.link, options.array);
        let mut drive = DriveSettings { link, smr_cache, array, ..usual };
        if array.is_some() && drive.profile.shingled.is_some() {
            return Err(LoadError::ShingledArray { drive: drive.profile.name.clone() });
        }
        if options.smr_cache.is_some() && drive.profile.shingled.is_none() {
            return Err(LoadError::NoPersistentCache { drive: drive.profile.name.clone() });
        }
        let mut capacity = Sectors(u64::MAX);
        for named in policies {
            capacity = capacity.min(exported_capacity(&drive, named)?);
        }
        let prepared = prepare(&options.traces, capacity, options.fit)?;
        let workload = Workload::measure(prepared.open).map_err(PrepareError::Trace)?;
        if workload.requests() == 0 {
            return Err(LoadError::Empty);
        }
        let durability = options.durability.unwrap_or_else(|| Durability::of(workload.summary()));
        drive.write_cache = durability.write_cache();
        let workload = workload.repeated(options.repeat);
        let (transforms, options) = (prepared.transforms, options.clone());
        Ok(Self { drive, workload, transforms, durability, options })
    }

    /// A load of which only the `summary` is known, which [`read`](Self::read) has found with the
    /// same options. Its plans describe replays, but cannot be replayed here.
    #[must_use]
    pub fn of_summary(profile: Profile, options: &LoadOptions, summary: TraceSummary) -> Self {
        let usual = DriveSettings::new(Arc::new(profile), false);
        let smr_cache = options.smr_cache.unwrap_or(0.0);
        let durability = options.durability.unwrap_or_else(|| Durability::of(&summary));
        let (link, array) = (options.link, options.array);
        let write_cache = durability.write_cache();
        Self {
            drive: DriveSettings { link, smr_cache, array, write_cache, ..usual },
            workload: Workload::of_summary(summary).repeated(options.repeat),
            transforms: Vec::new(),
            durability,
            options: options.clone(),
        }
    }

    /// Like [`read`](Self::read), for a comparison of the policies `given`, or of
    /// [`default_policies`] if none are given; returns these policies as well.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn compared(
        profile: Profile,
        options: &LoadOptions,
        given: Vec<NamedPolicy>,
    ) -> Result<(Self, Vec<NamedPolicy>), LoadError> {
        let fitted =
            if given.is_empty() { default_policies(Durability::All)? } else { given.clone() };
        let load = Self::read(profile, options, &fitted)?;
        let policies = if given.is_empty() { default_policies(load.durability)? } else { given };
        Ok((load, policies))
    }

    /// The plan of a replay under `policies`, at the recorded rate.
    #[must_use]
    pub fn plan(&self, policies: &[NamedPolicy]) -> Plan {
        let largest = policies.iter().filter_map(NamedPolicy::threshold).max();
        let plan = Plan::new(self.workload.clone(), self.drive.clone(), self.durability);
        Plan {
            pump: PumpSettings { small_write_max: largest.unwrap_or(SMALL_WRITE), ..plan.pump },
            checkpoint_after: true,
            seed: self.options.traces.seed,
            seeds: self.options.seeds,
            ..plan
        }
    }

    /// Sets the rate of `plan` as the options say. `progress` can end the search for a rate.
    ///
    /// # Errors
    /// If a replay fails.
    pub fn choose_rate(
        &self,
        plan: &mut Plan,
        progress: &Arc<Progress>,
    ) -> Result<RateDetails, ReplayError> {
        self.rate_by(plan, |probe, target| find_rate(probe, target, progress))
    }

    /// Like [`choose_rate`](Self::choose_rate), but `find` searches the rate at which the plain
    /// drive is busy for a given share of the time.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn rate_by<E>(
        &self,
        plan: &mut Plan,
        find: impl FnOnce(&Plan, f64) -> Result<RateFound, E>,
    ) -> Result<RateDetails, E> {
        let details = match self.options.rate {
            LoadRate::Factor(factor) => RateDetails {
                factor,
                chosen: if factor == 1.0 { "as recorded" } else { "given" },
                target_utilisation: None,
                utilisation: None,
            },
            LoadRate::Busy(target) => {
                let probe = Plan {
                    pump: PumpSettings { mode: Loop::OPEN, ..plan.pump },
                    workload: plan.workload.clone().repeated(1),
                    ..plan.clone()
                };
                let found = find(&probe, target)?;
                RateDetails {
                    factor: found.factor,
                    chosen: "auto",
                    target_utilisation: Some(target),
                    utilisation: Some(round3(found.utilisation)),
                }
            }
        };
        plan.rate = details.factor;
        Ok(details)
    }

    /// The description of the replay in outputs. `command` repeats it.
    #[must_use]
    pub fn setting(&self, plan: &Plan, rate: RateDetails, command: &str) -> Setting {
        let files = &self.options.traces.files;
        Setting {
            drive: plan.drive.name(),
            files: files.iter().map(|file| file.display().to_string()).collect(),
            transforms: self.transforms.clone(),
            rate,
            durability_given: self.options.durability.is_some(),
            command: command.to_owned(),
            warnings: dropped_by_reader(plan),
        }
    }

    /// The result of the completed replays, with their measurements. It names those that did not
    /// complete.
    #[must_use]
    pub fn result(
        &self,
        plan: &Plan,
        rate: RateDetails,
        command: &str,
        outcomes: Vec<Outcome>,
    ) -> (Replay, Vec<Outcome>) {
        let (finished, unfinished): (Vec<Outcome>, Vec<Outcome>) =
            outcomes.into_iter().partition(|outcome| !outcome.interrupted);
        let mut setting = self.setting(plan, rate, command);
        setting.warnings.extend(unfinished.iter().map(|outcome| {
            format!(
                "{} was interrupted after {} requests and is left out",
                outcome.policy.name, outcome.pump.requests
            )
        }));
        let mut result = assemble(plan, setting, &finished);
        result.interrupted = !unfinished.is_empty();
        (result, finished)
    }

    /// Whether the user said how much of the persistent cache is in use.
    pub(crate) const fn smr_cache_given(&self) -> bool {
        self.options.smr_cache.is_some()
    }
}

/// The policies compared by default: the plain drive, a single log, ours, and the paper's.
///
/// # Errors
/// None: these policies are known.
pub fn default_policies(durability: Durability) -> Result<Vec<NamedPolicy>, PolicyListError> {
    let plain =
        if durability.write_cache() { "nologging,nologging:cache=off" } else { "nologging" };
    parse_policies(&[plain, "single-log,mlb,mlb-paper"])
}

fn dropped_by_reader(plan: &Plan) -> Vec<String> {
    let dropped = plan.workload.summary().dropped;
    let kinds = [
        (dropped.skipped, "malformed records passed over"),
        (dropped.late, "records out of order, moved to the time of the one before"),
        (dropped.echoes, "records dropped as echoes of an earlier one"),
        (dropped.empty, "reads and writes of no bytes dropped"),
        (dropped.lost, "events lost by the recorder"),
    ];
    let told = kinds.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("trace: {count} {what}")).collect()
}
