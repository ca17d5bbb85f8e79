//! Bugs of arrays and of volumes on them. In the list of all bugs they follow those of
//! [`crate::bugs`].

macro_rules! with_arrays {
    ($($others:tt)*) => {
        with_systems! {
            $($others)*
            /// Bugs of a volume on an array with copies that its crash histories show.
            COPIES {
                /// Home writes of clients that overlap are in flight together.
                HomeWritesOverlap,
                /// An opening relies on records that were in flight and may be on one copy only.
                InDoubtNotRewritten,
                /// A log gets no end where another copy may have a further record.
                EndNotMade,
                /// What an opening writes to make copies the same is not flushed.
                InDoubtNotFlushed,
                /// An opening relies on a root and superblocks that may be torn on another copy.
                StructuresNotInDoubt,
                /// Members that may differ after a crash are read in turn.
                MirrorReadsAnyCopy,
                /// A flush of members with the same content leaves one out.
                MirrorFlushSkipsMember,
            }
            /// Bugs of a volume on an array with copies; a test of one case shows each.
            COPIES_CASES {
                /// A dead epoch of a log goes on after a crash, although the next may have begun
                /// on another copy.
                DeadEpochGoesOn,
                /// What is in doubt after a crash is written again in one log after the other.
                SettledOneByOne,
                /// After an orderly close an opening writes nothing once more.
                ClosedNotSettled,
            }
            /// Bugs of a volume on an array with parity that its crash histories show.
            PARITY {
                /// Records on an array with parity fill physical sectors only, and share rows.
                RecordsShareRow,
                /// The two roots of a volume share rows.
                RootsShareRow,
                /// A record is answered before the array has flushed its rows.
                RowsNotFlushed,
                /// The first row of a log that a crash has torn counts as damage.
                TornRowIsDamage,
                /// In every second stripe the parity is written to the wrong member.
                ParityOnWrongMember,
                /// A flush of an array with parity leaves one member out.
                ParityFlushSkipsMember,
            }
            /// Bugs of a volume on an array that resynchronises, or loses members in use; its crash
            /// histories show them.
            RESYNC {
                /// A resynchronisation writes what it has read over what was written since.
                ResyncOvertakesWrite,
                /// Members are read in turn where the resynchronisation has not been yet.
                MirrorReadBeforeResync,
                /// The rows of a record go to the array in two batches: it reads in between.
                RowsInTwoBatches,
                /// A request goes on with zeroes for what a lost member should have answered.
                LostReadTakenAsZeroes,
            }
            /// Bugs of an array that fills new members while a volume on it is used; its crash
            /// histories show them.
            FILLING {
                /// A new member answers reads of places that it is not filled at yet.
                NewMemberReadUnfilled,
                /// Writes go to the other members alone until a new one is filled.
                NewMemberNotWritten,
            }
            /// Bugs of a volume with a closed write hole (`hole=closed`) that its crash histories
            /// show.
            HOLE {
                /// Parts of stripes of a large write go home, beside blocks that nobody writes.
                RowEdgesNotLogged,
                /// Rows go home before their image is durable.
                HomeBeforeItsImage,
                /// An image is ended before its rows are durable at home.
                ImageEndedEarly,
                /// An opening after a crash does not write the rows of an image home.
                RowsNotMended,
            }
            /// Bugs of a volume with a closed write hole; a test of one case shows each.
            HOLE_CASES {
                /// An opening takes the image of an earlier incarnation.
                StaleImageCounts,
            }
        }
    };
}
