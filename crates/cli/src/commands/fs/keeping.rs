//! `manylogs fs keeping`: durable-only files in the logs, measured in virtual time against the
//! promises.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_lab::mlfs::keeping::{KeepingCase, KeepingFigures, run_all, text};
use manylogs_lab::replay::DriveSettings;

use super::interfere::failure;
use crate::args::keeping::FsKeepingArgs;
use crate::commands::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsKeepingArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let results = run_all(&cases, threads, &stop).map_err(failure)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let found = KeepingFigures::new(command_line(std::env::args()), interrupted, results);
    print(&text(&found))?;
    write_figures(json, || Ok(serde_json::to_string_pretty(&found)? + "\n"))?;
    ended(interrupted)?;
    if found.hold() { Ok(()) } else { Err(Failure::failed("a promise does not hold")) }
}

fn cases(args: &FsKeepingArgs) -> Result<Vec<KeepingCase>, Failure> {
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), false);
        let drive = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&drive]);
        cases.extend(args.gate.iter().map(|gate| KeepingCase {
            drive: drive.clone(),
            logs: args.logs.bytes(),
            gate: gate.gate(),
            seed: args.seed,
        }));
    }
    Ok(cases)
}
