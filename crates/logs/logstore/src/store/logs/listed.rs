//! Logs that keep the extents of their entries.

use super::Logs;

/// Of which entries logs keep extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// Of all in their epoch.
    All,
    /// Of those that the table still names: dead ones are forgotten in time.
    Live,
}

impl Logs {
    /// The same logs; each of them keeps the extents of its entries: [`crate::Log::inverse`]. Those
    /// of dead ones are forgotten, and so are their checksums. For stores whose blocks have no
    /// home: what the table has is displaced by entries of logs alone.
    #[must_use]
    pub fn with_inverse(self) -> Self {
        Self { inverse: Some(Listed::Live), ..self }
    }

    /// From its next epoch on each log keeps the extents of all its entries, if it keeps none yet.
    pub fn keep_inverse(&mut self) {
        self.inverse.get_or_insert(Listed::All);
    }

    /// Whether logs forget what is dead: see [`Logs::with_inverse`].
    #[must_use]
    pub fn forget_dead(&self) -> bool {
        self.inverse == Some(Listed::Live)
    }
}
