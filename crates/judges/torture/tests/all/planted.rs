//! Bugs planted in the volume. The campaign must notice each bug, or it proves nothing.

#![cfg(feature = "plant")]

use crate::common::Hunt;
use manylogs_plant::{Bug, KEPT, NVRAM, VOLUME};
use manylogs_torture::{Plan, run_plan};

/// Number of histories after which a bug counts as missed.
const PATIENCE: u64 = 400;
const FIRST: u64 = 5000;

/// The histories that show a bug soonest.
fn plan_for(bug: Bug) -> fn(u64) -> Plan {
    match bug {
        bug if NVRAM.contains(&bug) => |seed| Plan::plain(seed).with_nvram(),
        bug if KEPT.contains(&bug) => |seed| Plan::plain(seed).keeping(),
        Bug::RootHalfWritten
        | Bug::FailedFlushTakesWrites
        | Bug::FailedRecordSettled
        | Bug::KeptDropped => |seed| Plan::plain(seed).with_trouble().sparse(),
        Bug::TransientIsLoss | Bug::FloorOverUnread | Bug::LostForgotten => {
            |seed| Plan::plain(seed).with_passing_trouble().sparse()
        }
        Bug::RenewOverNewer | Bug::ZeroesTakenForGranted => {
            |seed| Plan::plain(seed).zeroing_long_ranges()
        }
        Bug::BandWithoutLock => |seed| Plan::plain(seed).banded().sparse(),
        Bug::ZeroesTornSectors => {
            |seed| Plan::plain(seed).zeroing_long_ranges().on_large_sectors().forked_everywhere()
        }
        Bug::FailedRunForgotten => |seed| Plan::plain(seed).with_trouble().writing_runs().sparse(),
        Bug::RunOverOlderVersion | Bug::RunOverNewerVersion | Bug::RunNotAwaited => {
            |seed| Plan::plain(seed).writing_runs()
        }
        Bug::RateNotHurried => |seed| Plan::plain(seed).rate_limited().sparse(),
        Bug::SettingsInOneCopy => |seed| Plan::plain(seed).setting(),
        Bug::GrowTakesHome => |seed| Plan::plain(seed).growing(),
        Bug::DiscardNotDurable => |seed| Plan::plain(seed).discarding_durably(),
        _ => Plan::plain,
    }
}

/// Bugs without effect as long as the medium keeps what is written to it.
fn is_for_faults(bug: Bug) -> bool {
    matches!(bug, Bug::LogReadNotVerified | Bug::SettingsInOneCopy)
}

#[test]
fn every_planted_bug_is_caught() {
    let bugs = [VOLUME, NVRAM, KEPT].concat();
    let hunt = Hunt { histories: "volume", bugs: &bugs, patience: PATIENCE };
    hunt.run(|| (), |bug, seed, ()| run_plan(&plan_for(bug)(FIRST + seed), is_for_faults(bug)));
}
