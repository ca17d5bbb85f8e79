//! The log file, which is hidden while its logs are in use: no program can list, open, move or
//! remove it, or create a file of its name.

use manylogs_ext4::{Ino, LOG_FILE_NAME};

/// Whether there is a log file to hide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden(pub(crate) bool);

impl Hidden {
    /// Whether the name in that directory is the log file's.
    pub(crate) fn has(self, dir: Ino, name: &[u8]) -> bool {
        self.0 && dir == Ino::ROOT && name == LOG_FILE_NAME
    }
}
