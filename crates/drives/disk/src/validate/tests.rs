use std::path::PathBuf;

use super::*;
use crate::profile::find;

/// The measured half, if this machine has it: it may be missing from the repository.
fn recording() -> Option<Vec<Record>> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let shared = std::env::var_os("MANYLOGS_SHARED")
        .map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let path = shared.join("data/disks/cheetah-15k5/measured-first-half.trace");
    if !path.exists() {
        manylogs_testkit::skip(format_args!("no measured requests at {}", path.display()));
        return None;
    }
    Some(read_trace(&path).unwrap())
}

fn cheetah() -> Profile {
    find("cheetah-15k5").unwrap().unwrap()
}

#[test]
fn the_cheetah_matches_its_recording() {
    let Some(records) = recording() else { return };
    let report = report(&cheetah(), &records, Chosen::Even, 1);
    let failed: Vec<&Bar> = report.bars.iter().filter(|bar| !bar.passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let (score, physics) = (&report.score, &report.physics_only);
    assert!(score.all.demerit_rms_ms <= 0.15, "the goal: {}", score.all.demerit_rms_ms);
    // What rotation, layout and idle work explain without random terms; the sampling noise is 0.12.
    assert!(physics.all.demerit_rms_ms <= 0.20, "{}", physics.all.demerit_rms_ms);
    assert!(physics.correlation >= 0.70 && physics.within_100_us >= 0.88, "{physics:#?}");
    assert!(
        physics.deciles.iter().all(|d| d.mean_error_ms.abs() <= 0.35),
        "{:#?}",
        physics.deciles
    );
}

#[test]
fn the_score_does_not_hang_on_the_seed() {
    let Some(records) = recording() else { return };
    for seed in 2..12 {
        let score = score(&cheetah(), &records, Chosen::Even, RandomTerms::ON, seed);
        assert!(score.all.demerit_rms_ms <= 0.20, "seed {seed}: {}", score.all.demerit_rms_ms);
    }
}

#[test]
fn a_replay_is_repeatable() {
    let Some(records) = recording() else { return };
    let times = || {
        replay(&cheetah(), &records, RandomTerms::ON, 7).iter().map(|c| c.modelled.0).sum::<u64>()
    };
    assert_eq!(times(), times());
}

#[test]
fn every_drive_streams_at_its_rate_and_gains_from_queueing() {
    let rates = [
        ("cheetah-15k5", 134.5, 80.7),
        ("constellation-es3", 175.0, 83.0),
        ("exos-x20", 285.0, 135.0),
        // Against 190 and 100 of the medium, and 135 and 65: the guard regions take time to pass.
        ("st8000as0002", 178.9, 97.1),
        ("wd40nmzw", 130.5, 64.2),
        ("wd5000ys", 62.5, 31.0),
    ];
    assert_eq!(rates.map(|rate| rate.0).to_vec(), crate::profile::drives());
    for (name, outer, inner) in rates {
        let profile = find(name).unwrap().unwrap();
        let found = gates(&profile, 1);
        assert!((found.sequential_outer_mb_s / outer - 1.0).abs() <= 0.01, "{name}: {found:?}");
        assert!((found.sequential_inner_mb_s / inner - 1.0).abs() <= 0.01, "{name}: {found:?}");
        if profile.rpm() < 8_000.0 {
            assert!((2.0..=2.5).contains(&found.queueing_gain), "{name}: {found:?}");
        }
    }
}

#[test]
fn the_score_of_a_perfect_model_is_zero() {
    let perfect: Vec<Compared> = (1..=100_u32)
        .map(|i| {
            let time = Nanos(u64::from(i) * 100_000);
            Compared { write: i % 3 == 0, distance: i, measured: time, modelled: time }
        })
        .collect();
    let score = Score::of(&perfect);
    assert_eq!((score.all.demerit_rms_ms, score.all.mean_error_ms), (0.0, 0.0));
    assert!((score.correlation - 1.0).abs() < 1e-9);
    assert_eq!((score.reads.requests, score.writes.requests), (67, 33));
    let late: Vec<Compared> =
        perfect.iter().map(|c| Compared { modelled: c.modelled + Nanos(500_000), ..*c }).collect();
    assert!((Score::of(&late).all.demerit_rms_ms - 0.5).abs() < 1e-9);
}
