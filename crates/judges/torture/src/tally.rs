//! The results of histories.

use manylogs::{Phase, VolumeStats};

use crate::volume::fault::{Detected, Fault, Outcome};
use crate::volume::plan::{Between, Plan, Shape};

/// Distinct crash states by the phase in which the crash fell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases([u64; Phase::ALL.len()]);

impl Phases {
    pub(crate) const fn add(&mut self, phase: Phase) {
        self.0[phase as usize] += 1;
    }

    /// Number of states of each phase.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, u64)> {
        Phase::ALL.into_iter().zip(self.0)
    }

    /// Number of states of all phases.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The results of the faults of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    /// Faults that changed the image.
    pub injected: u64,
    /// Faults for which the volume was refused, reported damage, or failed a read.
    pub detected: u64,
    /// How the detected faults were noticed first, in the order of [`Detected::ALL`].
    pub detected_by: [u64; Detected::ALL.len()],
    /// Faults after which every sector read as before.
    pub harmless: u64,
    /// Faults that lost home data, or the last records of a log, as `docs/semantics.md` lists.
    pub listed: u64,
}

/// Counts of events that happen at most once in a history, and in few histories.
const RARE: [&str; 11] = [
    "refused_openings",
    "troubled_openings",
    "rate_limited",
    "long_zeroes",
    "many_logs",
    "days",
    "daily_checkpoints",
    "grown",
    "repaired",
    "settings_kept",
    "nvram_histories",
];

/// Counts that only histories of ext4, of chains, of Everest and of arrays have.
const OF_OTHERS: [&str; 36] = [
    "judged_by_e2fsck",
    "replayed_by_e2fsck",
    "mutated",
    "mutated_mounted",
    "mutated_found_by_both",
    "mutated_found_by_neither",
    "mutated_found_by_check",
    "mutated_found_by_e2fsck",
    "damaged_logs",
    "damaged_logs_told",
    "homes_judged",
    "homes_files",
    "kept_home_sectors",
    "kept_moved_sectors",
    "replaced",
    "halves_lost",
    "wakes",
    "degraded",
    "links_added",
    "links_removed",
    "links_lost",
    "summarized",
    "scanned",
    "cache_hits",
    "flash_hits",
    "flash_faults",
    "forgotten_stores",
    "forgotten_by_closed",
    "emptied_stores",
    "moved_ranges",
    "noted_losses",
    "members_left",
    "resyncs",
    "resyncs_ended",
    "fillings",
    "fillings_ended",
];

impl FaultCount {
    fn plus(mut self, more: &Self) -> Self {
        self.injected += more.injected;
        self.detected += more.detected;
        self.harmless += more.harmless;
        self.listed += more.listed;
        for (sum, more) in self.detected_by.iter_mut().zip(more.detected_by) {
            *sum += more;
        }
        self
    }
}

macro_rules! tally {
    ($($(#[$doc:meta])* $field:ident,)+) => {
        /// Counts of everything that histories did.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$doc])* pub $field: u64,)+
            /// Distinct crash states by phase.
            pub phases: Phases,
            /// Faults by kind, in the order of [`Fault::ALL`].
            pub faults: [FaultCount; Fault::ALL.len()],
        }

        impl Tally {
            fn add_counts(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }

            /// The name and value of each plain count.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }
        }
    };
}

tally! {
    /// Histories that ran to their end.
    histories,
    /// Openings of a volume in them.
    incarnations,
    /// Requests and orders of clients that were answered.
    operations,
    /// Images compared with the model, each at every moment of the model.
    judged,
    /// Images that were recovered for those comparisons.
    recovered,
    /// Crashes during recovery.
    nested,
    /// Recoveries that a snapshot made faster; these were repeated without it.
    from_snapshot,
    /// Crashes while a volume was being created.
    unborn,
    /// Volumes drained.
    drained,
    /// Volumes, and stores of Everest, closed in order.
    closed,
    /// Stores of Everest that were gone for good and forgotten, by volumes that were open.
    forgotten_stores,
    /// The same, by volumes that were closed, because they could not be opened.
    forgotten_by_closed,
    /// Stores of Everest that were evacuated until they were empty.
    emptied_stores,
    /// Ranges that went from stores of Everest that are evacuated to others.
    moved_ranges,
    /// Of closed volumes whose note said what exactly is lost, in lives and recoveries.
    noted_losses,
    /// Openings on a device that then failed requests.
    troubled,
    /// Members of arrays that left in use.
    members_left,
    /// Resynchronisations that went on while a volume on the array was opened and used.
    resyncs,
    /// Those of them that came to their end.
    resyncs_ended,
    /// Resynchronisations that filled new members.
    fillings,
    /// Those of them that came to their end.
    fillings_ended,
    /// Requests that the device failed.
    failed_requests,
    /// Failed requests that would succeed when sent again later.
    transient_errors,
    /// Openings that errors of the device prevented; the device healed, and nothing was lost.
    refused_openings,
    /// Openings that succeeded in spite of such errors.
    troubled_openings,
    /// Histories with a limit to the rate of checkpoints.
    rate_limited,
    /// Histories with zeroed ranges too long to be written out.
    long_zeroes,
    /// Histories on hundreds of logs.
    many_logs,
    /// Histories that take days.
    days,
    /// Checkpoints in these histories, at the time of day that the policy names.
    daily_checkpoints,
    /// Histories on a disk that flushes its cache after each FUA write.
    emulated_fua,
    /// Histories on a disk with physical sectors of 4096 bytes.
    large_sectors,
    /// Histories in which the volume grows.
    grown,
    /// Histories in which the volume is repaired.
    repaired,
    /// Histories that change the settings kept in the volume.
    settings_kept,
    /// Supersede entries appended.
    supersedes,
    /// Logs moved.
    swaps,
    /// Logs begun anew.
    resets,
    /// Checkpoints.
    checkpoints,
    /// Table snapshots.
    snapshots,
    /// Writes that found the logs full.
    starved,
    /// Halves of a chain's links that were replaced in use.
    replaced,
    /// Halves that failed while the chain was used.
    halves_lost,
    /// Starts of halves that slept.
    wakes,
    /// Openings of a chain without one of its halves.
    degraded,
    /// Links that were added to a chain in use.
    links_added,
    /// Links that were removed from it.
    links_removed,
    /// Links that left with what only they held.
    links_lost,
    /// Segments of which a summary told an opening what they hold.
    summarized,
    /// Segments of chains that an opening read.
    scanned,
    /// Reads that a chain's tail cache answered.
    cache_hits,
    /// Those of them that came from its SSD.
    flash_hits,
    /// Requests of such an SSD that failed, or answered something else.
    flash_faults,
    /// Reads with a part in a log or in memory.
    redirected,
    /// Histories with the table in non-volatile RAM.
    nvram_histories,
    /// Crashes between two operations on that RAM.
    nvram_between,
    /// New snapshots in that RAM, most often because a half was full.
    nvram_rewrites,
    /// Crash states of ext4 that e2fsck judged as well.
    judged_by_e2fsck,
    /// Those of them whose journal e2fsck replayed.
    replayed_by_e2fsck,
    /// Images of ext4 that were damaged and used.
    mutated,
    /// Those of them that could be mounted.
    mutated_mounted,
    /// Those that our own check and e2fsck judged alike, as damaged.
    mutated_found_by_both,
    /// Those that both judged alike, as sound.
    mutated_found_by_neither,
    /// Those in which only our own check found something, as expected.
    mutated_found_by_check,
    /// Those in which only e2fsck found something, as expected.
    mutated_found_by_e2fsck,
    /// Crash states of a journal that keeps its transactions, used with a block of it damaged.
    damaged_logs,
    /// Those of them in which an error told of it; in the others everything was there.
    damaged_logs_told,
    /// Crash states of files that need no place, whose homes were read without the logs.
    homes_judged,
    /// Files that had the property from their birth on, in these homes.
    homes_files,
    /// Sectors of kept content that went home, in use.
    kept_home_sectors,
    /// Sectors of kept content that moved to another log.
    kept_moved_sectors,
}

impl Tally {
    /// Special properties of the history of a plan.
    pub(crate) fn add_plan(&mut self, plan: &Plan) {
        let between =
            |wanted: fn(&Between) -> bool| u64::from(plan.between.is_some_and(|b| wanted(&b)));
        self.rate_limited += u64::from(plan.config.checkpoint_rate > 0);
        self.long_zeroes += u64::from(plan.shape == Shape::LongZeroes);
        self.many_logs += u64::from(plan.shape == Shape::ManyLogs);
        self.days += u64::from(plan.shape == Shape::Days);
        self.emulated_fua += u64::from(!plan.disk.native_fua);
        self.large_sectors += u64::from(plan.disk.physical_sector.0 > 1);
        self.grown += between(|b| matches!(b, Between::Grow(_)));
        self.repaired += between(|b| *b == Between::Repair);
        self.settings_kept += u64::from(plan.sets) | between(|b| *b == Between::Set);
    }

    pub(crate) fn add_stats(&mut self, stats: &VolumeStats) {
        self.supersedes += stats.supersedes;
        self.swaps += stats.log_swaps;
        self.resets += stats.log_resets;
        self.checkpoints += stats.checkpoints;
        self.snapshots += stats.snapshots;
        self.starved += stats.starved_writes;
        self.redirected += stats.redirected_reads;
        self.nvram_rewrites += stats.nvram_rewrites;
    }

    /// Adds what became of kept content below a file system.
    pub(crate) fn add_kept(&mut self, stats: &VolumeStats) {
        self.kept_home_sectors += stats.o_dur_home_bytes / 512;
        self.kept_moved_sectors += stats.o_dur_moved_bytes / 512;
    }

    pub(crate) fn add_fault(&mut self, fault: Fault, outcome: Outcome) {
        let count = &mut self.faults[fault as usize];
        count.injected += 1;
        match outcome {
            Outcome::Detected(by) => {
                count.detected += 1;
                count.detected_by[by as usize] += 1;
            }
            Outcome::Harmless => count.harmless += 1,
            Outcome::Listed => count.listed += 1,
        }
    }

    /// Adds the counts of another history, without its crash states: see [`crate::Campaign`].
    pub fn add(&mut self, other: &Self) {
        self.add_counts(other);
        for (sum, more) in self.faults.iter_mut().zip(&other.faults) {
            *sum = sum.plus(more);
        }
    }

    /// The sum of the faults of all kinds.
    #[must_use]
    pub fn all_faults(&self) -> FaultCount {
        self.faults.iter().fold(FaultCount::default(), |sum, more| sum.plus(more))
    }

    /// The counts that are too low for a campaign of volumes to prove anything. The limits are a
    /// tenth of a per cent of all states for each phase, one history in 500 for features of only
    /// some histories, and 10 for all other counts.
    #[must_use]
    pub fn neglected(&self) -> Vec<String> {
        let least = (self.phases.total() / 1000).max(20);
        let phases = self.phases.iter().filter(|(_, count)| *count < least);
        let phases = phases.map(|(phase, count)| format!("{count} states in phase {phase:?}"));
        let least =
            |name: &str| if RARE.contains(&name) { (self.histories / 500).max(1) } else { 10 };
        let counts = self.counts().filter(|(name, _)| !OF_OTHERS.contains(name));
        let counts = counts.filter(|(name, count)| *count < least(name));
        let counts = counts.map(|(name, count)| format!("{count} {name}"));
        let by = Detected::ALL.into_iter().zip(self.all_faults().detected_by);
        let by = by.filter(|(_, count)| *count == 0 && self.all_faults().injected > 0);
        let by = by.map(|(by, _)| format!("no fault was detected by {by:?}"));
        phases.chain(counts).chain(by).collect()
    }
}
