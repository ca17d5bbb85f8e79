//! The numbers that order versions and records. A volume never uses one twice.

/// The number of times a volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// The end of the sequences that a volume has set aside. All data and record sequences that the
/// volume ever used are below it, lost ones included. The limit is durable before a sequence below
/// it is used. Each opening starts at the limit and raises it; a volume in use raises it before it
/// gets there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceLimit(pub u64);

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

/// Entries with smaller data sequences than these are dead, wherever they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// Floor of entries that go home.
    pub home: DataSequence,
    /// Floor of entries that are kept in the logs, see [`crate::Class::DurabilityOnly`], and of
    /// entries that say that kept versions are dead. Never above `home`.
    pub kept: DataSequence,
}

impl Floors {
    /// One floor for all entries.
    #[must_use]
    pub const fn both(floor: DataSequence) -> Self {
        Self { home: floor, kept: floor }
    }

    /// The floor of kept versions, or of the others.
    #[must_use]
    pub const fn of(self, is_kept: bool) -> DataSequence {
        if is_kept { self.kept } else { self.home }
    }

    /// Whether one of them is higher than in `other`.
    #[must_use]
    pub fn rise_above(self, other: Self) -> bool {
        self.home > other.home || self.kept > other.kept
    }
}

impl Incarnation {
    /// The last incarnation that may be opened.
    pub const MAX: Self = Self(u32::MAX - 1);
}

impl SequenceLimit {
    /// Number of sequences that are set aside at a time. At one opening a minute all sequences last
    /// for 8,000 years; at a million records a second, without a pause, for half a million years.
    pub const STEP: u64 = 1 << 32;
    /// Steps at the end that only a drain may take, so that a volume can always be left.
    pub const LAST_STEPS: u64 = 1 << 8;
    /// The limit of a new volume: no sequence was used yet, and zero is none.
    pub const NONE_USED: Self = Self(1);

    /// The limit with one step more; `None` if the sequences are used up.
    #[must_use]
    pub fn extended(self) -> Option<Self> {
        self.0.checked_add(Self::STEP).map(Self)
    }

    /// Number of steps that are left.
    #[must_use]
    pub const fn steps_left(self) -> u64 {
        (u64::MAX - self.0) / Self::STEP
    }
}

impl LogOffset {
    /// Number of bits for every offset: a log has at most 128 GiB.
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

    /// The epoch that begins if this is the first record of a log.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_outranks_every_sequence_before() {
        let first = SequenceLimit::NONE_USED;
        let second = first.extended().unwrap();
        assert_eq!(second.0 - first.0, SequenceLimit::STEP);
        assert_eq!(SequenceLimit(u64::MAX - 5).extended(), None);
        assert!(first.steps_left() > 4_000_000_000);
    }
}
