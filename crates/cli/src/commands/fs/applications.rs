//! `manylogs fs applications`: programs beside a reader on MLFS, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::Nanos;
use manylogs_lab::mlfs::applications::{
    ApplicationCase, ApplicationFigures, BYTES_PER_INODE, run_all, text,
};
use manylogs_lab::mlfs::{DiskCase, INODE_BYTES};
use manylogs_lab::replay::DriveSettings;
use manylogs_mlfs::adopt::{LogLayout, Spacing};
use manylogs_workload::programs::{FileServer, MongoDb, Program, VarMail};

use super::interfere::failure;
use crate::args::applications::{App, ApplicationsFigure, FsApplicationsArgs};
use crate::args::serve::OnOff;
use crate::commands::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsApplicationsArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let results = run_all(&cases, threads, &stop).map_err(failure)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let found = ApplicationFigures::new(command_line(std::env::args()), interrupted, results);
    print(&text(&found))?;
    write_figures(json, || found.to_json())?;
    ended(interrupted)
}

/// All cases; the modes of one load are adjacent.
fn cases(args: &FsApplicationsArgs) -> Result<Vec<ApplicationCase>, Failure> {
    let usual = LogLayout::default().spacing;
    let spacing = args.log_every.map_or(usual, |every| Spacing::Bytes(every.bytes()));
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), args.drive_cache == OnOff::On);
        let drive = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&drive]);
        for (program, instances) in programs(args) {
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
    let apps: Vec<App> = if args.app.is_empty() {
        let of = |figure: &ApplicationsFigure| match figure {
            ApplicationsFigure::FileServers => App::Fileserver,
            ApplicationsFigure::MailServers => App::Varmail,
            ApplicationsFigure::Databases => App::Mongodb,
        };
        args.figure.iter().map(of).collect()
    } else {
        args.app.clone()
    };
    let database = |flush: &Nanos| {
        Program::MongoDb(MongoDb { clients: args.clients, flush: *flush, ..MongoDb::default() })
    };
    let mut found = Vec::new();
    for app in apps {
        let (programs, usual) = match app {
            App::Varmail => (vec![Program::VarMail(VarMail::default())], [2, 4, 8]),
            App::Fileserver => (vec![Program::FileServer(FileServer::default())], [2, 4, 8]),
            App::Mongodb => (args.flush.iter().map(database).collect(), [1, 2, 4]),
        };
        let instances = if args.instances.is_empty() { &usual[..] } else { &args.instances };
        for program in programs {
            found.extend(instances.iter().map(|instances| (program, *instances)));
        }
    }
    found
}
