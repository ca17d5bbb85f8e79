//! The progress of a mount's replay, on a terminal.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::ProgressBar;
use manylogs_ext4::ReplayProgress;

use crate::commands::volume::maintain::bar;

/// Time between two looks at the progress.
const REDRAW: Duration = Duration::from_millis(200);

/// Shows the progress until it is dropped.
pub(super) struct Shown {
    ended: Option<Sender<()>>,
    shower: Option<JoinHandle<()>>,
}

impl Shown {
    /// Shows how far a replay is once there is one; nothing, if standard error is no terminal.
    pub(super) fn new(progress: ReplayProgress) -> Self {
        if bar("replay", 0).is_hidden() {
            return Self { ended: None, shower: None };
        }
        let (ended, wait) = channel();
        let shower = thread::spawn(move || show(&progress, &wait));
        Self { ended: Some(ended), shower: Some(shower) }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(shower) = self.shower.take() {
            // It cannot fail; and a bar that is left there is no reason to end a mount.
            let _ = shower.join();
        }
    }
}

/// Shows the progress until the other end of `ended` is gone.
fn show(progress: &ReplayProgress, ended: &Receiver<()>) {
    let (mut reading, mut home) = (None, None);
    while ended.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
        if let Some((done, all)) = progress.blocks() {
            clear(&mut reading);
            home.get_or_insert_with(|| bar("replay", all)).set_position(done);
        } else if let Some((done, all)) = progress.read_blocks() {
            reading.get_or_insert_with(|| bar("read the journal", all)).set_position(done);
        }
    }
    clear(&mut reading);
    clear(&mut home);
}

fn clear(shown: &mut Option<ProgressBar>) {
    if let Some(bar) = shown.take() {
        bar.finish_and_clear();
    }
}
