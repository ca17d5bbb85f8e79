//! How far a replay is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the replay of a mount is, for another thread that shows it. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct ReplayProgress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    all: AtomicU64,
}

impl ReplayProgress {
    /// Notes that so many blocks go home.
    pub(crate) fn begin(&self, blocks: u64) {
        self.0.all.store(blocks, Ordering::Relaxed);
    }

    /// Notes that so many more did.
    pub(crate) fn add(&self, blocks: u64) {
        self.0.done.fetch_add(blocks, Ordering::Relaxed);
    }

    /// How many blocks went home so far, and how many there are; `None` as long as nobody knows, or
    /// if nothing is replayed.
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
        assert_eq!(progress.blocks(), None);
        progress.begin(300);
        progress.clone().add(256);
        assert_eq!(progress.blocks(), Some((256, 300)));
    }
}
