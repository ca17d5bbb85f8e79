//! Bugs planted between a device's requests and the kernel: checks that a test notices each.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::process::{Command, Output};

use manylogs_plant::{Bug, STORAGE};

const RING: &str = "witness::tests::the_ring_asks_for_what_requests_say";
const POOL: &str = "witness::tests::the_threads_ask_for_what_requests_say";
const MEMORY: &str = "witness::tests::the_path_for_files_in_memory_asks_for_what_requests_say";
const VOLATILE: &str = "file_device::tests::\
                        only_direct_writes_to_hardware_without_a_cache_are_durable_without_a_flush";

/// The test that notices `bug`; `None` if another crate's tests do.
fn noticed_by(bug: Bug) -> Option<&'static str> {
    Some(match bug {
        Bug::RingIgnoresFua | Bug::RingSkipsSync => RING,
        Bug::PoolIgnoresFua | Bug::PoolSkipsSync | Bug::ZeroesNotFlushed => POOL,
        Bug::MemoryIgnoresFua | Bug::MemorySkipsSync => MEMORY,
        Bug::CachedTakenForDurable | Bug::FileTakenForDurable | Bug::VirtualDiskTakenForDurable => {
            VOLATILE
        }
        Bug::CacheTakenForFixed => {
            "file_device::tests::a_cache_that_is_off_can_be_turned_on_meanwhile"
        }
        Bug::PersistSkipsSync => "witness::tests::mapped_memory_is_written_and_synced",
        Bug::PersistFailureForgotten => {
            "witness::tests::after_a_failed_sync_mapped_memory_is_never_persisted"
        }
        Bug::ZeroesCutShort => {
            "device::tests::long_ranges_are_worked_through_in_pieces_one_at_a_time"
        }
        Bug::FlushFailureIgnored | Bug::StorageFlushFailureForgotten => {
            "device::tests::after_a_failed_flush_no_flush_succeeds"
        }
        Bug::DurableWriteFailureForgotten => {
            "device::tests::\
             a_failed_durable_write_spoils_flushes_unless_there_was_merely_no_room"
        }
        Bug::DroppedFlushesAccepted => "open::tests::loop_devices_that_drop_flushes_are_found",
        Bug::BackingNotLocked => "guard::tests::bytes_behind_loop_devices_have_one_writer",
        Bug::LoopsBesideAccepted => "open::tests::what_a_loop_device_shows_as_well_is_refused",
        Bug::KilledNotWaitedFor => "open::tests::a_lock_that_outlives_its_process_is_waited_for",
        Bug::ShortWriteTakenForWhole => "device::tests::what_was_cut_short_or_interrupted_goes_on",
        Bug::PartialWithoutNeighbours => {
            "witness::tests::parts_of_large_logical_sectors_keep_their_neighbours"
        }
        Bug::PartialWithoutGate => {
            "device::tests::writes_into_one_logical_sector_do_not_undo_each_other"
        }
        Bug::DiscardRoundedOutwards => {
            "device::tests::zeroes_and_discards_leave_the_rest_of_logical_sectors"
        }
        Bug::TransientTakenForMedium => {
            "failure::tests::each_answer_of_the_block_layer_and_of_file_systems_has_its_meaning"
        }
        Bug::ServedLoopDropsFlushes => return None,
        other => panic!("{other:?} needs a test that notices it"),
    })
}

/// Runs one test of this program in a process of its own, with `bug` planted if there is one.
fn run(test: &str, bug: Option<Bug>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env_remove("MANYLOGS_PLANT");
    if let Some(bug) = bug {
        command.env("MANYLOGS_PLANT", format!("{bug:?}"));
    }
    command.output().unwrap()
}

/// Whether the test could not run here: it says so, and then notices nothing.
fn was_skipped(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("skipped: ")
}

#[test]
fn every_planted_bug_is_noticed() {
    let cases = STORAGE.iter().filter_map(|bug| Some((*bug, noticed_by(*bug)?)));
    let mut missed = Vec::new();
    for (bug, test) in cases {
        let sound = run(test, None);
        let ran = String::from_utf8_lossy(&sound.stdout).contains("1 passed");
        assert!(ran, "{test} is not there, or fails without a bug");
        let noticed = !run(test, Some(bug)).status.success();
        if was_skipped(&sound) {
            manylogs_testkit::skip(format_args!("{bug:?}, as {test} cannot run here"));
        } else if noticed {
            println!("{bug:?}: noticed by {test}");
        } else {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
