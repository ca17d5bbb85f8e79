//! Code shared by commands that measure many cases for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::output::{Output, print};

/// Calls `act` when the user presses Ctrl-C, instead of ending the program.
pub(crate) fn on_ctrl_c(act: impl Fn() + Send + 'static) -> Result<(), Failure> {
    ctrlc::set_handler(act)
        .map_err(|error| Failure::failed(format!("cannot watch for Ctrl-C: {error}")))
}

/// A flag that is set when the user presses Ctrl-C.
pub(crate) fn stopped_by_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    on_ctrl_c(move || stopper.store(true, Ordering::Relaxed))?;
    Ok(stop)
}

/// How many cases are measured at the same time: the number given, or one per core.
pub(crate) fn threads(said: Option<u64>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    said.map_or(cores, manylogs_block::to_usize)
}

/// Writes all figures to the file that the user asked for, and prints its name.
pub(crate) fn write_figures(
    json: Option<Output>,
    figures: impl FnOnce() -> serde_json::Result<String>,
) -> Result<(), Failure> {
    let Some(json) = json else { return Ok(()) };
    json.write(figures().map_err(Failure::failed)?.as_bytes())?;
    print(&format!("figures: {}\n", json.path().display()))
}

/// The result of a command whose measurements the user may have interrupted.
pub(crate) const fn ended(interrupted: bool) -> Result<(), Failure> {
    if interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}
