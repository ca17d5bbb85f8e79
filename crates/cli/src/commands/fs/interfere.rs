//! `manylogs fs interfere`: small durable writes beside a stream on MLFS, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::Nanos;
use manylogs_lab::mlfs::{MlfsCase, MlfsError, MlfsFigures, run_all, text};
use manylogs_lab::replay::DriveSettings;
use manylogs_mlfs::adopt::{LogLayout, Spacing};

use crate::args::fs::FsInterfereArgs;
use crate::args::serve::OnOff;
use crate::commands::arrays::arrays;
use crate::commands::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsInterfereArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let results = run_all(&cases, threads, &stop).map_err(failure)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let found = MlfsFigures::new(command_line(std::env::args()), interrupted, results);
    print(&text(&found))?;
    write_figures(json, || found.to_json())?;
    ended(interrupted)
}

pub(super) fn failure(error: MlfsError) -> Failure {
    match error {
        MlfsError::Mkfs(_) | MlfsError::Setting(_) | MlfsError::Adopt(_) | MlfsError::Drive(_) => {
            Failure::input(error)
        }
        other => Failure::failed(other),
    }
}

/// Every combination of the lists; the modes of one load are adjacent.
fn cases(args: &FsInterfereArgs) -> Result<Vec<MlfsCase>, Failure> {
    if let Some(bad) = args.rate.iter().find(|rate| !rate.is_finite() || **rate <= 0.0) {
        return Err(Failure::input(format!("--rate {bad}: expected writes a second above 0")));
    }
    let usual = LogLayout::default().spacing;
    let spacing = args.log_every.map_or(usual, |every| Spacing::Bytes(every.bytes()));
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), args.drive_cache == OnOff::On);
        let usual = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&usual]);
        for array in arrays(&args.arrays, &usual.profile)? {
            let drive = DriveSettings { array, ..usual.clone() };
            for &stream in &args.stream {
                for &writes_per_second in &args.rate {
                    cases.extend(args.mode.iter().map(|mode| MlfsCase {
                        drive: drive.clone(),
                        spacing,
                        threshold: args.threshold,
                        journal: args.journal,
                        mode: *mode,
                        stream,
                        writes_per_second,
                        seed: args.seed,
                        span: Nanos::from_secs(args.seconds),
                    }));
                }
            }
        }
    }
    Ok(cases)
}
