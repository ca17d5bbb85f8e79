//! Bugs on order: each breaks one rule of `docs/semantics.md`, so that the crash histories can show
//! that they would notice. Without the feature `plant` every question is answered "no" at compile
//! time.

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bug {
    /// A small FUA write is acknowledged before its record is durable.
    AckBeforeRecord,
    /// A record is acknowledged although one before it in its log is not durable.
    AckPastHole,
    /// The supersede entry of a large write is appended before the write is home.
    SupersedeBeforeHome,
    /// A large write over logged blocks appends no supersede entry.
    NoSupersede,
    /// A large FUA write is acknowledged before its supersede entry is durable.
    SupersedeNotDurable,
    /// A large FUA write relies on an earlier supersede entry that is not durable.
    TrustUnsettledSupersede,
    /// A version counts as dead as soon as it is overwritten in memory.
    DeadBeforeSuccessorDurable,
    /// The table forgets checkpointed versions before the floor is durable.
    ForgetBeforeFloor,
    /// The floor rises although versions below it are still on their way into records.
    NoBarrierBeforePass,
    /// The floor rises before the home copies are flushed.
    FloorBeforeHomeDurable,
    /// The checkpoint writes home without locking clients out.
    CheckpointWithoutLock,
    /// A moved version gets a fresh data sequence.
    SwapFreshSequence,
    /// A moved log leaves its supersede entries behind.
    SwapDropsSupersedes,
    /// A log is reset while a read points into it.
    ResetUnderRead,
    /// A log is used before it is marked in the root.
    OpenedSetLate,
    /// A snapshot is published although versions it lacks are not durable.
    SnapshotWithoutBarrier,
    /// A volume is opened under its last incarnation.
    NoNewIncarnation,
    /// Recovery believes what is only in the drive's cache.
    NoFlushAtOpen,
    /// Recovery takes the version it reads last, not the newest.
    RecoveryTakesLast,
    /// A flush leaves buffered writes where they are.
    FlushSkipsBuffer,
    /// A flush is not passed on to the device.
    FlushSkipsDevice,
    /// A discard changes only the table in memory.
    DiscardNotLogged,
    /// A log is reset although it holds supersede entries that recovery needs.
    ResetDropsSupersedes,
    /// Recovery believes a snapshot about logs that were opened, or reset, since.
    SnapshotAcrossReset,
    /// Records do not fill physical sectors: one shares its last with the next.
    RecordsShareSectors,
    /// The partial edge sectors of a large write go home with the rest.
    EdgesNotLogged,
    /// After one slot of the root could not be written the volume goes on under the old root.
    RootHalfWritten,
    /// A record's header is in non-volatile RAM before its payload is in the log.
    NvramBeforePayload,
    /// Non-volatile RAM is not persisted before a record is acknowledged.
    NvramNotPersisted,
    /// Both selectors may be torn together.
    NvramTornSelector,
    /// A half is selected before its snapshot is durable.
    NvramSelectorFirst,
    /// Recovery believes stores that are not persisted.
    NvramNotPersistedAtOpen,
    /// A new snapshot leaves the supersede entries behind.
    NvramDropsSupersedes,
    /// A checkpoint forgets the table although the floor is not durable.
    NvramFloorNotKept,
}

/// Those that show on any volume.
pub const BUGS: [Bug; 27] = [
    Bug::AckBeforeRecord,
    Bug::AckPastHole,
    Bug::SupersedeBeforeHome,
    Bug::NoSupersede,
    Bug::SupersedeNotDurable,
    Bug::TrustUnsettledSupersede,
    Bug::DeadBeforeSuccessorDurable,
    Bug::ForgetBeforeFloor,
    Bug::NoBarrierBeforePass,
    Bug::FloorBeforeHomeDurable,
    Bug::CheckpointWithoutLock,
    Bug::SwapFreshSequence,
    Bug::SwapDropsSupersedes,
    Bug::ResetUnderRead,
    Bug::OpenedSetLate,
    Bug::SnapshotWithoutBarrier,
    Bug::NoNewIncarnation,
    Bug::NoFlushAtOpen,
    Bug::RecoveryTakesLast,
    Bug::FlushSkipsBuffer,
    Bug::FlushSkipsDevice,
    Bug::DiscardNotLogged,
    Bug::ResetDropsSupersedes,
    Bug::SnapshotAcrossReset,
    Bug::RecordsShareSectors,
    Bug::EdgesNotLogged,
    Bug::RootHalfWritten,
];

/// Those that show only on a volume with its table in non-volatile RAM.
pub const NVRAM_BUGS: [Bug; 7] = [
    Bug::NvramBeforePayload,
    Bug::NvramNotPersisted,
    Bug::NvramTornSelector,
    Bug::NvramSelectorFirst,
    Bug::NvramNotPersistedAtOpen,
    Bug::NvramDropsSupersedes,
    Bug::NvramFloorNotKept,
];

#[cfg(feature = "plant")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every volume of this thread, or none.
#[cfg(feature = "plant")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(feature = "plant")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "plant"))]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
