//! Each planted bug of opening, growing and draining makes one of the tests beside this one fail.

use manylogs_plant::{Bug, plant};

use crate::{copies, draining, growing, logs, reshaped, structures};

#[test]
fn planted_bugs_are_noticed() {
    let cases: [(Bug, fn()); 21] = [
        (
            Bug::DrainWithoutBarrier,
            draining::a_drain_forgets_nothing_before_what_replaced_it_is_durable,
        ),
        (Bug::DeadEpochGoesOn, copies::an_epoch_that_may_have_ended_on_another_copy_does_not_go_on),
        (Bug::SettledOneByOne, copies::what_is_in_doubt_is_written_again_in_many_logs_at_a_time),
        (
            Bug::ClosedNotSettled,
            copies::a_change_that_reached_one_copy_alone_is_gone_once_the_other_was_read,
        ),
        (Bug::FirstSuperblockFirst, growing::nothing_of_the_old_end_shows_in_a_volume_that_grew),
        (Bug::OldEndExposed, growing::nothing_of_the_old_end_shows_in_a_volume_that_grew),
        (Bug::ChangeLeftUnfinished, growing::growth_that_was_used_is_not_forgotten_with_one_copy),
        (
            Bug::SuperblockBeforeRoots,
            growing::a_root_that_gets_coarser_sets_is_there_before_the_superblock,
        ),
        (
            Bug::SuperblockBeforeRoots,
            reshaped::roots_know_the_logs_of_both_shapes_before_the_superblock_tells_of_the_new_one,
        ),
        (Bug::GeometryOfFullLogs, reshaped::a_volume_with_full_logs_is_refused),
        (
            Bug::UnreadCopyIsDamaged,
            structures::a_copy_that_cannot_be_read_is_only_damaged_if_the_medium_is,
        ),
        (Bug::StaleRootBelieved, structures::a_root_that_is_older_than_records_is_not_believed),
        (Bug::LogSetTruncated, structures::a_volume_of_more_logs_than_a_root_has_bits),
        (Bug::RetiredForgotten, logs::a_log_that_failed_stays_out_of_use),
        (Bug::ReadsNotTriedAgain, logs::a_log_that_cannot_be_read_for_a_while_is_waited_for),
        (
            Bug::AnyErrorIsTheMedium,
            logs::a_log_that_cannot_be_read_is_refused_and_nothing_older_is_taken,
        ),
        (Bug::DrainedLogsScanned, logs::the_logs_of_a_drained_volume_need_not_be_readable),
        (Bug::SnapshotNeeded, logs::a_snapshot_that_cannot_be_read_is_not_needed),
        (Bug::DamagedCopyPreferred, logs::of_a_moved_version_the_whole_copy_counts),
        (Bug::UnreadableIsTheEnd, logs::a_header_that_cannot_be_read_is_not_the_end_of_the_log),
        (
            Bug::UnreadablePayloadIsTorn,
            logs::a_payload_that_cannot_be_read_is_lost_and_reads_say_so,
        ),
    ];
    // Tests fail by a panic: its message is suppressed.
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for (bug, test) in cases {
        plant(Some(bug));
        let noticed = std::panic::catch_unwind(test).is_err();
        plant(None);
        println!("{bug:?}: {}", if noticed { "noticed" } else { "MISSED" });
        if !noticed {
            missed.push(bug);
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
