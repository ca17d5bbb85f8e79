//! All bugs, by the part of the system that they break.

with_arrays! {
    /// Bugs of the store that its own tests show: the volume does not use the broken parts.
    STORE {
        /// The entries of a batch are put into records one by one.
        BatchSplit,
        /// A stream goes on in another log while some of its records are under way.
        StreamSwitchesLog,
        /// The copy of a version that was displaced during its move does not keep its log.
        OvertakenCopyNotKept,
    }
    /// Bugs of Everest's store and its client that their crash histories show.
    EVEREST {
        /// The floor rises over versions that are displaced only by entries still under way.
        FloorWithoutBarrier,
        /// A reclaimed version is deleted from the store before it is durable on its volume.
        DeleteBeforeBaseDurable,
        /// A deletion takes away newer versions too.
        DeleteIgnoresVersion,
        /// A client that is opened again counts its versions from the start.
        VersionsCountedAnew,
        /// A store is opened with sequences that its last opening used.
        StoreReusesSequences,
    }
    /// Bugs of versions kept in the logs, that crash histories show.
    KEPT {
        /// An entry that displaces a kept version does not say that older kept ones are dead.
        KeptNotBuried,
        /// A snapshot forgets which supersede entries are over kept versions.
        SnapshotWithoutMarks,
        /// A kept version loses its class when it moves.
        ClassLostByMove,
        /// The floor of kept versions rises over them.
        KeptFloorOverKept,
        /// The floor of kept versions rises before the versions that displaced them are durable.
        KeptFloorWithoutBarrier,
        /// A log that is emptied drops its entries that bury kept versions.
        MoveDropsBurials,
        /// A log begins a new epoch over kept versions as if they were below the floor.
        KeptEpochNotBegun,
        /// A drain leaves kept versions in the logs.
        DrainLeavesKept,
        /// Recovery ignores all versions below the floor, even those that displace older kept ones.
        DeadBuryNothing,
    }
    /// Bugs of the scheduler, that its own tests show.
    SCHEDULER {
        /// No other request goes while there are records.
        RecordsStarveOthers,
        /// A run is held back for as long as its requests wait.
        RunHeldBackForEver,
        /// A run is held back for frequent syncs, too.
        RunHeldBackForFrequent,
        /// A run is held back only once it is contention.
        RunsPass,
        /// A stream never has a turn beside a database.
        DatabaseStarvesStreams,
        /// Records without a pause leave a stream no time.
        RecordsStarveStreams,
        /// A request goes before an earlier one that touches the same sectors.
        OverlapsOvertaken,
        /// The next piece of a request begins where the last one did.
        PieceSentTwice,
        /// After a record a stream over an array goes on with a single piece, on one drive.
        ArrayResumesOnOneDrive,
        /// Pieces of writes to an array with parity end within stripes.
        PieceEndsWithinStripe,
    }
    /// Bugs of the volume that its crash histories show.
    VOLUME {
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
        /// Recovery believes records that are only in the drive's cache.
        NoFlushAtOpen,
        /// Recovery takes the version it reads last, not the newest.
        RecoveryTakesLast,
        /// A small write that continues a run goes home although an older version is logged.
        RunOverOlderVersion,
        /// A small write goes home over a newer version of a part of it.
        RunOverNewerVersion,
        /// A flush does not wait for small writes that are on their way home.
        RunNotAwaited,
        /// Small writes that could not be written home count as written.
        FailedRunForgotten,
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
        /// A large write without FUA leaves no mark that the device must be flushed.
        DirtyHomeNotSet,
        /// What is read from a log is not compared with its checksums.
        LogReadNotVerified,
        /// A snapshot does not learn of logs that take records while it is written.
        SnapshotMissesLog,
        /// The source of a move counts as free before the copies are durable.
        SwapFreesSourceEarly,
        /// A flush is answered by an earlier one that was under way already.
        FlushAnsweredByEarlier,
        /// Supersede entries go into records before the device was flushed.
        DeferredBeforeFlush,
        /// After a flush that failed the volume goes on taking writes.
        FailedFlushTakesWrites,
        /// Entries of a record that could not be written are answered as if it had been.
        FailedRecordSettled,
        /// When the device grows, a new log may begin in home space.
        GrowTakesHome,
        /// A read that begins within a buffered write gets the write's start.
        BufferedReadFromStart,
        /// Zeroes with FUA are acknowledged before they are durable.
        ZeroesNotDurable,
        /// Discards with FUA are acknowledged before they are durable.
        DiscardNotDurable,
        /// A write in several parts is answered when the first of them is done.
        PartsAnsweredEarly,
        /// Records follow before the begin of their epoch is durable.
        EpochNotBegun,
        /// A checkpoint renews long zeroes without the lock on their home, over newer writes.
        RenewOverNewer,
        /// A checkpoint marks blocks as lost after a read error that would have passed.
        TransientIsLoss,
        /// A pass with a limited rate does not hurry for writes that wait for room.
        RateNotHurried,
        /// Versions that could not be written home are dropped from the logs all the same.
        KeptDropped,
        /// The rest of a band is written home without the lock on it.
        BandWithoutLock,
        /// A checkpoint forgets that blocks are lost.
        LostForgotten,
        /// A drain zeroes parts of physical sectors without their neighbours.
        ZeroesTornSectors,
        /// A drain assumes that homes of zeroed blocks read as zeroes already.
        ZeroesTakenForGranted,
        /// The floor rises over versions that could not be read.
        FloorOverUnread,
        /// Changed settings are written to one copy of the superblock only.
        SettingsInOneCopy,
    }
    /// Bugs of format, opening, recovery, growing and repair, and of the scan of a log.
    RECOVERY {
        /// The end of a drain raises the floor over versions that are not durable yet.
        DrainWithoutBarrier,
        /// The first copy of the superblock is written before the last.
        FirstSuperblockFirst,
        /// A growing volume writes its superblock before its roots.
        SuperblockBeforeRoots,
        /// A growing volume leaves its old root and superblock where data will lie.
        OldEndExposed,
        /// An opening does not finish a change of the superblock that a crash interrupted.
        ChangeLeftUnfinished,
        /// A volume follows its array to another shape although its logs hold live versions.
        GeometryOfFullLogs,
        /// A copy of a structure counts as damaged even if it merely could not be read.
        UnreadCopyIsDamaged,
        /// A read that fails for a moment is not tried again.
        ReadsNotTriedAgain,
        /// A root that is older than records in the logs is believed.
        StaleRootBelieved,
        /// An opening forgets which logs are out of use.
        RetiredForgotten,
        /// The logs of a drained volume are scanned, and their damage counts.
        DrainedLogsScanned,
        /// A snapshot that cannot be read makes the volume unopenable.
        SnapshotNeeded,
        /// A damaged copy of a version is preferred to a whole one.
        DamagedCopyPreferred,
        /// A set of logs forgets all beyond the 32,768th.
        LogSetTruncated,
        /// Every record says that nothing of its log was durable.
        NoDurableTail,
        /// A record counts whatever it says of its predecessor.
        PredecessorIgnored,
        /// A log ends where it cannot be read.
        UnreadableIsTheEnd,
        /// A record counts as never written if a part of its payload cannot be read.
        UnreadablePayloadIsTorn,
        /// A scan takes any read error for a bad medium.
        AnyErrorIsTheMedium,
        /// A look-ahead begins again at each place.
        LookAheadForgets,
        /// Sequences go on beyond those that were set aside.
        SequencesNotSetAside,
    }
    /// Bugs of checkpoints, and of the room that they make. A test of one case shows each.
    CHECKPOINT {
        /// A checkpoint that fails gives its locks back while some of its writes are under way.
        PassLeavesWrites,
        /// Versions that a checkpoint renews take a record's room each, however many wait.
        RenewedNotGathered,
        /// A large write that fails keeps the log space that was set aside for it.
        FailedWriteKeepsRoom,
    }
    /// Bugs that show only on a volume with its table in non-volatile RAM.
    NVRAM {
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
    /// Bugs between a device's requests and the kernel.
    STORAGE {
        /// A durable write asks the ring for an ordinary one.
        RingIgnoresFua,
        /// A durable write asks the thread pool for an ordinary one.
        PoolIgnoresFua,
        /// A flush in the ring is answered at once.
        RingSkipsSync,
        /// A flush in the thread pool is answered at once.
        PoolSkipsSync,
        /// A durable write to a file in memory is an ordinary one.
        MemoryIgnoresFua,
        /// A flush of a file in memory is answered at once.
        MemorySkipsSync,
        /// Memory that is mapped from a file counts as persisted without being written.
        PersistSkipsSync,
        /// Mapped memory may count as persisted after a failure.
        PersistFailureForgotten,
        /// The flush after durable zeroes is left out.
        ZeroesNotFlushed,
        /// Of long zeroes only the first piece is written.
        ZeroesCutShort,
        /// The failure of a flush is not passed on.
        FlushFailureIgnored,
        /// A flush after one that failed may succeed.
        StorageFlushFailureForgotten,
        /// A flush may succeed after a durable write whose flush failed.
        DurableWriteFailureForgotten,
        /// Cached data counts as durable because the disk has no volatile cache.
        CachedTakenForDurable,
        /// A file counts as durable without a flush.
        FileTakenForDurable,
        /// A virtual disk counts as durable without a flush when it says that it has no cache.
        VirtualDiskTakenForDurable,
        /// A disk whose write cache is off counts as durable although the cache can be turned on.
        CacheTakenForFixed,
        /// A disk is opened for writing although the kernel drops its flushes.
        DroppedFlushesAccepted,
        /// The device behind a loop device is not locked with it.
        BackingNotLocked,
        /// A disk or file is opened although a loop device shows its bytes as well.
        LoopsBesideAccepted,
        /// The lock of a killed process counts like that of a running one.
        KilledNotWaitedFor,
        /// The loop device over an export is used although the kernel drops its flushes.
        ServedLoopDropsFlushes,
        /// A write of which the kernel took only a part counts as whole.
        ShortWriteTakenForWhole,
        /// A part of a logical sector is written with zeroes around it.
        PartialWithoutNeighbours,
        /// A part of a logical sector is written while others write to the same one.
        PartialWithoutGate,
        /// A discard gives up whole logical sectors of which only a part was named.
        DiscardRoundedOutwards,
        /// A failure that may pass counts as a bad medium.
        TransientTakenForMedium,
    }
    /// Bugs of a volume on an array that its crash histories show.
    ARRAY {
        /// A flush of the array leaves one member out.
        FlushSkipsMember,
        /// A flush of the array is answered before its members have ended.
        ArrayFlushAnsweredEarly,
        /// A request to several members is answered when the first has ended.
        FirstMemberAnswers,
        /// Of a durable write that is dealt out only the first part is made durable.
        PartsNotDurable,
        /// A write to a column repeats the same sectors in each of its chunks.
        ChunksRepeatContent,
        /// A log is one chunk behind its place on the column.
        LogBehindItsPlace,
        /// The superblock does not say that each region holds a log for each column.
        GeometryNotKept,
        /// A volume is opened with the geometry that the array has now.
        GeometryOfToday,
    }
    /// Bugs between the clients of a server and its volume.
    SERVE {
        /// A flush over NBD is answered without flushing.
        NbdFlushSkipped,
        /// A flush over NBD covers only the writes of its own connection.
        NbdFlushOwnConnection,
        /// FUA of a write of whole sectors over NBD is ignored.
        NbdFuaIgnored,
        /// FUA of a write of parts of sectors over NBD is ignored.
        NbdPartsFuaIgnored,
        /// FUA of zeroing over NBD is ignored.
        NbdZeroFuaIgnored,
        /// FUA of a trim over NBD is ignored.
        NbdTrimFuaIgnored,
        /// A trim over NBD also gives up the sectors that it covers in part.
        NbdTrimRoundedOutwards,
        /// Parts of sectors are read, changed and written while others change the same sectors.
        NbdPartsWithoutGate,
        /// Whole sectors are changed while parts of them are read, changed and written.
        NbdWholeWithoutGate,
        /// A write over NBD is answered before the volume has it.
        NbdAnsweredEarly,
        /// A failed request over NBD is answered as a success.
        NbdFailureHidden,
        /// A disconnecting NBD client loses the requests that it sent before.
        NbdDisconnectDropsRequests,
        /// An answer that an NBD client has not fetched yet does not count towards its limit.
        NbdUnsentAnswersUncounted,
        /// Requests that a vanished NBD client left behind are carried out without a limit.
        NbdGoneClientUnlimited,
        /// Any number of NBD clients are let in.
        NbdConnectionsUnlimited,
        /// `fsync` of the exported file is answered without flushing.
        FuseFsyncSkipped,
        /// Writes with O_DSYNC or O_SYNC to the exported file are treated like others.
        FuseDsyncIgnored,
        /// Holes punched with O_DSYNC or O_SYNC into the exported file are treated like others.
        FuseDsyncPunchIgnored,
        /// A hole punched into the exported file also zeroes sectors that it covers in part.
        FusePunchRoundedOutwards,
        /// A server that stops makes nothing durable.
        StopWithoutClose,
        /// A server that stops does not wait for the requests under way.
        StopDropsRequests,
        /// After a panic the process of a server lives on.
        PanicOutlived,
    }
    /// Bugs between the kernel's ublk driver and the volume.
    UBLK {
        /// FUA of a write is ignored.
        UblkFuaIgnored,
        /// FUA of zeroing is ignored.
        UblkZeroFuaIgnored,
        /// A write-through device acknowledges writes that are not durable.
        UblkThroughNotDurable,
        /// A discard of a write-through device is acknowledged before it is durable.
        UblkDiscardNotDurable,
        /// A flush is taken for a read.
        UblkFlushIsRead,
    }
    /// Faults rather than bugs: events that tests provoke.
    FAULTS {
        /// The thread of the engine panics when it is asked to take a snapshot.
        EnginePanics,
        /// A thread of the front end panics when it is asked to zero a range.
        FrontEndPanics,
    }
}
