//! Bugs planted between clients and the volume: each must be noticed by a test.

use std::panic::{catch_unwind, set_hook, take_hook};

use manylogs_plant::{Bug, LINKS, SERVE, plant};

use super::{limits, nbd, stop};
use crate::fuse::tests as fuse;
use crate::stores::tests as stores;

/// The test that has to notice a bug; `None` if it is a test of whole processes, which are among
/// the program's tests.
fn test_of(bug: Bug) -> Option<fn()> {
    Some(match bug {
        Bug::NbdFlushSkipped => nbd::a_flush_is_answered_after_a_flush,
        Bug::NbdFlushOwnConnection => nbd::a_flush_of_any_connection_flushes_the_writes_of_all,
        Bug::NbdFuaIgnored
        | Bug::NbdPartsFuaIgnored
        | Bug::NbdZeroFuaIgnored
        | Bug::NbdTrimFuaIgnored
        | Bug::NbdTrimRoundedOutwards => {
            nbd::requests_reach_the_volume_with_their_flags_and_no_more_than_their_sectors
        }
        Bug::NbdPartsWithoutGate => {
            nbd::parts_of_one_sector_that_are_written_together_are_all_there
        }
        Bug::NbdWholeWithoutGate => nbd::a_whole_sector_written_beside_a_part_of_it_is_not_lost,
        Bug::NbdAnsweredEarly => nbd::a_change_is_answered_when_the_volume_has_it,
        Bug::NbdFailureHidden => nbd::what_fails_is_not_answered_as_done,
        Bug::NbdDisconnectDropsRequests => {
            nbd::what_was_sent_before_a_disconnect_is_done_and_answered
        }
        Bug::NbdUnsentAnswersUncounted => {
            limits::answers_that_nobody_fetches_count_towards_the_limit_of_their_client
        }
        Bug::NbdGoneClientUnlimited => limits::the_rest_of_a_client_that_left_is_not_carried_out,
        Bug::NbdConnectionsUnlimited => limits::so_many_clients_are_let_in_and_no_more,
        Bug::FuseFsyncSkipped => fuse::an_fsync_flushes,
        Bug::FuseDsyncIgnored => fuse::writes_with_dsync_or_sync_are_durable_when_answered,
        Bug::FuseDsyncPunchIgnored => {
            fuse::holes_punched_with_dsync_or_sync_are_durable_when_answered
        }
        Bug::FusePunchRoundedOutwards => fuse::holes_are_whole_sectors_or_refused,
        Bug::StopWithoutClose => stop::what_was_acknowledged_before_a_stop_is_there_afterwards,
        Bug::StopDropsRequests => {
            stop::a_server_that_stops_waits_for_requests_under_way_and_says_so
        }
        Bug::FrameDamageTaken => stores::a_damaged_answer_is_none,
        Bug::LostCallsUnanswered | Bug::LostCallsDone => {
            stores::calls_of_a_connection_that_ends_are_answered
        }
        Bug::SilenceUnnoticed => stores::a_store_that_is_silent_is_gone,
        Bug::NamesHoldUp => stores::names::a_slow_name_server_holds_no_request_up,
        Bug::OtherStoreTaken => stores::another_store_at_the_address_is_not_taken,
        Bug::OwnDiskLent => stores::a_store_on_the_own_disk_is_not_used,
        Bug::LentAnsweredEarly => stores::a_write_is_answered_when_it_is_durable,
        #[cfg(not(feature = "tls"))]
        Bug::AnyKeyIsKnown | Bug::KeyNotProved => return None,
        #[cfg(feature = "tls")]
        Bug::AnyKeyIsKnown => stores::keys::a_client_whose_key_was_not_named_is_not_let_in,
        #[cfg(feature = "tls")]
        Bug::KeyNotProved => stores::keys::a_key_that_was_only_seen_lets_nobody_in,
        Bug::PanicOutlived => return None,
        bug => panic!("no test is named for {bug:?}"),
    })
}

#[test]
fn every_planted_bug_is_noticed() {
    let bugs = SERVE.iter().chain(LINKS);
    let tests = bugs.filter_map(|bug| Some((*bug, test_of(*bug)?)));
    let mut missed = Vec::new();
    for (bug, test) in tests {
        // Without the bug the test passes.
        test();
        set_hook(Box::new(|_| ()));
        plant(Some(bug));
        let noticed = catch_unwind(test).is_err();
        plant(None);
        let _ = take_hook();
        println!("{bug:?}: {}", if noticed { "noticed" } else { "MISSED" });
        if !noticed {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
