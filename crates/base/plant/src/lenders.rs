//! Bugs of Everest's clients and stores. In the list of all bugs they follow those of
//! [`crate::systems`].

macro_rules! with_lenders {
    ($($others:tt)*) => {
        with_file_systems! {
            $($others)*
            /// Bugs of a client of several of Everest's stores, and of the stores' dealings with
            /// clients, that crash histories of many nodes show.
            LENDERS {
                /// A store is noted on the base after the first write there.
                ListedAfterWrite,
                /// An opening goes on without a store that may hold data.
                OpenedWithoutStore,
                /// Stores get requests before the incarnation is durable on the base.
                IncarnationNotDurable,
                /// A store carries out calls of an earlier session.
                OldSessionServed,
                /// A store carries out a call twice that arrives twice.
                CallDoneTwice,
                /// Closing a client does not wait for its change of the header, which then undoes
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
                /// A write is acknowledged with one copy less than it should have.
                OneCopyLess,
                /// A store's versions are noted as void before the newer one is home.
                VoidBeforeHome,
                /// An opening does not believe notes that versions are void.
                VoidForgotten,
                /// Reclaiming takes no lock.
                ReclaimWithoutLock,
                /// A flush is not passed on to the base.
                BaseFlushSkipped,
                /// Versions count as home before the base was flushed.
                CleanBeforeFlush,
                /// A store is taken off the list while it holds data.
                UnlistedTooEarly,
                /// Writes that go home over off-loaded ranges are not durable before the stores
                /// delete their versions.
                ThroughNotDurable,
                /// What was sent to a store, and not acknowledged, does not count as held by it.
                InFlightNotHeld,
                /// A new base volume gets the number of one that a store knows.
                SpaceReused,
                /// Stores forget versions that are on their way to them when an older one is home.
                OnItsWayDeleted,
                /// A change of the header counts before it is durable.
                HeaderBelievedEarly,
                /// A store that refused a version counts as one that holds no older one.
                RefusalForgetsOlder,
            }
            /// Bugs of the same parts; a test of one case shows each.
            LENDERS_CASES {
                /// A store believes every claim of an older incarnation.
                OlderClaimAccepted,
                /// A store does not compare tokens.
                TokenIgnored,
                /// A store takes an older version over a newer one.
                OlderVersionTaken,
                /// A store is believed that returns with less than it had acknowledged.
                RolledBackBelieved,
                /// What a store lost that came back with less is not noted.
                RollbackNotNoted,
                /// A note of what a store has is not compared with what it holds at the opening.
                NoteNotCompared,
                /// Reclaiming ends at an error that would have passed.
                ReclaimEndsAtError,
                /// Stores are compared by what they tell alone, not by how long they take.
                PaceIgnored,
                /// A list of stores is written to one copy of the header only.
                HeaderInOneCopy,
                /// A store that is added is not noted on the base.
                KeptInMemory,
                /// A store has no bound for each client.
                ClientUnbounded,
                /// A store that had no room is not asked again.
                FullForEver,
                /// A base volume has no bound for what stores hold of it.
                HeldMaxIgnored,
                /// It is not durable that a store takes no more writes.
                EvacuationForgotten,
                /// A store that is evacuated forgets before its data is elsewhere.
                EvacuatedEarly,
                /// A store is dropped before it is durable what is lost with it.
                LossAfterDrop,
                /// An opening does not believe that ranges are lost.
                LossNotBelieved,
                /// A range stays lost although it was written since.
                LossKept,
                /// Stores keep what is older than a lost range until that is written.
                LossOutlived,
                /// A store has all of its disk's time, whatever its share is.
                ShareIgnored,
                /// A store spends the room for cleaning on logs that do not become free by it.
                ReserveSpentBetween,
                /// A store cleans its logs as long as they look sparse, whatever that gains.
                CleansForEver,
                /// Whoever waits for a store to become empty is not told that the rest is damaged.
                DamageNotTold,
                /// A store is forgotten while its versions hide older ones of other stores.
                ForgottenUncovers,
                /// What a store alone has is noted while its versions hide older ones of others.
                NoteUncovers,
                /// A store's disk that fails without a word of damage counts as damaged.
                FailureIsDamage,
                /// A sector that the base cannot read keeps what is off-loaded beside it from going
                /// home.
                BadSectorHoldsAll,
                /// What is off-loaded is written home beside a sector that the base cannot read,
                /// though a power cut in that write may take good ones of the same physical sector.
                BadSectorTakesGood,
                /// Ranges that failed to go home are chosen first again.
                FailedComeFirst,
                /// It is not noted on the base that a damaged range is lost when stores forget it.
                DamageNotNoted,
                /// A store believes the table that an earlier close left, whatever came after it.
                OldTableBelieved,
                /// A store believes a table although its checksum is wrong.
                TornTableBelieved,
                /// Notes of what stores alone have stay when a session begins.
                NotesKept,
                /// A note of what a store alone has counts where its versions are void.
                NoteWithoutVoids,
                /// A check of a store does not compare what it holds with checksums.
                HeldNotCompared,
            }
            /// Bugs of connections between clients and stores.
            LINKS {
                /// A frame whose checksum is wrong is taken.
                FrameDamageTaken,
                /// Calls are never answered if their connection has ended.
                LostCallsUnanswered,
                /// Calls are answered as done if their connection has ended.
                LostCallsDone,
                /// A connection stays open although its other side is silent.
                SilenceUnnoticed,
                /// Another store at the same address is taken for the former one.
                OtherStoreTaken,
                /// A store on the base volume's own disk is borrowed.
                OwnDiskLent,
                /// Names of hosts are looked up on the thread that serves the clients.
                NamesHoldUp,
                /// A store's server answers calls before they are done.
                LentAnsweredEarly,
                /// A store lets clients in whose keys were not named, and a client any store.
                AnyKeyIsKnown,
                /// Whoever shows a public key is taken for its owner.
                KeyNotProved,
            }
        }
    };
}
