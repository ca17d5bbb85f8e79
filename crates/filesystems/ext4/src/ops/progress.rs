//! How far a replay is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the replay of a mount is, for another thread that shows it: first it reads the log, then
/// what it found goes home. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct ReplayProgress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    log: AtomicU64,
    done: AtomicU64,
    all: AtomicU64,
}

impl ReplayProgress {
    /// Notes that a log of so many blocks is read.
    pub(crate) fn begin_reading(&self, blocks: u64) {
        self.0.log.store(blocks, Ordering::Relaxed);
    }

    /// Notes that so many of them were read.
    pub(crate) fn set_read(&self, blocks: u64) {
        self.0.read.store(blocks, Ordering::Relaxed);
    }

    /// Notes that so many blocks go home.
    pub(crate) fn begin(&self, blocks: u64) {
        self.0.all.store(blocks, Ordering::Relaxed);
    }

    /// Notes that so many more did.
    pub(crate) fn add(&self, blocks: u64) {
        self.0.done.fetch_add(blocks, Ordering::Relaxed);
    }

    /// How many blocks of the log were read so far, and how many it can have: what is in use may
    /// end before. `None` if nothing is replayed.
    #[must_use]
    pub fn read_blocks(&self) -> Option<(u64, u64)> {
        let log = self.0.log.load(Ordering::Relaxed);
        (log > 0).then(|| (self.0.read.load(Ordering::Relaxed).min(log), log))
    }

    /// How many blocks went home so far, and how many there are; `None` as long as nobody knows, or
    /// if nothing is replayed: not before the log is read.
    #[must_use]
    pub fn blocks(&self) -> Option<(u64, u64)> {
        let all = self.0.all.load(Ordering::Relaxed);
        (all > 0).then(|| (self.0.done.load(Ordering::Relaxed).min(all), all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_a_replay_begins() {
        let progress = ReplayProgress::default();
        assert_eq!((progress.read_blocks(), progress.blocks()), (None, None));
        progress.begin_reading(1000);
        progress.set_read(400);
        assert_eq!((progress.read_blocks(), progress.blocks()), (Some((400, 1000)), None));
        progress.begin(300);
        progress.clone().add(256);
        assert_eq!(progress.blocks(), Some((256, 300)));
    }
}
