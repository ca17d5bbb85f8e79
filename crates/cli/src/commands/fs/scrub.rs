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

/// What the exit code says. What is lost comes before what ended the scrub.
fn judged(device: &Path, done: &ScrubStatus) -> Result<(), Failure> {
    let device = device.display();
    if done.lost > 0 {
        let advice = if done.torn_left > 0 { LOST_AND_TORN } else { LOST };
        let lost = done.lost;
        return Err(Failure::Loss(format!("{device}: {lost} blocks of metadata are lost{advice}")));
    }
    if done.torn_left > 0 {
        return Err(Failure::Damage(format!(
            "{device}: a descriptor of the journal is damaged, and a replay by a kernel would end \
             there: scrub it again; if that says the same, copy what is there before you unmount \
             it"
        )));
    }
    if let Some(failure) = &done.failure {
        return Err(Failure::failed(format!("{device}: an error ended the scrub: {failure}")));
    }
    if done.is_cut_short {
        return Err(Failure::failed(format!(
            "{device}: the scrub ended early, because the file system was unmounted or the journal \
             had no room for what it would write anew: begin it again"
        )));
    }
    Ok(())
}

const LOST: &str = ": copy what can still be read, unmount it, then manylogs fs check --repair, \
                    and e2fsck -f";
const LOST_AND_TORN: &str = ". Descriptors of the journal are damaged too: unless it is mounted \
                             with -o savemap, an unmount loses what lies behind them, although \
                             that is whole. Copy all that can be read before you unmount it, then \
                             manylogs fs check --repair, and e2fsck -f";

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code, and the text, for what a scrub found.
    fn told(done: &ScrubStatus) -> (u8, String) {
        match judged(Path::new("/dev/sdb"), done) {
            Ok(()) => (0, String::new()),
            Err(Failure::Failed(text)) => (1, text),
            Err(Failure::Damage(text)) => (3, text),
            Err(Failure::Loss(text)) => (4, text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_lost_is_said_before_an_error_and_a_word_of_an_unmount() {
        let lost = ScrubStatus { lost: 2, ..ScrubStatus::default() };
        let (code, text) = told(&lost);
        assert!(code == 4 && !text.contains("Descriptors"), "{code} {text}");
        let failure = Some("device is gone".to_owned());
        let failed = ScrubStatus { failure, is_cut_short: true, ..ScrubStatus::default() };
        let (code, text) = told(&failed);
        assert!(code == 1 && text.contains("device is gone"), "{code} {text}");
        assert_eq!(told(&ScrubStatus { lost: 1, ..failed }).0, 4);
        let torn = ScrubStatus { torn_left: 1, ..lost };
        let (code, text) = told(&torn);
        let places = ["Descriptors", "Copy all", "unmount it, then"].map(|it| text.find(it));
        assert!(code == 4 && places.is_sorted() && places[0].is_some(), "{code} {text}");
        let (code, text) = told(&ScrubStatus { lost: 0, ..torn });
        assert!(code == 3 && !text.contains("fs checkpoint"), "{code} {text}");
    }
}
