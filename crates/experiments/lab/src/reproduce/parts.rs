//! The runs of one part of a figure: every combination of its lists.

use std::path::Path;
use std::sync::Arc;

use manylogs_array::{Shape, ShapeError};
use manylogs_block::{Nanos, Sectors, parse_bytes};
use manylogs_disk::Profile;
use manylogs_mlfs::JournalMode;
use manylogs_mlfs::adopt::Spacing;
use manylogs_workload::OpenOptions;

use super::folder::{Folder, options};
use super::part::{FsInterfere, Interfere, Replay};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::{Run, Work};
use crate::interfere::{Case, Place as At, StreamKind, StreamLoad, SyncLoad, SyncMode, SyncRate};
use crate::mlfs::{MlfsCase, WRITES_PER_SYNC};
use crate::prepare::WindowChoice;
use crate::replay::{ArraySettings, DriveSettings, Durability, NamedPolicy, parse_policies};
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::{Jobs, LoadRate, LoadSpec, drive};
use crate::tenants::table_one;

pub(super) type Planning = Result<(), String>;

/// Idle time after which a drive cleans that must not: longer than any pause of the loads.
const NEVER_MS: f64 = 600_000.0;

pub(super) fn size(text: &str) -> Result<Sectors, String> {
    let bytes = parse_bytes(text).ok_or_else(|| format!("{text:?}: expected a size"))?;
    Ok(Sectors(bytes / 512))
}

/// So many GB, in whole blocks of 4096 bytes.
pub(super) const fn gigabytes(number: u64) -> Sectors {
    Sectors(number * 1_000_000_000 / 4096 * 8)
}

/// Puts the name of the field of a figure's file before what is wrong with it.
pub(super) fn in_field(field: &str) -> impl Fn(String) -> String {
    move |error| format!("{field}: {error}")
}

pub(super) fn array(text: &str) -> Result<ArraySettings, String> {
    let shape: Shape = text.parse().map_err(|error: ShapeError| error.to_string())?;
    Ok(ArraySettings { shape, slow: None })
}

fn stream(name: &str) -> Result<StreamKind, String> {
    name.parse().map_err(|error: crate::interfere::UnknownName| error.to_string())
}

/// `pattern` with the words of this run.
pub(super) fn filled(pattern: &str, words: &[(&str, &str)]) -> String {
    words
        .iter()
        .fold(pattern.to_owned(), |text, (word, value)| text.replace(&format!("{{{word}}}"), value))
}

impl Planned {
    pub(super) fn add_run(&mut self, key: RunKey, name: String, work: Work) -> RunKey {
        if self.runs.iter().all(|run| run.key != key) {
            self.runs.push(Run { key, name, work });
        }
        key
    }

    /// Notes a trace that is used: by its file's name, as documents that are published have it.
    fn uses(&mut self, key: &str, file: &Path) {
        let name = file.file_name().unwrap_or_default().display();
        let said = format!("{key}: {name}");
        if !self.traces.contains(&said) {
            self.traces.push(said);
        }
    }

    fn add_case(&mut self, case: Case) -> RunKey {
        let Case { drive, policy, stream, syncs, seed, span } = &case;
        let profile = Arc::clone(&drive.profile);
        let key = drive
            .add_to(KeyBuilder::new("interfere"))
            .with("policy", format!("{policy:?}"))
            .with("load", format!("{stream:?} {syncs:?} {seed} {span:?}"))
            .key();
        let name = format!(
            "{} beside {} {} a second, {} on {}",
            stream.kind, syncs.rate, syncs.mode, policy.name, profile.name
        );
        self.add_run(key, name, Work::Interfere(Box::new(case)))
    }

    fn add_mlfs(&mut self, case: MlfsCase) -> RunKey {
        let MlfsCase {
            drive,
            spacing,
            threshold,
            journal,
            mode,
            stream,
            writes_per_second,
            seed,
            span,
        } = &case;
        let key = drive
            .add_to(KeyBuilder::new("fs interfere"))
            .with("layout", format!("{mode} {spacing:?} {threshold:?} {journal:?}"))
            .with("load", format!("{stream:?} {writes_per_second} {seed} {span:?}"))
            .key();
        let name = format!(
            "{stream} beside {writes_per_second} writes a second, {mode} on {}",
            drive.name()
        );
        self.add_run(key, name, Work::Mlfs(Box::new(case)))
    }
}

pub(super) fn fs_interfere(part: &FsInterfere, scale: Scale, planned: &mut Planned) -> Planning {
    let span = Nanos::from_secs(scale.of(part.seconds));
    let spacing = Spacing::Bytes(size(&part.log_every).map_err(in_field("log-every"))?.bytes());
    let threshold =
        part.threshold.as_deref().map(size).transpose().map_err(in_field("threshold"))?;
    let array = part.array.as_deref().map(array).transpose().map_err(in_field("array"))?;
    for name in &part.drives {
        let usual = DriveSettings::new(drive(name).map_err(in_field("drives"))?, part.drive_cache);
        let settings = DriveSettings { array, ..usual };
        for kind in &part.streams {
            for mode in &part.modes {
                let of = JournalMode::named(mode);
                let case = MlfsCase {
                    drive: settings.clone(),
                    spacing,
                    threshold,
                    journal: size(&part.journal).map_err(in_field("journal"))?,
                    mode: of.ok_or_else(|| format!("modes: unknown mode {mode:?}"))?,
                    stream: stream(kind).map_err(in_field("streams"))?,
                    writes_per_second: 0.0,
                    seed: 1,
                    span,
                };
                // Without the small writes the threshold says nothing, nor do the logs.
                let base = MlfsCase { mode: JournalMode::Ordered, threshold: None, ..case.clone() };
                let base = planned.add_mlfs(base);
                for &rate in &part.rates {
                    let case = MlfsCase { writes_per_second: rate, ..case.clone() };
                    let runs = vec![(planned.add_mlfs(case), Some(base))];
                    let each = (rate / f64::from(settings.members())).to_string();
                    let rate = rate.to_string();
                    let words = [
                        ("drive", &**name),
                        ("stream", kind),
                        ("mode", mode),
                        ("rate", &rate),
                        ("each", &each),
                    ];
                    let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                    planned.places.push(Place { series, x, runs, kind: PlaceKind::Beside });
                }
            }
        }
    }
    debug_assert_eq!(WRITES_PER_SYNC, 20, "as the files of figures presume");
    Ok(())
}

pub(super) fn interfere(part: &Interfere, scale: Scale, planned: &mut Planned) -> Planning {
    let policies =
        parse_policies(&part.policies).map_err(|error| in_field("policies")(error.to_string()))?;
    let request = size(&part.request).map_err(in_field("request"))?;
    let syncs = |per_second: f64, mode: SyncMode| SyncLoad {
        rate: SyncRate::PerSecond(per_second),
        clients: 1,
        writes: part.writes_per_sync,
        mode,
        column: None,
        checkpoint: false,
    };
    for name in &part.drives {
        let settings =
            DriveSettings::new(drive(name).map_err(in_field("drives"))?, part.drive_cache);
        for kind in &part.kinds {
            for (&streams, &depth) in
                part.streams.iter().flat_map(|s| part.depths.iter().map(move |d| (s, d)))
            {
                let at = At::Outer;
                let load = StreamLoad {
                    kind: stream(kind).map_err(in_field("kinds"))?,
                    depth,
                    size: request,
                    bursts: None,
                    streams,
                    at,
                };
                for (policy, mode_name) in
                    policies.iter().flat_map(|p| part.sync_modes.iter().map(move |m| (p, m)))
                {
                    let mode: SyncMode = mode_name
                        .parse()
                        .map_err(|error: crate::interfere::UnknownName| error.to_string())
                        .map_err(in_field("sync-modes"))?;
                    let case = |policy: &NamedPolicy, per_second: f64| Case {
                        drive: settings.clone(),
                        policy: policy.clone(),
                        stream: load,
                        syncs: syncs(per_second, mode),
                        seed: 1,
                        span: Nanos::from_secs(scale.of(part.seconds)),
                    };
                    let base = planned.add_case(case(&NamedPolicy::nologging(), 0.0));
                    for &rate in &part.rates {
                        let run = planned.add_case(case(policy, rate));
                        let (rate, depth) = (rate.to_string(), depth.to_string());
                        let streams = streams.to_string();
                        let words = [
                            ("drive", &**name),
                            ("stream", kind),
                            ("streams", &streams),
                            ("depth", &depth),
                            ("policy", &policy.name),
                            ("sync-mode", mode_name),
                            ("rate", &rate),
                        ];
                        let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                        let runs = vec![(run, Some(base))];
                        planned.places.push(Place { series, x, runs, kind: PlaceKind::Beside });
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) fn replay(
    part: &Replay,
    scale: Scale,
    folder: &Folder,
    planned: &mut Planned,
) -> Planning {
    let mut names = part.policies.clone();
    if !names.contains(&part.base) {
        names.insert(0, part.base.clone());
    }
    let policies =
        parse_policies(&names).map_err(|error| in_field("policies")(error.to_string()))?;
    let seeds: Vec<u64> = (1..=scale.of(part.seeds)).collect();
    for name in &part.drives {
        let profile = profile(name, part.never_idle)?;
        let outer_mb_s = outer_mb_s(&profile);
        for load in &part.loads {
            let spec = spec(part, load, scale, folder, planned)?;
            let mut jobs = Jobs::default();
            jobs.add(
                &Arc::new(spec),
                &[DriveSettings::new(Arc::clone(&profile), false)],
                &policies,
                &seeds,
            );
            planned.left_out.append(&mut jobs.left_out);
            let keys = |policy: &str| -> Vec<RunKey> {
                jobs.jobs.iter().filter(|job| job.ask.policy == policy).map(|job| job.key).collect()
            };
            let base = keys(&part.base);
            for policy in &part.policies {
                let pairs = keys(policy).into_iter().zip(base.iter().map(|base| Some(*base)));
                let words = [("drive", &**name), ("policy", policy), ("load", load)];
                planned.places.push(Place {
                    series: filled(&part.series, &words),
                    x: filled(&part.x, &words),
                    runs: pairs.collect(),
                    kind: PlaceKind::Replayed { outer_mb_s, curve: part.curve },
                });
            }
            for job in jobs.jobs {
                let name = format!("{load} on {}, {}", job.ask.drive, job.ask.policy);
                planned.add_run(job.key, name, Work::Replay(Box::new(job)));
            }
        }
    }
    Ok(())
}

fn profile(name: &str, never_idle: bool) -> Result<Arc<Profile>, String> {
    let mut profile = drive(name).map_err(in_field("drives"))?;
    if never_idle && let Some(shingled) = &mut Arc::make_mut(&mut profile).shingled {
        shingled.idle_after_ms = NEVER_MS;
    }
    Ok(profile)
}

/// What a track outside moves in a revolution.
fn outer_mb_s(profile: &Profile) -> f64 {
    let outer = profile.geometry.zones.first().map_or(0, |zone| zone.1);
    (f64::from(outer) * 512.0 / profile.spindle.revolution_us).max(1e-9)
}

/// The mix, or the trace, of this name: the traces of the folder, and what stands in for others.
fn spec(
    part: &Replay,
    load: &str,
    scale: Scale,
    folder: &Folder,
    planned: &mut Planned,
) -> Result<LoadSpec, String> {
    let one = [format!("{load} busiest-writes")];
    let tenants: &[String] = match table_one().mixes.iter().find(|mix| mix.key == load) {
        Some(mix) => &mix.tenants,
        None => &one,
    };
    let len = Nanos::from_secs(scale.of(part.window_s));
    let (mut files, mut windows, mut opens) = (Vec::new(), Vec::new(), Vec::new());
    for (nth, text) in tenants.iter().enumerate() {
        let (key, which) = text.split_once(' ').ok_or_else(|| format!("{text:?}: no window"))?;
        let tenant =
            table_one().tenant(key).ok_or_else(|| format!("loads: unknown trace {key:?}"))?;
        let window = match which {
            "busiest-writes" => WindowChoice::BusiestWrites(len),
            "busiest-reads" => WindowChoice::BusiestReads(len),
            "random" => WindowChoice::Random(len),
            _ => return Err(format!("{text:?}: unknown window")),
        };
        let file = folder.trace_of(tenant, which == "busiest-writes", len, &mut planned.left_out);
        if let Some(file) = &file {
            planned.uses(key, file);
            opens.push(options(tenant));
        } else {
            opens.push(OpenOptions::default());
        }
        files.push(file.unwrap_or_else(|| tenant.path(nth)));
        windows.push(Some(window));
    }
    Ok(LoadSpec {
        name: load.to_owned(),
        files,
        window: None,
        windows,
        opens,
        limit: None,
        fit: true,
        rate: part.busy.map_or(LoadRate::Factor(1.0), LoadRate::Busy),
        durability: Some(Durability::All),
        outstanding: part.outstanding,
    })
}
