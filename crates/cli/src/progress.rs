//! Progress bars of a replay on a terminal: one bar for each policy.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use manylogs_lab::replay::Progress;

const REDRAW: Duration = Duration::from_millis(100);
const STYLE: &str = "{prefix:<14} {wide_bar} {percent:>3} %  {rate:>9} requests/s  {eta:>4} left";

/// Bars that follow running replays; nothing at all when standard error is no terminal.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    ended: Arc<AtomicBool>,
    painter: Option<JoinHandle<()>>,
}

impl Bars {
    /// Shows a bar of length `requests` for each of `names`, following `progresses`.
    pub(crate) fn show(names: &[String], progresses: &[Arc<Progress>], requests: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::default();
        }
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template(STYLE)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", HumanCount(whole(state.per_sec())));
            });
        let bars: Vec<(ProgressBar, Arc<Progress>)> = names
            .iter()
            .zip(progresses)
            .map(|(name, progress)| {
                let bar = all.add(ProgressBar::new(requests).with_style(style.clone()));
                bar.set_prefix(name.clone());
                (bar, Arc::clone(progress))
            })
            .collect();
        let ended = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&ended);
        let painter = std::thread::spawn(move || {
            while !watch.load(Ordering::Relaxed) {
                follow(&bars);
                std::thread::sleep(REDRAW);
            }
            bars.iter().for_each(|(bar, _)| bar.finish_and_clear());
        });
        Self { ended, painter: Some(painter) }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

fn follow(bars: &[(ProgressBar, Arc<Progress>)]) {
    for (bar, progress) in bars {
        let done = progress.done.load(Ordering::Relaxed);
        if done > 0 && bar.position() == 0 {
            // Policies first wait for a free core; the time of a policy counts from its start.
            bar.reset_eta();
            bar.reset_elapsed();
        }
        bar.set_position(done);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(painter) = self.painter.take() {
            // A panic of the painter does not affect the result.
            let _ = painter.join();
        }
    }
}
