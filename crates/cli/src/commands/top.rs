//! `manylogs top`: rates of a running server, repeatedly.

mod keys;
mod screen;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use manylogs_operate::control::{Control, connect};
use manylogs_operate::status::Status;

use super::serve::control_failure;
use crate::args::serve::Updates;
use crate::failure::Failure;
use crate::output::print;
use keys::Keys;

/// Clears a terminal and moves the cursor to the upper left.
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Width of lines in a pipe, or where the terminal does not tell its width.
const COLUMNS: usize = 80;

/// A status of the server and the time of the request for it.
pub(crate) struct Sample {
    pub(crate) status: Status,
    pub(crate) at: Instant,
}

/// Shows a screen for each interval until the user ends it by `q` or Ctrl-C, or until the server
/// ends.
pub(crate) fn run(device: &Path, updates: &Updates) -> Result<(), Failure> {
    let mut server = connect(device).map_err(control_failure)?;
    let terminal = std::io::stdout().is_terminal();
    let keys = Keys::of_terminal().filter(|_| terminal);
    let interval = Duration::from_secs(updates.interval_s);
    let mut before = sample(&mut server)?;
    let mut left = updates.count;
    loop {
        if keys::wait(keys.as_ref(), interval) {
            return Ok(());
        }
        let now = sample(&mut server)?;
        let columns = keys.as_ref().and_then(Keys::columns).unwrap_or(COLUMNS);
        let screen = screen::text(&before, &now, columns);
        print(&if terminal { format!("{CLEAR}{screen}") } else { format!("{screen}\n") })?;
        std::io::stdout().flush().map_err(Failure::failed)?;
        before = now;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
    }
}

fn sample(server: &mut Control) -> Result<Sample, Failure> {
    let status = server.status().map_err(control_failure)?;
    Ok(Sample { status, at: Instant::now() })
}
