//! Bugs of file systems, of chains of drives and of Everest's clients, which follow those of
//! [`crate::bugs`] in the list of all.

macro_rules! with_file_systems {
    ($($others:tt)*) => {
        bugs! {
            $($others)*
            /// Bugs of a chain of drives that its crash histories show.
            GECKO {
                /// A zone is not reset before it is written again.
                ZoneNotReset,
                /// The zone that was written last is written on after a crash.
                ZoneGoesOnAfterCrash,
                /// Changes of clients keep no order over a crash.
                ChangesInNoOrder,
                /// A FUA write is answered before it is durable.
                ChainAnswersEarly,
                /// A discard is answered and does nothing.
                TrimForgotten,
                /// A chain is opened under sequences that its last opening used.
                ChainReusesSequences,
                /// A drive with an older state than the others is taken for a member.
                StaleDriveBelieved,
            }
            /// Bugs of a client of several of Everest's stores, and of stores towards clients, that
            /// the crash histories of many nodes show.
            LENDERS {
                /// A store is noted on the base after the first write there.
                ListedAfterWrite,
                /// An opening goes on without a store that may hold data.
                OpenedWithoutStore,
                /// Stores are asked before the incarnation is durable on the base.
                IncarnationNotDurable,
                /// A store does what was asked for in an earlier session.
                OldSessionServed,
                /// A store does a call that arrives twice a second time.
                CallDoneTwice,
                /// Closing a client does not wait for its change of the header: that takes back
                /// the next opening.
                ClosedBeforeTasksEnd,
                /// A write that timed out at a store is forgotten.
                TimedOutForgotten,
                /// A write over an off-loaded range goes home.
                OverwriteGoesHome,
                /// Only the first sector of a write decides whether its range is off-loaded.
                OverlapSeenAtStart,
                /// The highest version is deleted before the older ones.
                HighestDeletedFirst,
                /// A write counts with one copy less than it should have.
                OneCopyLess,
                /// A store's versions are noted as void before the newer one is home.
                VoidBeforeHome,
                /// An opening does not believe that versions are void.
                VoidForgotten,
                /// Reclaiming takes no lock.
                ReclaimWithoutLock,
                /// A flush is not passed on to the base.
                BaseFlushSkipped,
                /// Versions count as home before the base was flushed.
                CleanBeforeFlush,
                /// A store is taken off the list while it holds data.
                UnlistedTooEarly,
                /// Writes over off-loaded ranges that go home are not durable before the stores
                /// forget.
                ThroughNotDurable,
            }
            /// Bugs of the same that tests of one case each show.
            LENDERS_CASES {
                /// A store believes every claim of an older incarnation.
                OlderClaimAccepted,
                /// A store does not compare tokens.
                TokenIgnored,
                /// A store takes an older version over a newer one.
                OlderVersionTaken,
                /// A store that returns with less than it acknowledged is believed.
                RolledBackBelieved,
                /// Reclaiming ends at an error that passes.
                ReclaimEndsAtError,
                /// A list of stores is written to one copy of the header only.
                HeaderInOneCopy,
            }
            /// Bugs of connections between clients and stores.
            LINKS {
                /// A frame whose checksum is wrong is taken.
                FrameDamageTaken,
                /// Calls are never answered whose connection ended.
                LostCallsUnanswered,
                /// Calls whose connection ended are answered as done.
                LostCallsDone,
                /// A connection stays whose other side is silent.
                SilenceUnnoticed,
                /// Another store that answers at the address is taken for the one that was there.
                OtherStoreTaken,
                /// A store's server answers calls before they are done.
                LentAnsweredEarly,
            }
            /// Bugs of the file system ext4 that its crash histories show.
            EXT4 {
                /// A commit block is written before the blocks that it commits.
                Ext4CommitBeforeBody,
                /// A commit block is written before the device was flushed.
                Ext4CommitWithoutFlush,
                /// Data is written after the transaction that refers to it.
                Ext4DataAfterMetadata,
                /// Blocks that the log has copies of are freed without being revoked.
                Ext4RevokeForgotten,
                /// Freed blocks are used again before that they are free is durable.
                Ext4ReuseBeforeDurable,
                /// The log's room is given back before what was in it is durable at home.
                Ext4TailBeforeHome,
                /// An inode without a name is not in the list of orphans.
                Ext4OrphanAfterFree,
                /// A bitmap's checksum is wrong.
                Ext4BitmapChecksumWrong,
                /// Blocks that are freed count as one more than they are.
                Ext4FreeCountOff,
                /// A block of names that is split loses one of them.
                Ext4SplitLosesName,
                /// A hole within an extent takes away all that is behind it.
                Ext4PieceLost,
                /// A new name is in another update than the count of names.
                Ext4LinkCountLater,
                /// A sync does not wait for the commit.
                Ext4SyncNotAwaited,
                /// A replay brings back blocks that were revoked.
                Ext4ReplayIgnoresRevokes,
                /// The log is reset before what was replayed is durable at home.
                Ext4ReplayNotFlushed,
                /// A mount does not end the orphans that it finds.
                Ext4OrphansNotEnded,
                /// A file that is born without a name is no orphan.
                Ext4UnnamedNoOrphan,
                /// A file that replaces another may be found empty.
                Ext4RenameLeavesData,
                /// A file that was cut to nothing, written and closed may be found empty.
                Ext4CloseLeavesData,
            }
            /// Bugs of a journal that keeps what it holds, which its crash histories show.
            LAZY {
                /// A block that was freed counts as newer in the journal than at home.
                LazyFreedStaysLive,
                /// Copies that were revoked since are taken for the newest content.
                LazyOpensRevoked,
                /// Blocks of a transaction without a commit block are taken for durable.
                LazyMapAheadOfCommit,
                /// A mount reads the superblock and the descriptors of groups at home.
                LazyMountReadsHome,
                /// The tail moves past a transaction whose blocks did not all go home.
                LazyTailTooFar,
                /// An opened journal is written from its beginning.
                LazyHeadForgotten,
            }
            /// Bugs of such a journal that tests of its parts show.
            LAZY_PARTS {
                /// What was read of the journal is not asked for again, though it may have been
                /// written over.
                LazyPlaceNotAsked,
                /// A copy in the journal that begins with zero instead of the magic number is
                /// taken as it is.
                LazyNotUnescaped,
                /// A journal with content of files is opened without a replay.
                LazyOpensContent,
                /// A block that was read ahead is served though it was written since.
                AheadKeepsOld,
                /// A block that is written while it is read ahead is kept as it was read.
                AheadUnderWay,
                /// A block that is read ahead while it is being written is kept as it was read.
                AheadOfWrites,
            }
            /// Bugs of the file system ext4 that tests of its parts show.
            EXT4_PARTS {
                /// A file that ends leaves its block of attributes in use.
                Ext4XattrBlockKept,
                /// The hash of an attribute in a block is wrong.
                Ext4XattrHashWrong,
                /// A list of access that is set leaves the mode as it is.
                Ext4AclLeavesMode,
                /// A table of pointers without any stays in use.
                Ext4TableKept,
                /// Content in the log that is not at home is read from home.
                Ext4JournalledContentUnread,
                /// A sync of content that was overwritten does not flush.
                Ext4ContentSyncUnflushed,
                /// Changes of inodes that are to be durable at once are not.
                Ext4SyncIgnored,
                /// Changes of names that are to be durable at once are not.
                Ext4DirSyncIgnored,
                /// Reserved blocks are given to anybody.
                Ext4ReservedForAll,
                /// A search for a long run of blocks looks at all groups.
                Ext4SearchEverywhere,
                /// Names of one hash are looked for in one node of an index.
                Ext4EqualHashesCut,
                /// A page that cannot be written is tried again for ever.
                Ext4RetriedForEver,
                /// Freed blocks are used again while a checkpoint writes what they held.
                Ext4QuietNotAwaited,
                /// A sync with nothing to commit does not wait for what is being committed.
                Ext4CommittingNotAwaited,
                /// An index does not say that names of one hash go on in the next block.
                Ext4HashEndsWithBlock,
            }
            /// Bugs that the same calls on the kernel's ext4 show.
            EXT4_CALLS {
                /// An allocation leaves the times of the file as they are.
                Ext4AllocationTimeless,
                /// The set-group-id bit outlives what strangers write.
                Ext4SetGidKept,
                /// Taking away an attribute that is not there answers with another error.
                Ext4XattrWrongError,
            }
            /// Bugs of taking file systems over and giving them back.
            MLFS {
                /// The pointer says that the file system is adopted before the log file is durable.
                MlfsPointerEarly,
                /// The extents of the log file say that they are written.
                MlfsLogWritten,
                /// The file system is used before the copies of the superblock have the bit.
                MlfsBackupsLate,
                /// An opening leaves missing bits as they are.
                MlfsBitsNotCompleted,
                /// Marks are not durable before what follows them.
                MlfsMarksNotFlushed,
                /// The bit is cleared before what the logs held is durable at home.
                MlfsBitClearedEarly,
                /// The copies of the superblock lose the bit after the first.
                MlfsBackupsClearedLast,
            }
            /// Bugs of the file system over a log near the head that its crash histories show.
            NEAR {
                /// Data that went home is not made durable before the record that refers to it.
                NearDataNotFlushed,
                /// A transaction is several records.
                NearTransactionSplit,
                /// Of a changed block the last changed sector is not logged.
                NearSectorMissed,
                /// What changed in a block is told from what the last handle found, not the first.
                NearBeforeOfLastHandle,
                /// Content is logged, and the blocks go on reading as zeroes.
                NearUnwrittenNotMapped,
                /// A drain leaves metadata in the logs.
                NearDrainForgetsMetadata,
                /// A drain leaves content in the logs.
                NearDrainForgetsContent,
            }
            /// Bugs that show only while the device fails requests.
            NEAR_TROUBLE {
                /// A sync is answered as if its record had been written.
                NearFailureForgotten,
                /// Pages that the device failed to write home count as written.
                Ext4FailedPagesClean,
                /// The removal of a name is refused when the file that lost it cannot end.
                Ext4EndFailsRemoval,
            }
            /// Bugs of repairing logs near the head that tests of its cases show.
            MLFS_REPAIR {
                /// What a repair gives up is given up before the superblock says so.
                MlfsRepairNotNoted,
            }
            /// Bugs of short logs, and of settings, which show after long use.
            SHORT_LOGS {
                /// Room for the largest record is left out of the only log as well.
                LastLogLeavesRecordOut,
                /// A transaction that grew under another setting is refused.
                NearLongerBatchRefused,
            }
            /// A bug of refusals: the marks are completed before all is known.
            MLFS_UNCHANGED {
                /// A mount completes the marks before it knows that it goes on.
                MlfsMarksBeforeChecks,
            }
            /// Bugs of what the kernel keeps of a mounted file system.
            KERNEL_KEEPS {
                /// Blocks that a file gets when it is written back are not told.
                MlfsBlocksUntold,
                /// No bug: a new name fails after it was made, as if a sync had failed.
                MlfsCreateFails,
                /// Nobody tells that a name may be there whose making failed.
                MlfsMissingStays,
                /// The kernel goes on with a list that it began before a name was added.
                MlfsListStale,
            }
            /// Bugs of the account of a mount's memory.
            MEMORY {
                /// Nobody waits for memory.
                MemoryUnbounded,
                /// Requests that were answered still count as under way.
                MemoryPermitLeaks,
                /// Writes take pages that they do not count.
                MemoryPagesUncounted,
                /// Blocks that transactions create stay in the cache for ever.
                MemoryCacheGrows,
                /// The kernel is never asked to forget inodes.
                MemoryKernelRemembers,
            }
            /// Bugs of the file system over a log near the head that tests of its parts show.
            NEAR_PARTS {
                /// A freed block is not superseded.
                NearSupersedeForgotten,
                /// Content goes home while a transaction to come has older content of the block.
                NearHomeUnderLog,
                /// Content in the cache hides what went home.
                NearCacheOverHome,
                /// Content goes home while a transaction under way has older content of the block.
                NearHomeUnderCommit,
                /// A freed block counts as logged only if its last sector is.
                NearPartNotSuperseded,
                /// A freed run is superseded only if its first block is logged.
                NearSupersedeByFirst,
                /// What a transaction under way logs is not superseded when it is freed.
                NearUnderWayNotSuperseded,
            }
            /// Bugs of a log near the head as the place of transactions that its own tests show.
            NEAR_SINK {
                /// Room for a transaction does not count the entries for what it frees.
                NearRoomWithoutFreed,
            }
            /// Bugs of files that need durability and no place, that crash histories show.
            DURABLE_FILES {
                /// A sync waits for the first record of what was written, and not for the last.
                DurableFirstRecordAnswers,
                /// The first record maps all blocks of a write, and later ones have the content.
                DurableMapsAhead,
            }
            /// Bugs of files that need durability and no place, that other tests show.
            DURABLE_FILES_SIDE {
                /// Content of these files is not kept.
                DurableClassLost,
                /// Content of other files is kept as well.
                DurableClassForAll,
                /// Versions are kept before the superblock says so.
                DurableBeforeSuperblock,
                /// What the logs hold of a file stays there when the property is cleared.
                DurableClearedStays,
                /// What a transaction under way holds is kept though the property is cleared.
                DurableClearedUnderLog,
                /// Blocks that are freed are not superseded where what the logs have is kept.
                DurableFreedNotSuperseded,
                /// A file goes on as it was when the property changes.
                DurableRemembered,
                /// A directory hands nothing down.
                DurableNotHandedDown,
                /// A file that is renamed into a pattern is not judged.
                DurableRenameNotJudged,
                /// Names of directories are those that they once had.
                DurableOldNames,
                /// Pages that begin with a zero are taken for zeroes.
                DurableZeroesByFirst,
            }
        }
    };
}
