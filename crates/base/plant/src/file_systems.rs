//! Bugs of file systems. In the list of all bugs they follow those of [`crate::lenders`].

macro_rules! with_file_systems {
    ($($others:tt)*) => {
        bugs! {
            $($others)*
            /// Bugs of a journal that keeps its blocks instead of writing them home, that its crash
            /// histories show.
            LAZY {
                /// A block that was freed counts as newer in the journal than at home.
                LazyFreedStaysLive,
                /// Copies that have been revoked since are taken for the newest content.
                LazyOpensRevoked,
                /// Blocks of a transaction without a commit block are taken for durable.
                LazyMapAheadOfCommit,
                /// A mount reads the superblock and the descriptors of groups at home.
                LazyMountReadsHome,
                /// The tail moves past a transaction whose blocks did not all go home.
                LazyTailTooFar,
                /// An opened journal is written from its beginning.
                LazyHeadForgotten,
                /// What is arranged is what lies at home, which may be old.
                ArrangeRenewsHome,
                /// The tail moves before what was written anew is durable.
                LazyTailBeforeRenewed,
                /// A block is written anew that a transaction under way has freed.
                LazyRenewsFreed,
                /// An old copy of a block is written anew over a change under way.
                LazyRenewsOld,
            }
            /// Bugs of such a journal that tests of its parts show.
            LAZY_PARTS {
                /// Content that was read from the journal is not looked up again, although it may
                /// have been overwritten meanwhile.
                LazyPlaceNotAsked,
                /// A copy in the journal that begins with zero instead of the magic number is
                /// taken as it is.
                LazyNotUnescaped,
                /// What lies behind a transaction that is not whole is not looked at.
                LazyDamageIsTail,
                /// What a damaged journal lost is not told.
                LazyLossNotTold,
                /// A damaged copy in the journal goes home.
                LazyBadCopyReplayed,
                /// A damaged copy in the journal is read as if it were whole.
                LazyCopyNotCompared,
                /// What an earlier replay left behind damage is replayed over newer blocks.
                LazyOlderReplayed,
                /// A repair of a journal does not note that there are errors.
                LazyRepairNotNoted,
                /// A saved map says that it has a transaction that is still being committed.
                LazySavedAhead,
                /// A block of a saved map is taken though its checksum is wrong.
                LazySavedTorn,
                /// A saved map is believed though somebody else used the log since.
                LazySavedStale,
                /// Blocks of a map are written over what was committed there meanwhile.
                LazyMapOverCommits,
                /// The log of a longer journal is in use before its file is durable.
                LengthenLogEarly,
                /// New nodes of a journal's tree go home together with the inode that names them.
                LengthenNodesLater,
                /// Nodes of a journal's tree are changed where they lie.
                LengthenNodesInPlace,
                /// A mount goes on with a log whose file has grown, before its inode is home.
                LengthenedNotReplayed,
                /// What a longer journal gets keeps what it held.
                LengthenNotZeroed,
                /// The superblock keeps a copy of where the journal lay before it was lengthened.
                LengthenBackupForgotten,
                /// With what went home the copies of the next transaction are forgotten.
                LazyForgetsNewer,
                /// The tail moves to another transaction, and stays at the place of the old one.
                LazyTailStartStays,
                /// A copy goes home as it is in the journal, without the word that was replaced.
                LazyEscapedGoesHome,
                /// Of two copies of a block the older one is found.
                LazyOldCopyWins,
                /// A saved map is opened with copies of transactions that went home since.
                LazySavedKeepsGone,
                /// A saved map says that it has the newest transaction, without its copies.
                LazySavedMissesNewest,
                /// A mount leaves the note that nothing was committed since the last one.
                LazyLeftStays,
                /// What is too old in the journal does not go home in idle time.
                LazyAgeForgotten,
                /// What is arranged in idle time is what was there before a pause.
                ArrangeRenewsSeen,
                /// A scrub does not write a damaged copy anew whose content is in memory.
                LazyScrubLeaves,
                /// A log leaves out the room for fast commits, though its superblock says that
                /// there are none.
                FastCommitsKeepRoom,
                /// A journal with content of files is opened without a replay.
                LazyOpensContent,
                /// A block that was read ahead is served though it was written since.
                AheadKeepsOld,
                /// A block that is written while it is read ahead is kept as it was read.
                AheadUnderWay,
                /// A block that is read ahead while it is being written is kept as it was read.
                AheadOfWrites,
                /// What reads ahead is not told of a commit that changes what the device holds.
                AheadCommitNotTold,
                /// A block that is read ahead while such a commit is under way is kept as it was
                /// read.
                AheadUnderCommit,
            }
            /// Bugs of the file system ext4 that tests of its parts show.
            EXT4_PARTS {
                /// A file that is deleted leaves its block of attributes in use.
                Ext4XattrBlockKept,
                /// The hash of an attribute in a block is wrong.
                Ext4XattrHashWrong,
                /// Setting an access control list leaves the mode as it is.
                Ext4AclLeavesMode,
                /// A block of pointers stays in use when it has no more pointers.
                Ext4TableKept,
                /// Content that is only in the log is read from home.
                Ext4JournalledContentUnread,
                /// A sync of overwritten content does not flush.
                Ext4ContentSyncUnflushed,
                /// Changes of inodes marked as synchronous are not durable at once.
                Ext4SyncIgnored,
                /// Changes of names in synchronous directories are not durable at once.
                Ext4DirSyncIgnored,
                /// Reserved blocks are given to any user.
                Ext4ReservedForAll,
                /// A search for a long run of blocks looks at all groups.
                Ext4SearchEverywhere,
                /// Names with equal hashes are looked for in one node of an index only.
                Ext4EqualHashesCut,
                /// A page that cannot be written is tried again for ever.
                Ext4RetriedForEver,
                /// Small files whose common request failed count as written.
                Ext4TogetherFailedClean,
                /// A small file that somebody waits for stays with those that are written together.
                Ext4TogetherNotLetGo,
                /// When the oldest metadata is due to go home, what was changed just now goes too.
                Ext4TimerTakesAll,
                /// Freed blocks are used again while a checkpoint still writes their old content.
                Ext4QuietNotAwaited,
                /// A sync with nothing to commit does not wait for a commit under way.
                Ext4CommittingNotAwaited,
                /// An index does not say that names with equal hashes continue in the next block.
                Ext4HashEndsWithBlock,
            }
            /// Bugs that show in a comparison with the same calls on the kernel's ext4.
            EXT4_CALLS {
                /// An allocation does not change the times of the file.
                Ext4AllocationTimeless,
                /// The set-group-id bit survives writes by other users.
                Ext4SetGidKept,
                /// Removing an attribute that is not there fails with another error.
                Ext4XattrWrongError,
            }
            /// Bugs of lists of directories that change while they are read.
            EXT4_LISTS {
                /// Names of an indexed directory are listed in the order of its blocks.
                Ext4ListedByPlace,
                /// Of names with equal hashes one is listed.
                Ext4ListDropsAlike,
                /// Names with equal hashes that go on in the next block are not waited for.
                Ext4ListCutsHash,
            }
            /// Bugs of taking file systems over and giving them back.
            MLFS {
                /// The pointer says that the file system is adopted before the log file is durable.
                MlfsPointerEarly,
                /// The extents of the log file are marked as written.
                MlfsLogWritten,
                /// The file system is used before the copies of the superblock have the bit.
                MlfsBackupsLate,
                /// An opening does not complete missing bits.
                MlfsBitsNotCompleted,
                /// Marks are not durable before the writes that follow them.
                MlfsMarksNotFlushed,
                /// The bit is cleared before the content of the logs is durable at home.
                MlfsBitClearedEarly,
                /// The first superblock loses the bit before its copies do.
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
                /// The changed sectors of a block are found by comparison with the last handle's
                /// content, not the first's.
                NearBeforeOfLastHandle,
                /// Content is logged, but the blocks go on reading as zeroes.
                NearUnwrittenNotMapped,
                /// A drain leaves metadata in the logs.
                NearDrainForgetsMetadata,
                /// A drain leaves content in the logs.
                NearDrainForgetsContent,
            }
            /// Bugs that show only while the device fails requests.
            NEAR_TROUBLE {
                /// A sync is answered as if its record had been written, although it was not.
                NearFailureForgotten,
                /// Pages that the device failed to write home count as written.
                Ext4FailedPagesClean,
                /// Removing a name fails if the nameless file cannot be freed.
                Ext4EndFailsRemoval,
            }
            /// Bugs of repairing logs near the head; tests of its cases show them.
            MLFS_REPAIR {
                /// A repair gives up versions before the superblock says so.
                MlfsRepairNotNoted,
            }
            /// Bugs of short logs and of settings, which show after long use.
            SHORT_LOGS {
                /// Space for the largest record is kept free in the only log as well.
                LastLogLeavesRecordOut,
                /// A transaction that grew under another setting is refused.
                NearLongerBatchRefused,
            }
            /// A bug of refusals: the marks are completed before all checks have passed.
            MLFS_UNCHANGED {
                /// A mount completes the marks before it is sure to go on.
                MlfsMarksBeforeChecks,
            }
            /// Bugs of what the kernel caches of a mounted file system.
            KERNEL_KEEPS {
                /// The kernel is not told of blocks that a file gets by write-back.
                MlfsBlocksUntold,
                /// No bug: a new name fails after it was made, as if a sync had failed.
                MlfsCreateFails,
                /// The kernel is not told that a name may exist whose creation failed.
                MlfsMissingStays,
                /// The kernel goes on with a listing that it began before a name was added.
                MlfsListStale,
                /// The kernel is not told that content is lost which the disk refuses.
                MlfsLossUntold,
            }
            /// Bugs of requests and answers through the ring (FUSE over io_uring).
            FUSE_RING {
                /// The kernel is told one byte less than an answer has.
                RingAnswerCutShort,
                /// An answer has the number of another request.
                RingAnswerOfAnother,
                /// What the kernel still sends through the device is not read.
                RingDeviceUnread,
                /// No bug: the entries are so small that the kernel refuses them.
                RingEntriesTooSmall,
            }
            /// Bugs of the account of a mount's memory.
            MEMORY {
                /// No request waits for memory.
                MemoryUnbounded,
                /// Answered requests still count as under way.
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
                /// Content goes home while an open transaction has older content of the block.
                NearHomeUnderLog,
                /// Content in the cache hides newer content that went home.
                NearCacheOverHome,
                /// Content goes home while a transaction under way has older content of the block.
                NearHomeUnderCommit,
                /// A freed block counts as logged only if its last sector is.
                NearPartNotSuperseded,
                /// A freed run is superseded only if its first block is logged.
                NearSupersedeByFirst,
                /// Blocks logged by a transaction under way are not superseded when they are freed.
                NearUnderWayNotSuperseded,
            }
            /// Bugs of a log near the head as the place of transactions that its own tests show.
            NEAR_SINK {
                /// Room for a transaction does not include entries for the blocks that it frees.
                NearRoomWithoutFreed,
            }
            /// Bugs of small files that are written together where a log takes short content.
            NEAR_TOGETHER {
                /// Small files that need no place go home with others.
                NearTogetherTakesKept,
                /// Content that replaces logged content goes home with others, and the older
                /// content stays in memory.
                NearTogetherOverLogged,
            }
            /// Bugs of files that need durability but no place, that crash histories show.
            DURABLE_FILES {
                /// A sync waits for the first record of a write, and not for the last.
                DurableFirstRecordAnswers,
                /// The first record maps all blocks of a write, and later ones have the content.
                DurableMapsAhead,
            }
            /// Bugs of what is read ahead from the logs, that its own tests show.
            READ_AHEAD {
                /// What was read ahead is served although the block has a newer version.
                AheadOldVersion,
                /// A read does not wait for what is being read ahead, and reads it again.
                AheadReadTwice,
                /// The memory of what nobody has asked for is never given back.
                AheadNeverAbandoned,
            }
            /// Bugs of what is read ahead from the logs, that tests of its parts show.
            READ_AHEAD_PARTS {
                /// A part of a version that arrives counts as all of it.
                AheadShorterPiece,
            }
            /// Bugs of the budget of what is kept, that tests of its cases show.
            DURABLE_BUDGET {
                /// Beyond the budget, kept content of those who have less than their share is
                /// neither logged anew nor written home, and the floor passes it.
                OthersNotRenewed,
                /// Content and metadata may each have the whole budget.
                BudgetTwice,
            }
            /// Bugs of files that need durability but no place, that other tests show.
            DURABLE_FILES_SIDE {
                /// Content of these files is not kept.
                DurableClassLost,
                /// Content of other files is kept as well.
                DurableClassForAll,
                /// Versions are kept before the superblock says so.
                DurableBeforeSuperblock,
                /// Clearing the property leaves versions of the file in the logs.
                DurableClearedStays,
                /// Versions of a transaction under way are kept though the property is cleared.
                DurableClearedUnderLog,
                /// Freed blocks are not superseded where the logs keep their versions.
                DurableFreedNotSuperseded,
                /// An open file does not notice when the property changes.
                DurableRemembered,
                /// A directory does not hand the property down.
                DurableNotHandedDown,
                /// A file that is renamed to match a pattern does not get the property.
                DurableRenameNotJudged,
                /// Directories are known by names that they had before.
                DurableOldNames,
                /// Pages that begin with a zero are treated as all zeroes.
                DurableZeroesByFirst,
                /// Content written over kept content, without the property, is not kept.
                DurableOverwritePlain,
            }
            /// Bugs of metadata that stays in logs near the head, that crash histories show.
            NEAR_LAZY {
                /// The floor of kept versions rises over metadata that stays in the logs.
                MetadataFloorOverKept,
                /// The way home leaves the newest of the metadata, and raises the floor over it.
                MetadataLeftBehind,
            }
            /// Bugs of metadata that stays in logs near the head, that tests of the store show.
            NEAR_LAZY_STORE {
                /// A freed block does not say that metadata kept in it is dead, once it is at home.
                MetadataFreedNotBuried,
                /// Metadata that stays in its log loses its class when it moves.
                MetadataClassLostByMove,
                /// What lay around a version in its log is read though it is newer elsewhere.
                AroundNotCompared,
            }
            /// Bugs of metadata that stays in logs near the head, that other tests show.
            NEAR_LAZY_SIDE {
                /// Metadata is kept before the superblock says so.
                MetadataKeptUnmarked,
                /// A mount in another mode leaves kept metadata in the logs.
                MetadataStaysInOtherMode,
            }
            /// Bugs of metadata that leads to kept content, that an exit without logs shows.
            DURABLE_HOMES {
                /// Metadata at home leads to blocks whose content is only in the logs.
                DurableHomeFormWritten,
                /// Metadata that leads to kept content counts as other metadata.
                DurableLeadsUnmarked,
                /// Leaves of extent trees that lead to kept content are logged in part.
                DurableLeafInPart,
                /// Metadata goes home in the same sweep as the content that it leads to.
                LeadingWithContent,
            }
        }
    };
}
