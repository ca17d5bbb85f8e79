//! `manylogs fs applications`: programs beside a reader on MLFS, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::Nanos;
use manylogs_lab::mlfs::applications::{
    ApplicationCase, ApplicationDisks, ApplicationFigures, BYTES_PER_INODE, judge_all, judged_text,
    run_all, text,
};
use manylogs_lab::mlfs::{DiskCase, INODE_BYTES};
use manylogs_lab::replay::DriveSettings;
use manylogs_mlfs::adopt::{LogLayout, Spacing};
use manylogs_workload::programs::{FileServer, MongoDb, Program, VarMail};

use super::interfere::failure;
use crate::args::applications::{ApplicationsFigure, FsApplicationsArgs};
use crate::args::serve::OnOff;
use crate::commands::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsApplicationsArgs) -> Result<(), Failure> {
    check(args)?;
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let disks = ApplicationDisks::default();
    let results = run_all(&cases, &disks, threads, &stop).map_err(failure)?;
    let stopped = || stop.load(Ordering::Relaxed);
    let mut found = ApplicationFigures::new(command_line(std::env::args()), stopped(), results);
    print(&text(&found))?;
    if args.judge && !stopped() {
        found.judged = judge_all(&cases, &found.cases, &disks, threads, &stop).map_err(failure)?;
        found.interrupted = stopped();
        print(&format!("\n{}", judged_text(&found.judged)))?;
    }
    write_figures(json, || found.to_json())?;
    ended(found.interrupted)?;
    let lost = found.judged.iter().filter(|judged| !judged.holds).count();
    if lost == 0 {
        return Ok(());
    }
    let all = found.judged.len();
    Err(Failure::failed(format!("{lost} of {all} judgements do not hold")))
}

/// Refuses what cannot be judged.
fn check(args: &FsApplicationsArgs) -> Result<(), Failure> {
    let odur = args.mode.iter().filter(|mode| mode.odur).count();
    if args.judge && (odur == 0 || odur == args.mode.len()) {
        return Err(Failure::input("--judge: --mode needs manylogs+odur and another mode"));
    }
    if args.judge && args.carry.is_some() {
        return Err(Failure::input("--judge: it decides the rate, so --carry has no place"));
    }
    Ok(())
}

/// All cases; the modes of one load are adjacent.
fn cases(args: &FsApplicationsArgs) -> Result<Vec<ApplicationCase>, Failure> {
    let usual = LogLayout::default().spacing;
    let spacing = args.log_every.map_or(usual, |every| Spacing::Bytes(every.bytes()));
    let programs = programs(args);
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), args.drive_cache == OnOff::On);
        let drive = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&drive]);
        for &(program, instances) in &programs {
            for &stream_depth in &args.stream_depth {
                cases.extend(args.mode.iter().map(|mode| ApplicationCase {
                    disk: DiskCase {
                        drive: drive.clone(),
                        spacing,
                        threshold: args.threshold,
                        journal: args.journal,
                        bytes_per_inode: BYTES_PER_INODE,
                        inode_bytes: INODE_BYTES,
                        mode: mode.journal,
                        seed: args.seed,
                    },
                    odur: mode.odur,
                    program,
                    instances,
                    stream_depth,
                    carry_per_s: args.carry,
                    memory_bytes: args.memory.bytes(),
                    span: Nanos::from_secs(args.seconds),
                }));
            }
        }
    }
    Ok(cases)
}

/// The programs, and how many of each run.
fn programs(args: &FsApplicationsArgs) -> Vec<(Program, u32)> {
    let of = |figure: &ApplicationsFigure| match figure {
        ApplicationsFigure::FileServers => Program::FileServer(FileServer::default()),
        ApplicationsFigure::MailServers => Program::VarMail(VarMail::default()),
        ApplicationsFigure::Databases => Program::MongoDb(MongoDb::default()),
    };
    let apps =
        if args.app.is_empty() { args.figure.iter().map(of).collect() } else { args.app.clone() };
    let mut found = Vec::new();
    for app in apps {
        let usual = match app {
            Program::VarMail(_) | Program::FileServer(_) => [2, 4, 8],
            _ => [1, 2, 4],
        };
        let instances = if args.instances.is_empty() { &usual[..] } else { &args.instances };
        for program in with_parameters(app, args) {
            found.extend(instances.iter().map(|instances| (program, *instances)));
        }
    }
    found
}

/// A program with the clients of the command, once for each flush period if it has one.
fn with_parameters(app: Program, args: &FsApplicationsArgs) -> Vec<Program> {
    let app = args.clients.map_or(app, |clients| app.with_clients(clients));
    let Program::MongoDb(database) = app else { return vec![app] };
    let flush = |flush: &Nanos| Program::MongoDb(MongoDb { flush: *flush, ..database });
    args.flush.iter().map(flush).collect()
}
