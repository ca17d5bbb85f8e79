//! Bugs of chains of drives and of the file system ext4. In the list of all bugs they follow those
//! of [`crate::arrays`].

macro_rules! with_systems {
    ($($others:tt)*) => {
        with_lenders! {
            $($others)*
            /// Bugs of a chain of drives that its crash histories show.
            GECKO {
                /// A zone is not reset before it is written again.
                ZoneNotReset,
                /// After a crash the zone that was written last is written on.
                ZoneGoesOnAfterCrash,
                /// A crash does not keep the order of the clients' changes.
                ChangesInNoOrder,
                /// A FUA write is answered before it is durable.
                ChainAnswersEarly,
                /// A discard is answered and does nothing.
                TrimForgotten,
                /// A chain is opened with sequences that its last opening used.
                ChainReusesSequences,
                /// The record that begins an epoch is written as long as the longest physical
                /// sector, also on a drive with shorter ones.
                BeginTorn,
                /// A drive with an older state than the others counts as a member.
                StaleDriveBelieved,
                /// All segments under cleaning use the room that is spared for cleaning.
                SparedRoomShared,
                /// A segment that was emptied while it is cleaned stays under cleaning, and takes
                /// records.
                EmptiedSegmentTakesRecords,
            }
            /// Bugs of links that are added to a chain in use, and removed from it, that its crash
            /// histories show.
            CHAIN_LINKS {
                /// A link leaves before what it held is durable elsewhere.
                LinkForgottenEarly,
                /// The root does not move to links that stay.
                RootLeavesWithLink,
                /// An opening believes the label that names most links.
                RemovedLinkBelieved,
                /// Other labels name a new link before it has one of its own.
                AddedLinkLabelledLast,
                /// Segments of a new link are written before a label names the link.
                AddedLinkUsedEarly,
            }
            /// Bugs of links whose drive fails, and which then leave, that its crash histories
            /// show.
            CHAIN_LOSS {
                /// A link whose drive is gone leaves, and nothing says what is lost.
                LossNotNoted,
                /// What is lost with a drive reads as zeroes.
                LostReadsZeroes,
            }
            /// Bugs of the summaries of a chain's segments that its crash histories show.
            CHAIN_SUMMARIES {
                /// A summary is believed although its segment was written again since.
                StaleSummaryBelieved,
                /// A segment is written again while the summary of its last epoch still counts.
                SummaryNotVoided,
            }
            /// Bugs of the summaries of a chain's segments; a test of one case shows each.
            SUMMARIES_CASES {
                /// A summary that was torn, or damaged, is believed.
                TornSummaryBelieved,
                /// The summary of another segment is believed.
                ForeignSummaryBelieved,
                /// An opening leaves the tables of two halves different.
                TablesNotSettled,
                /// The segment at the tail goes on after an opening, and a summary of it that only
                /// one half has still counts.
                TailFloorKept,
                /// A link keeps its mark when another link keeps its summaries.
                MarkNotRenewed,
                /// Of segments that are released together, only one gets its floor.
                BatchFloorKept,
                /// An added link keeps the mark and the table that its drive had.
                AddedTablesKept,
                /// A summary is written after the chain was closed.
                SummarizedWhenClosed,
                /// Cleaning begins epochs after the chain was closed.
                BegunWhenClosed,
            }
            /// Bugs of a chain's tail cache that its crash histories show.
            TAIL_CACHE {
                /// The tail cache answers with whatever version of a block it has.
                CacheIgnoresVersions,
                /// The tail cache is asked before the map, so that trimmed blocks are found.
                CacheAskedBeforeMap,
                /// A part of a version is answered with the version's beginning.
                CacheReadFromStart,
                /// What the SSD of a tail cache returns is taken for what was written there.
                FlashNotVerified,
                /// The tail cache takes more memory than it may.
                CacheNotBounded,
            }
            /// Bugs of a chain of drives; a test of one case shows each.
            GECKO_CASES {
                /// Content that was overwritten after its read is moved all the same.
                StaleContentMoved,
                /// Records of moved content count among the clients' records in flight.
                MovesHoldClientsBack,
                /// A segment is read although its drive is the tail's now.
                TailReadByCleaning,
                /// A read waits for the SSD of a tail cache as long as that takes.
                SilentSsdAwaited,
                /// What an added drive held is not made blank.
                AddedLinkNotBlank,
                /// With the checksums of dead versions that of a live one is forgotten.
                LiveChecksumForgotten,
                /// Dead versions are forgotten while a read of them is under way.
                ForgottenUnderRead,
                /// What is forgotten of a segment is more than what is dead in it.
                LiveExtentForgotten,
            }
            /// Bugs of a chain's mirrored links that its crash histories show.
            PAIRS {
                /// A drive that is copied to is read.
                JoiningHalfRead,
                /// An opening believes the first drive about which drives are current.
                FormerHalfBelieved,
                /// A write is answered before the labels say which half missed it.
                LossNotTold,
                /// A drive is current before what was copied to it is durable.
                JoinedBeforeDurable,
                /// A drive becomes current although it failed while it was copied to.
                JoinedThoughCopyFailed,
                /// What is written while a drive is copied to does not go there.
                CopySkipsWritten,
                /// A copy is written over what was written since it was read.
                CopyOverNewer,
                /// An opening after a crash leaves some segments out that may differ.
                SettleSkipsSegment,
                /// Segments are written while the root still says that all halves are the same.
                CleanMarkKept,
                /// The copy's progress is noted before what was copied is durable.
                CopyNotedEarly,
            }
            /// Bugs of halves that sleep.
            SLEEP {
                /// Requests go to a half that stands, without starting it.
                WakeSkipped,
                /// A half that would have to be started is taken for one that failed.
                SleeperTakenForFailed,
            }
            /// Bugs of halves that sleep; a test of one case shows each.
            SLEEP_CASES {
                /// An opening does not look for the newest root on the half that was awake.
                SleeperRootBelieved,
                /// A half sleeps although it has no start left.
                WakeBudgetIgnored,
                /// The root is not written anew when a drive leaves or joins that may be the only
                /// one of its link with the newest.
                RootNotRenewed,
                /// An opening does not start drives that stand.
                OpeningWakesNobody,
                /// A drive that does not start at once is written to all the same.
                WakeTriedOnce,
            }
            /// Bugs of a chain's mirrored links; a test of one case shows each.
            PAIRS_CASES {
                /// A copy goes on where it ended, although the drive missed an opening since.
                AbsentHalfGoesOn,
                /// Content that one half returns damaged is not looked for on the other.
                OtherCopyNotAsked,
                /// Damage on one half stays, although the other half is whole.
                DamageNotMended,
                /// An opening does not mend what a half has lost.
                OpeningMendsNothing,
                /// What no checksum was held against is written to a half that is mended.
                UncheckedPartsMended,
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
                /// Freed blocks are used again before the freeing is durable.
                Ext4ReuseBeforeDurable,
                /// The log's room is given back before its blocks are durable at home.
                Ext4TailBeforeHome,
                /// An inode without a name is not in the list of orphans.
                Ext4OrphanAfterFree,
                /// A bitmap's checksum is wrong.
                Ext4BitmapChecksumWrong,
                /// One freed block too many is counted.
                Ext4FreeCountOff,
                /// A block of names loses a name when it is split.
                Ext4SplitLosesName,
                /// A hole punched into an extent also takes away the rest of the extent behind it.
                Ext4PieceLost,
                /// A new name and the new count of names are in different updates.
                Ext4LinkCountLater,
                /// A sync does not wait for the commit.
                Ext4SyncNotAwaited,
                /// A replay brings back blocks that were revoked.
                Ext4ReplayIgnoresRevokes,
                /// The log is reset before the replayed blocks are durable at home.
                Ext4ReplayNotFlushed,
                /// A mount does not free the orphans that it finds.
                Ext4OrphansNotEnded,
                /// A file that is created without a name is no orphan.
                Ext4UnnamedNoOrphan,
                /// A file that replaces another may be found empty.
                Ext4RenameLeavesData,
                /// A file that was truncated to zero, written and closed may be found empty.
                Ext4CloseLeavesData,
            }
        }
    };
}
