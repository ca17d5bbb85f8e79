//! Bugs that tests plant in the model, to show that a test would notice them.

use std::cell::Cell;

/// A bug in the physics or in the drive's promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Every sector is under the head at once.
    FrozenRotation,
    /// The seek distance is taken from addresses instead of cylinders.
    SeekByAddress,
    /// Tracks begin at the same angle.
    NoSkew,
    /// Heads change in no time.
    NoHeadSwitch,
    /// Writes begin as soon as reads do.
    NoWriteSettle,
    /// Forced unit access is acknowledged from the cache.
    FuaIgnored,
    /// A flush does not wait for cached writes.
    FlushEarly,
    /// Near commands may delay a far one for ever.
    NoAgeLimit,
    /// Sectors read ahead are served after they were overwritten.
    StaleReadAhead,
    /// Of the logs near the head the nearest takes a write, whatever the angle of its end.
    NearestLog,
    /// Log swaps run while commands come.
    SwapsBesideWork,
    /// Writes near the head never wait for each other.
    WritesFirst,
    /// The pieces of a read are read in the order of their addresses.
    PiecesByAddress,
    /// A flush on SATA goes while other commands are in the drive, and other commands go beside it.
    FlushOvertakes,
    /// Each command that waits for a flush gets a flush of its own.
    FlushNotShared,
    /// A FUA write is acknowledged from the cache if the host does not know that the drive takes
    /// FUA.
    FuaWithoutFlush,
    /// A number of a sheet is read in another unit than it names.
    UnitTakenForAnother,
    /// A default is taken although the sheet has the figure.
    DefaultOverSheet,
    /// A drive gets the catalogue's entry of a neighbouring model.
    NeighbourModel,
    /// Only the lower half of a range is drawn from.
    RangeStopsAtMiddle,
    /// A measured number is varied as if it were a guess.
    RangeOnMeasured,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether `bug` is planted on this thread.
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Runs `work` with `bug` planted.
pub(crate) fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
    PLANTED.set(Some(bug));
    let result = work();
    PLANTED.set(None);
    result
}
