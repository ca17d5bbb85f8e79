use std::path::PathBuf;

use super::*;
use crate::profile::find;

/// The measured half, if this machine has it: it may not be part of the repository.
fn recording() -> Option<Vec<Record>> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("MANYLOGS_SHARED")
        .map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let path = shared.join("data/disks/cheetah-15k5/measured-first-half.trace");
    if !path.exists() {
        println!("skipped: no measured requests at {}", path.display());
        return None;
    }
    Some(read_trace(&path).unwrap())
}

fn cheetah() -> Profile {
    find("cheetah-15k5").unwrap().unwrap()
}

#[test]
fn the_cheetah_scores_below_the_goal() {
    let Some(records) = recording() else { return };
    for (chosen, terms) in [
        (Chosen::Even, RandomTerms::ON),
        (Chosen::Odd, RandomTerms::ON),
        (Chosen::All, RandomTerms::ON),
        (Chosen::Even, RandomTerms::OFF),
        (Chosen::All, RandomTerms::OFF),
    ] {
        let score = score(&cheetah(), &records, chosen, terms, 1);
        println!("{chosen:?} {terms:?}\n{score:#?}");
    }
}

#[test]
fn every_drive_streams_at_its_rate_and_gains_from_queueing() {
    for name in crate::profile::drives() {
        let profile = find(name).unwrap().unwrap();
        println!("{name} {:#?}", gates(&profile, 1));
    }
}
