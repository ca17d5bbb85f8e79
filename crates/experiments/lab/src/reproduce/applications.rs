//! The runs of a part with programs beside a reader: every combination of its lists.

use manylogs_block::{Nanos, parse_span};
use manylogs_mlfs::JournalMode;
use manylogs_mlfs::adopt::Spacing;
use manylogs_workload::programs::{MongoDb, Program};

use super::part::FsApplications;
use super::parts::{Planning, filled, in_field, size};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::Work;
use crate::mlfs::applications::{ApplicationCase, BYTES_PER_INODE, MANYLOGS_ODUR};
use crate::mlfs::{DiskCase, INODE_BYTES};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

impl Planned {
    fn add_applications(&mut self, case: ApplicationCase) -> RunKey {
        let ApplicationCase { disk, program, instances, stream_depth, memory_bytes, span, .. } =
            &case;
        let DiskCase { drive, spacing, threshold, journal, bytes_per_inode, seed, .. } = disk;
        let mode = case.mode_name();
        // Beside no instance it does not matter of which program.
        let program = if *instances == 0 { String::new() } else { format!("{program:?}") };
        let key = drive
            .add_to(KeyBuilder::new("fs applications"))
            .with("layout", format!("{mode} {spacing:?} {threshold:?} {journal:?}"))
            .with("inodes", bytes_per_inode.to_string())
            .with("load", format!("{program} {instances} {stream_depth} {memory_bytes}"))
            .with("time", format!("{seed} {span:?}"))
            .key();
        let drive = &drive.profile.name;
        let name = format!("a reader beside {instances} times {}, {mode} on {drive}", case.program);
        self.add_run(key, name, Work::Applications(Box::new(case)))
    }
}

/// A program with its parameters, and the flush period as it is written.
fn programs(part: &FsApplications) -> Result<Vec<(Program, String)>, String> {
    let usual: Program = part.program.parse().map_err(in_field("program"))?;
    let Program::MongoDb(database) = usual else {
        let is_database = part.clients.is_some() || !part.flush.is_empty();
        let only = "flush, clients: only databases have them".to_owned();
        return if is_database { Err(only) } else { Ok(vec![(usual, String::new())]) };
    };
    let clients = part.clients.unwrap_or(database.clients);
    let of = |text: &String| {
        let flush = parse_span(text).ok_or_else(|| format!("flush: {text:?}: expected a time"))?;
        Ok((Program::MongoDb(MongoDb { clients, flush, ..database }), text.clone()))
    };
    part.flush.iter().map(of).collect()
}

pub(super) fn plan(part: &FsApplications, scale: Scale, planned: &mut Planned) -> Planning {
    let spacing = Spacing::Bytes(size(&part.log_every).map_err(in_field("log-every"))?.bytes());
    let threshold =
        part.threshold.as_deref().map(size).transpose().map_err(in_field("threshold"))?;
    let journal = size(&part.journal).map_err(in_field("journal"))?;
    let memory = size(&part.memory).map_err(in_field("memory"))?;
    let programs = programs(part)?;
    for name in &part.drives {
        let drive = DriveSettings::new(drive(name).map_err(in_field("drives"))?, part.drive_cache);
        for (mode, depth) in
            part.modes.iter().flat_map(|mode| part.depths.iter().map(move |depth| (mode, *depth)))
        {
            let odur = mode == MANYLOGS_ODUR;
            let of = if odur { Some(JournalMode::Manylogs) } else { JournalMode::named(mode) };
            let of = of.ok_or_else(|| format!("modes: unknown {mode:?}"))?;
            for (program, flush) in &programs {
                for &instances in &part.instances {
                    let case = ApplicationCase {
                        disk: DiskCase {
                            drive: drive.clone(),
                            spacing,
                            threshold,
                            journal,
                            bytes_per_inode: BYTES_PER_INODE,
                            inode_bytes: INODE_BYTES,
                            mode: of,
                            seed: 1,
                        },
                        odur,
                        program: *program,
                        instances,
                        stream_depth: depth,
                        memory_bytes: memory.bytes(),
                        carry_per_s: None,
                        span: Nanos::from_secs(scale.of(part.seconds)),
                    };
                    let base = planned.add_applications(case.base());
                    let runs = vec![(planned.add_applications(case), Some(base))];
                    let (instances, depth) = (instances.to_string(), depth.to_string());
                    let words = [
                        ("drive", &**name),
                        ("mode", mode),
                        ("depth", &depth),
                        ("instances", &instances),
                        ("flush", flush),
                    ];
                    let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                    planned.places.push(Place { series, x, runs, kind: PlaceKind::Beside });
                }
            }
        }
    }
    Ok(())
}
