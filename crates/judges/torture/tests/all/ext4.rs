//! The file system ext4, crashed and damaged by the campaign.

use std::ops::RangeInclusive;
use std::time::Instant;

use manylogs_ext4check::check;
use manylogs_torture::ext4::{self, ImageSource, Templates, has_program};
use manylogs_torture::{Campaign, Ext4Campaign, Progress, Summary, System};

/// The size of new images in MiB.
const MIB: u64 = 96;
/// Number of crash states that a test run must see at least.
const STATES: u64 = 3_000;
/// Number of damaged images that a test run tries.
const MUTANTS: u64 = 2_000;

/// The images; `None`, and a report, if mkfs.ext4 or e2fsck is missing.
fn templates() -> Option<Templates> {
    if has_program("mkfs.ext4") && has_program("e2fsck") {
        return Some(Templates::make().unwrap());
    }
    manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
    None
}

/// For images with usual options both judges find nothing. Prints the time that each takes.
#[test]
fn new_images_of_every_kind_are_clean_for_both_judges() {
    if templates().is_none() {
        return;
    }
    let kinds: [&[&str]; 8] = [
        &[],
        &["-O", "^metadata_csum,^64bit"],
        &["-O", "^flex_bg", "-I", "128"],
        &["-O", "^extents,^64bit,^metadata_csum"],
        &["-O", "orphan_file,metadata_csum_seed"],
        &["-O", "^metadata_csum,^uninit_bg,^resize_inode"],
        &["-O", "sparse_super2,^resize_inode"],
        &["-O", "meta_bg,^resize_inode"],
    ];
    for kind in kinds {
        let options = [&["-g", "2048", "-J", "size=4"], kind].concat();
        let image = ext4::mkfs(MIB, &options).unwrap();
        let begun = Instant::now();
        let report = check(&ImageSource::new(&image, MIB)).unwrap();
        let ours = begun.elapsed();
        assert_eq!(report.findings, [], "{kind:?}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        ext4::save(&image, MIB, &path).unwrap();
        let begun = Instant::now();
        let said = ext4::e2fsck(&["-fn"], &path);
        assert_eq!(said.code, 0, "{kind:?}: {said}");
        println!("{kind:?}: {ours:?}, e2fsck {:?}", begun.elapsed());
    }
}

fn run(seeds: RangeInclusive<u64>, states: Option<u64>, mutate: bool) -> Option<Summary> {
    run_system(System::Ext4, seeds, states, mutate)
}

fn run_system(
    system: System,
    seeds: RangeInclusive<u64>,
    states: Option<u64>,
    mutate: bool,
) -> Option<Summary> {
    let campaign = Campaign {
        system,
        seeds,
        states,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        faults: false,
        trouble: false,
        array: None,
        ext4: Some(Ext4Campaign { images: templates()?, e2fsck_every: 40, mutate }),
    };
    Some(campaign.run(&Progress::default()))
}

#[test]
fn what_was_synced_is_there_after_every_crash() {
    // Few histories write the journal's superblock: from here on one of the first does.
    let Some(summary) = run(152..=u64::MAX - 1, Some(STATES), false) else { return };
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert!(tally.phases.total() >= STATES);
    let of_each = tally.phases.iter().filter(|(_, states)| *states > 0).count();
    assert_eq!(of_each, 5, "mounts, logs, homes, tails and recoveries are crashed");
    // One judged state in 40 is also judged by e2fsck, which replays half of those.
    assert!(tally.judged_by_e2fsck >= STATES / 100 && tally.replayed_by_e2fsck >= STATES / 200);
    assert!(tally.nested >= STATES / 10);
}

/// The content that another mode, or e2fsck, finds in a journal that was left full is judged as
/// well.
#[test]
fn a_journal_that_keeps_what_it_holds_loses_nothing() {
    let run = run_system(System::Lazy, 1..=u64::MAX - 1, Some(STATES / 2), false);
    let Some(summary) = run else { return };
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert!(tally.phases.total() >= STATES / 2);
    let of_each = tally.phases.iter().filter(|(_, states)| *states > 0).count();
    assert_eq!(of_each, 5, "mounts, logs, homes, tails and recoveries are crashed");
    assert!(tally.judged_by_e2fsck >= STATES / 200 && tally.replayed_by_e2fsck >= STATES / 400);
    assert!(tally.nested >= STATES / 20);
    // What a block of the journal held is there, or its loss is told.
    let (damaged, told) = (tally.damaged_logs, tally.damaged_logs_told);
    assert!(told >= STATES / 200 && damaged - told >= STATES / 200, "{told} of {damaged}");
}

#[test]
fn damaged_images_are_refused_or_used_with_errors() {
    let Some(summary) = run(1..=MUTANTS, None, true) else { return };
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert_eq!(tally.mutated, MUTANTS);
    assert!(tally.mutated_mounted >= MUTANTS / 4);
    assert!(tally.mutated_found_by_both >= MUTANTS / 400);
}
