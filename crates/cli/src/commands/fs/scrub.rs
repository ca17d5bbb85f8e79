//! `manylogs fs scrub`: the server of the mounted file system scrubs its journal.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use manylogs_ext4::BLOCK_BYTES;
use manylogs_operate::control::{self, ControlError};
use manylogs_operate::status::{JournalStatus, ScrubStatus};

use super::operate::{device, lazy_server};
use crate::args::fs::FsScrubArgs;
use crate::commands::serve::control_failure;
use crate::commands::volume::maintain::bar;
use crate::failure::Failure;
use crate::output::print;

/// How often the progress is asked for.
const REDRAW: Duration = Duration::from_millis(200);

pub(super) fn run(args: &FsScrubArgs) -> Result<(), Failure> {
    let device = device(&args.place)?;
    let mut server = lazy_server(&device, "its journal is scrubbed")?;
    let bar = bar("scrub", 0);
    let done = beside(&device, &bar, || server.scrub());
    bar.finish_and_clear();
    let done = done.map_err(control_failure)?;
    if args.json {
        print(&format!("{:#}\n", serde_json::json!({ "format": 1, "scrub": done })))?;
    } else {
        print(&said(&device, &done))?;
    }
    judged(&device, &done)
}

/// Does `work`, and meanwhile shows how many live blocks the server has read.
fn beside(
    device: &Path,
    bar: &ProgressBar,
    work: impl FnOnce() -> Result<ScrubStatus, ControlError>,
) -> Result<ScrubStatus, ControlError> {
    if bar.is_hidden() {
        return work();
    }
    let (ended, wait) = channel();
    thread::scope(|scope| {
        scope.spawn(move || show(device, bar, &wait));
        let done = work();
        drop(ended);
        done
    })
}

/// Shows the progress until the other end of `ended` is gone.
fn show(device: &Path, bar: &ProgressBar, ended: &Receiver<()>) {
    // Whoever cannot see the progress can still wait for the end.
    let Ok(mut server) = control::connect(device) else { return };
    let mut first = None;
    while ended.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
        let journal = |server: &mut control::Control| server.status().ok()?.file_system?.journal;
        let Some(JournalStatus { live_bytes, scrubbed_blocks, .. }) = journal(&mut server) else {
            return;
        };
        let first = *first.get_or_insert(scrubbed_blocks);
        bar.set_length(live_bytes / BLOCK_BYTES as u64);
        bar.set_position(scrubbed_blocks - first);
    }
}

fn said(device: &Path, done: &ScrubStatus) -> String {
    let mut text = format!("{}: {}\n", device.display(), done.in_words());
    for lost in &done.lost_blocks {
        text += &format!("lost: block {}, {}\n", lost.block, lost.holds);
    }
    let named = done.lost_blocks.len() as u64;
    if done.lost > named {
        text += &format!("lost: {} more\n", done.lost - named);
    }
    text
}

/// What the exit code says.
fn judged(device: &Path, done: &ScrubStatus) -> Result<(), Failure> {
    let device = device.display();
    if done.lost > 0 {
        return Err(Failure::Loss(format!(
            "{device}: {} blocks of metadata are lost: copy what can still be read, unmount it, \
             then manylogs fs check --repair, and e2fsck -f",
            done.lost
        )));
    }
    if done.torn_left > 0 {
        return Err(Failure::Damage(format!(
            "{device}: the replay of a kernel would end in the middle of the journal: manylogs fs \
             checkpoint brings home what is whole"
        )));
    }
    if done.is_cut_short {
        return Err(Failure::failed(format!(
            "{device}: the scrub ended early, because the file system was unmounted or the journal \
             had no room for what it would write anew: begin it again"
        )));
    }
    Ok(())
}
