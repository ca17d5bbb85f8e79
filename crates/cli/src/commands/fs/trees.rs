//! `manylogs fs trees`: trees of directories on MLFS, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_lab::mlfs::trees::{BYTES_PER_INODE, TreesCase, TreesFigures, run_all, text};
use manylogs_lab::mlfs::{DiskCase, INODE_BYTES};
use manylogs_lab::replay::DriveSettings;
use manylogs_mlfs::adopt::LogLayout;

use super::interfere::failure;
use crate::args::serve::OnOff;
use crate::args::trees::FsTreesArgs;
use crate::commands::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsTreesArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let results = run_all(&cases, threads, &stop).map_err(failure)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let found = TreesFigures::new(command_line(std::env::args()), interrupted, results);
    print(&text(&found))?;
    write_figures(json, || Ok(serde_json::to_string_pretty(&found)? + "\n"))?;
    ended(interrupted)
}

/// All cases; the modes of one drive are adjacent.
fn cases(args: &FsTreesArgs) -> Result<Vec<TreesCase>, Failure> {
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), args.drive_cache == OnOff::On);
        let drive = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&drive]);
        let both = args.mode.iter().flat_map(|mode| args.read_ahead.iter().map(move |a| (mode, a)));
        cases.extend(both.map(|(mode, ahead)| TreesCase {
            ahead: *ahead,
            disk: DiskCase {
                drive: drive.clone(),
                spacing: LogLayout::default().spacing,
                threshold: None,
                journal: args.journal,
                bytes_per_inode: BYTES_PER_INODE,
                inode_bytes: INODE_BYTES,
                mode: *mode,
                seed: args.seed,
            },
            directories: args.directories,
            files: args.files,
            shuffled: args.shuffled,
            arranged: args.arranged,
            cut: args.cut,
        }));
    }
    Ok(cases)
}
