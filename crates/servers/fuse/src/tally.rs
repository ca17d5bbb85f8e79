//! How many requests of each kind the kernel has sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::opcode;

/// Numbers of operations are below this.
const KINDS: usize = 64;

/// Counts requests by kind. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Tally(Arc<[AtomicU64; KINDS]>);

impl Default for Tally {
    fn default() -> Self {
        Self(Arc::new([const { AtomicU64::new(0) }; KINDS]))
    }
}

impl Tally {
    /// Counts one operation. Numbers that no kernel of today sends count as number 0.
    pub(crate) fn count(&self, opcode: u32) {
        let number = usize::try_from(opcode).ok().filter(|number| *number < KINDS);
        self.0[number.unwrap_or(0)].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts that are not zero, each with the protocol's name of the operation.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let loaded = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let named = (0_u32..).zip(loaded).filter(|(_, count)| *count > 0);
        named.map(|(number, count)| (opcode::name(number), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_by_name() {
        let tally = Tally::default();
        for number in [opcode::LOOKUP, opcode::WRITE, opcode::LOOKUP, 4096, 63] {
            tally.clone().count(number);
        }
        let counts = tally.counts();
        assert_eq!(counts, [("other", 1), ("lookup", 2), ("write", 1), ("other", 1)]);
    }
}
