//! The numbers that order versions and records, never reused in the life of a volume.

/// Low bits of a sequence that count within one incarnation; the rest is the incarnation.
const COUNTER_BITS: u32 = 44;

/// One opening of a volume. Durable before anything is appended under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// Orders the versions of a block. Zero is older than every write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSequence(pub u64);

/// Orders the records of a volume. Zero is no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordSequence(pub u64);

/// One use of a log from its start: the sequence of its first record. Zero: never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of a log in its volume's layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u32);

/// A sector of a log, counted from the log's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogOffset(pub u32);

impl Incarnation {
    /// The largest incarnation whose sequences can be told apart.
    pub const MAX: Self = Self((1 << (u64::BITS - COUNTER_BITS)) - 1);

    /// The smallest sequence number of this incarnation: larger than any of an earlier one, used
    /// or lost in a crash.
    #[must_use]
    pub const fn first_sequence(self) -> u64 {
        ((self.0 as u64) << COUNTER_BITS) + 1
    }

    /// The incarnation that took `sequence`.
    #[must_use]
    pub const fn of(sequence: u64) -> Self {
        Self((sequence >> COUNTER_BITS) as u32)
    }
}

impl LogOffset {
    /// Bits that every offset fits into: a log has at most 128 GiB.
    pub const BITS: u32 = 28;
}

impl DataSequence {
    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl RecordSequence {
    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch that a log begins with this record.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_incarnation_outranks_every_sequence_of_the_last() {
        let first = Incarnation(7).first_sequence();
        assert!(Incarnation(8).first_sequence() > first + (1 << 43));
        assert_eq!(Incarnation::of(first + 12_345), Incarnation(7));
        assert_eq!(Incarnation::of(Incarnation::MAX.first_sequence()), Incarnation::MAX);
    }
}
