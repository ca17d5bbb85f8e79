//! Parts of figures that are busy volumes with lent drives, and their metrics.

use manylogs_block::{Nanos, to_usize};
use serde::Deserialize;

use super::cells::Metrics;
use super::episodes::policy;
use super::part::Scaled;
use super::parts::{Planning, array, filled, in_field, size};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::{Work, put};
use crate::episodes::{EpisodeFailure, OffloadPolicy};
use crate::lent::{self, LentCase, LentLoad, LoadAt, ReclaimCase, RecoveryCase};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// Volumes that are busy all the time and borrow drives.
///
/// `series` and `x` are patterns of `{drive}`, `{policy}`, `{clients}`, `{idle}`, `{copies}`,
/// `{reads}` (per cent) and `{depth}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lent {
    series: String,
    x: String,
    drives: Vec<String>,
    /// An array of such drives below each volume: `raid0:2`.
    #[serde(default)]
    array: Option<String>,
    /// none, everest-paper, wait, always, always-kept.
    policies: Vec<String>,
    #[serde(default = "super::part::one")]
    copies: Vec<u32>,
    /// Busy volumes.
    #[serde(default = "super::part::one")]
    clients: Vec<u32>,
    /// Drives that lend, and do nothing else.
    #[serde(default = "super::part::one")]
    idle: Vec<u32>,
    /// Busy volumes lend to each other, too.
    #[serde(default)]
    mutual: bool,
    /// Each volume has its store on its own drive.
    #[serde(default)]
    own: bool,
    /// Another volume lends, and becomes busy after the warm-up.
    #[serde(default)]
    wakes: bool,
    /// What stores have of their drives' time while others wait there, in per cent.
    #[serde(default = "whole")]
    share: u8,
    /// Reads among the requests, per cent.
    reads: Vec<u64>,
    request: String,
    depths: Vec<u32>,
    /// The part of a volume that is used.
    over: String,
    #[serde(default)]
    sequential: bool,
    /// Requests are for the end of the drive, where a store would be.
    #[serde(default)]
    at_end: bool,
    pub(super) warm_s: Scaled,
    pub(super) seconds: Scaled,
    #[serde(default = "super::part::one_seed")]
    pub(super) seeds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// How fast all that a store holds goes home. `{together}` of the patterns is how many ranges go
/// home together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reclaim {
    series: String,
    x: String,
    drives: Vec<String>,
    together: Vec<u64>,
    request: String,
    over: String,
    #[serde(default)]
    sequential: bool,
    /// Writes that the store holds.
    pub(super) writes: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// How long the opening of a store takes. `{end}` of the patterns is `crash` or `close`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recovery {
    series: String,
    x: String,
    drives: Vec<String>,
    /// What ended the store before: crash, close.
    ends: Vec<String>,
    request: String,
    /// The part that is written to over and over.
    over: String,
    pub(super) records: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// A store without a bound.
const fn whole() -> u8 {
    100
}

/// Clients that fill a store before it is emptied.
const FILLING: u32 = 32;

/// A run of one of these parts.
#[derive(Clone, Debug)]
pub(super) enum LentWork {
    /// Busy volumes.
    Run(LentCase),
    /// All goes home.
    Reclaim(ReclaimCase),
    /// A store is opened.
    Recover(RecoveryCase),
}

impl LentWork {
    fn key(&self) -> RunKey {
        let (kind, drive, rest) = match self {
            Self::Run(case) => {
                let LentCase { drive, policy, copies, clients, idle, load, seed, .. } = case;
                let LentCase { mutual, own, wakes, share, warm, span, .. } = case;
                let mut volumes =
                    format!("{policy:?} {copies} {clients} {idle} {mutual} {own} {wakes}");
                if *share != whole() {
                    volumes += &format!(" {share} %");
                }
                ("lent", drive, format!("{volumes} {load:?} {warm:?} {span:?} {seed}"))
            }
            Self::Reclaim(ReclaimCase { drive, load, writes, together, seed }) => {
                ("reclaim", drive, format!("{load:?} {writes} {together} {seed}"))
            }
            Self::Recover(RecoveryCase { drive, records, request, over, orderly, seed }) => {
                ("recovery", drive, format!("{records} {request:?} {over:?} {orderly} {seed}"))
            }
        };
        drive.add_to(KeyBuilder::new(kind)).with("case", rest).key()
    }

    fn name(&self) -> String {
        match self {
            Self::Run(case) => {
                let (clients, idle, policy) = (case.clients, case.idle, case.policy.name());
                format!("{clients} busy volumes and {idle} idle drives, {policy}")
            }
            Self::Reclaim(case) => format!("{} ranges at a time go home", case.together),
            Self::Recover(case) => format!("a store with {} records is opened", case.records),
        }
    }

    /// Does it on this thread.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) fn measure(&self) -> Result<Metrics, EpisodeFailure> {
        let values = match self {
            Self::Run(case) => {
                let found = lent::run(case)?;
                vec![
                    ("per_s", found.per_s),
                    ("mb_s", found.mb_s),
                    ("before_per_s", found.before_per_s),
                    ("woken_per_s", found.woken_per_s),
                    ("offloaded_percent", found.offloaded_percent),
                    ("held_mb", found.held_mb),
                ]
            }
            Self::Reclaim(case) => {
                let found = lent::reclaim(case)?;
                vec![("held_mb", found.held_mb), ("mb_s", found.mb_s), ("took_s", found.took_s)]
            }
            Self::Recover(case) => {
                let found = lent::recover(case)?;
                vec![
                    ("records", case.records as f64),
                    ("log_mb", found.log_mb),
                    ("valid_mb", found.valid_mb),
                    ("recovery_s", found.recovery_s),
                    ("stream_s", found.stream_s),
                    ("times", found.times),
                ]
            }
        };
        let mut metrics = Metrics::new();
        values.into_iter().for_each(|(name, value)| put(&mut metrics, name, value));
        Ok(metrics)
    }
}

impl Planned {
    fn add_lent(&mut self, work: LentWork) -> RunKey {
        self.add_run(work.key(), work.name(), Work::Lent(Box::new(work)))
    }

    /// A case, and the same load on one plain drive each.
    fn beside_plain(&mut self, case: LentCase) -> (RunKey, Option<RunKey>) {
        let plain = LentCase {
            drive: DriveSettings { array: None, ..case.drive.clone() },
            policy: OffloadPolicy::None,
            copies: 1,
            idle: 0,
            mutual: false,
            own: false,
            share: whole(),
            ..case.clone()
        };
        let plain = self.add_lent(LentWork::Run(plain));
        (self.add_lent(LentWork::Run(case)), Some(plain))
    }
}

/// Every combination of five lists, in the order in which their figures are shown.
fn grid(part: &Lent) -> impl Iterator<Item = (u32, u32, u32, u64, u32)> + '_ {
    part.clients.iter().flat_map(move |clients| {
        part.idle.iter().flat_map(move |idle| {
            part.copies.iter().flat_map(move |copies| {
                part.reads.iter().flat_map(move |reads| {
                    part.depths.iter().map(move |depth| (*clients, *idle, *copies, *reads, *depth))
                })
            })
        })
    })
}

pub(super) fn plan(part: &Lent, scale: Scale, planned: &mut Planned) -> Planning {
    let array = part.array.as_deref().map(array).transpose().map_err(in_field("array"))?;
    let (request, over) = (
        size(&part.request).map_err(in_field("request"))?,
        size(&part.over).map_err(in_field("over"))?,
    );
    for name in &part.drives {
        let profile = drive(name).map_err(in_field("drives"))?;
        let settings = DriveSettings { array, ..DriveSettings::new(profile, false) };
        for policy_name in &part.policies {
            let policy = policy(policy_name)?;
            for (clients, idle, copies, reads_percent, depth) in grid(part) {
                let at = if part.at_end { LoadAt::End } else { LoadAt::Beginning };
                let sequential = part.sequential;
                let load = LentLoad { reads_percent, request, depth, over, sequential, at };
                let case = LentCase {
                    drive: settings.clone(),
                    policy,
                    copies: to_usize(copies.into()),
                    clients,
                    idle,
                    mutual: part.mutual,
                    own: part.own,
                    wakes: part.wakes,
                    share: part.share,
                    load,
                    warm: Nanos::from_secs(scale.of(part.warm_s)),
                    span: Nanos::from_secs(scale.of(part.seconds)),
                    seed: 1,
                };
                let seeds = 1..=scale.of(part.seeds);
                let runs =
                    seeds.map(|seed| planned.beside_plain(LentCase { seed, ..case.clone() }));
                let runs = runs.collect();
                let numbers = [clients, idle, copies, depth].map(|number| number.to_string());
                let reads = reads_percent.to_string();
                let words = [
                    ("drive", &**name),
                    ("policy", policy_name),
                    ("clients", &numbers[0]),
                    ("idle", &numbers[1]),
                    ("copies", &numbers[2]),
                    ("depth", &numbers[3]),
                    ("reads", &reads),
                ];
                let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                planned.places.push(Place { series, x, runs, kind: PlaceKind::Lent });
            }
        }
    }
    Ok(())
}

/// How many times as much as on one plain drive each.
pub(super) fn derive(metrics: &mut Metrics, plain: &Metrics) {
    for (name, of) in [("times", "per_s"), ("woken_times", "woken_per_s")] {
        if let (Some(own), Some(plain)) = (metrics.get(of), plain.get(of).filter(|it| **it > 0.0)) {
            let times = own / plain;
            put(metrics, name, times);
        }
    }
}

pub(super) fn reclaim(part: &Reclaim, scale: Scale, planned: &mut Planned) -> Planning {
    let load = LentLoad {
        reads_percent: 0,
        request: size(&part.request).map_err(in_field("request"))?,
        depth: FILLING,
        over: size(&part.over).map_err(in_field("over"))?,
        sequential: part.sequential,
        at: LoadAt::Beginning,
    };
    for name in &part.drives {
        let settings = DriveSettings::new(drive(name).map_err(in_field("drives"))?, false);
        for &together in &part.together {
            let run = planned.add_lent(LentWork::Reclaim(ReclaimCase {
                drive: settings.clone(),
                load,
                writes: scale.of(part.writes),
                together: to_usize(together),
                seed: 1,
            }));
            let together = together.to_string();
            let words = [("drive", &**name), ("together", &together)];
            let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
            planned.add_place(series, x, run);
        }
    }
    Ok(())
}

pub(super) fn recovery(part: &Recovery, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let settings = DriveSettings::new(drive(name).map_err(in_field("drives"))?, false);
        for end in &part.ends {
            let orderly = match &**end {
                "crash" => false,
                "close" => true,
                other => return Err(format!("ends: {other:?}: expected crash or close")),
            };
            let run = planned.add_lent(LentWork::Recover(RecoveryCase {
                drive: settings.clone(),
                records: scale.of(part.records),
                request: size(&part.request).map_err(in_field("request"))?,
                over: size(&part.over).map_err(in_field("over"))?,
                orderly,
                seed: 1,
            }));
            let words = [("drive", &**name), ("end", end)];
            let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
            planned.add_place(series, x, run);
        }
    }
    Ok(())
}
