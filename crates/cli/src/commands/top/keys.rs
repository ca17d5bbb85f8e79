//! Keys of a terminal, read one by one without waiting for a line.

use std::io::{self, IsTerminal, Stdin};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The byte of Ctrl-C on a terminal that does not turn it into a signal.
const CTRL_C: u8 = 3;

/// A terminal that sends each key at once and does not show it. Dropping the value restores the
/// terminal. Ctrl-C arrives as a key, because a signal would end the program before the terminal is
/// restored.
pub(super) struct Keys {
    stdin: Stdin,
    before: Termios,
}

impl Keys {
    /// Sets up standard input, if it is a terminal that allows this.
    pub(super) fn of_terminal() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut changed = before.clone();
        changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(&stdin, OptionalActions::Now, &changed).ok()?;
        Some(Self { stdin, before })
    }

    /// Width of the terminal; `None` if it is not known.
    pub(super) fn columns(&self) -> Option<usize> {
        let size = tcgetwinsize(&self.stdin).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Waits for a key, or until `span` has passed. Returns whether the key asks for the end.
    fn ended_within(&self, span: Duration) -> bool {
        let timeout = Timespec::try_from(span).ok();
        let mut waited = [PollFd::new(&self.stdin, PollFlags::IN)];
        if !matches!(poll(&mut waited, timeout.as_ref()), Ok(1..)) {
            return false;
        }
        let mut key = [0];
        match rustix::io::read(&self.stdin, &mut key) {
            // The terminal is gone.
            Ok(0) | Err(_) => true,
            Ok(_) => matches!(key[0], b'q' | b'Q' | CTRL_C),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// Waits for `span`. Returns true at once if the user asks for the end.
pub(super) fn wait(keys: Option<&Keys>, span: Duration) -> bool {
    let Some(keys) = keys else {
        thread::sleep(span);
        return false;
    };
    let until = Instant::now() + span;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if keys.ended_within(left) {
            return true;
        }
    }
}
