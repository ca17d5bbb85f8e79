//! Every scenario passes, and every planted bug makes its scenario fail.

use super::scenarios::*;
use crate::planted::{Bug, with};

const CAUGHT_BY: [(Bug, fn() -> Outcome); 9] = [
    (Bug::FrozenRotation, back_to_back_writes_miss_a_revolution),
    (Bug::SeekByAddress, heads_of_one_cylinder_need_no_seek),
    (Bug::NoSkew, sequential_reads_sustain_the_media_rate),
    (Bug::NoHeadSwitch, changing_heads_takes_its_time),
    (Bug::NoWriteSettle, writes_settle_longer_than_reads),
    (Bug::FuaIgnored, forced_unit_access_reaches_the_medium),
    (Bug::FlushEarly, a_flush_waits_for_cached_writes),
    (Bug::NoAgeLimit, shortest_first_starves_nobody),
    (Bug::StaleReadAhead, overwritten_sectors_are_read_again),
];

#[test]
fn scenarios_hold() {
    for (_, scenario) in CAUGHT_BY {
        assert_eq!(scenario(), Ok(()));
    }
}

#[test]
fn planted_bugs_are_caught() {
    for (bug, scenario) in CAUGHT_BY {
        let outcome = with(bug, scenario);
        assert!(outcome.is_err(), "{bug:?} went unnoticed");
    }
}
