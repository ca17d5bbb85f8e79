//! `manylogs fs trees`: trees of directories on MLFS, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manylogs_block::to_usize;
use manylogs_lab::mlfs::DiskCase;
use manylogs_lab::mlfs::trees::{BYTES_PER_INODE, TreesCase, TreesFigures, run_all, text};
use manylogs_lab::replay::DriveSettings;
use manylogs_mlfs::adopt::Layout;

use super::interfere::failure;
use crate::args::serve::OnOff;
use crate::args::trees::FsTreesArgs;
use crate::commands::{command_line, drive, link};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(super) fn run(args: &FsTreesArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::failed(format!("cannot watch for Ctrl-C: {error}")))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, to_usize);
    let results = run_all(&cases, threads, &stop).map_err(failure)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let found = TreesFigures::new(command_line(std::env::args()), interrupted, results);
    print(&text(&found))?;
    if let Some(json) = json {
        let written = serde_json::to_string_pretty(&found).map_err(Failure::failed)? + "\n";
        json.write(written.as_bytes())?;
        print(&format!("figures: {}\n", json.path().display()))?;
    }
    if interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The modes of one drive stand beside each other.
fn cases(args: &FsTreesArgs) -> Result<Vec<TreesCase>, Failure> {
    let mut cases = Vec::new();
    for name in &args.drive {
        let usual = DriveSettings::new(Arc::new(drive(name)?), args.drive_cache == OnOff::On);
        let drive = DriveSettings { link: args.link.settings(), ..usual };
        link::say([&drive]);
        cases.extend(args.mode.iter().map(|mode| TreesCase {
            disk: DiskCase {
                drive: drive.clone(),
                spacing: Layout::default().spacing,
                threshold: None,
                journal: args.journal,
                bytes_per_inode: BYTES_PER_INODE,
                mode: *mode,
                seed: args.seed,
            },
            directories: args.directories,
            shuffled: args.shuffled,
        }));
    }
    Ok(cases)
}
