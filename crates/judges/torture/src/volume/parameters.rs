//! Random parameters of volumes for histories.

use manylogs::{CheckpointPolicy, LogPlacement, VolumeConfig};
use manylogs_block::{Nanos, Rng, Sectors, to_usize};

use crate::volume::plan::Trouble;

/// Parameters of a volume so small that its logs fill and wrap all the time.
pub fn small_config(rng: &mut Rng) -> VolumeConfig {
    let log = Sectors(8 * (12 + rng.below(8)));
    let placement = if rng.one_in(5) {
        LogPlacement::Single(0.1 * rng.below(11) as f64)
    } else {
        LogPlacement::EveryGroup(Sectors(8 * (30 + rng.below(20))))
    };
    changed(&VolumeConfig { log, placement, ..VolumeConfig::default() }, rng)
}

/// Other parameters for the same layout, which a volume in use may be given.
pub(crate) fn changed(fixed: &VolumeConfig, rng: &mut Rng) -> VolumeConfig {
    // Every log has room for four of the largest records.
    let threshold = Sectors((4 + rng.below(13)).min(fixed.log.0 / 4 - 8));
    let checkpoint = match rng.below(4) {
        0 => CheckpointPolicy::OnFull,
        1 => CheckpointPolicy::Idle,
        2 => CheckpointPolicy::OffHours { from_s: 0, until_s: 0 },
        _ => CheckpointPolicy::Every(Nanos::from_millis(5 + rng.below(100))),
    };
    VolumeConfig {
        threshold,
        record: Sectors(threshold.0 + rng.below(fixed.log.0 / 2 - threshold.0)),
        swap: 0.3 + 0.1 * rng.below(6) as f64,
        checkpoint,
        idle: Nanos::from_millis(1 + rng.below(10)),
        watermark: 0.5 + 0.1 * rng.below(6) as f64,
        appends: to_usize(1 + rng.below(4)),
        buffer: Sectors(rng.below(64)),
        buffer_age: Nanos::from_millis(1 + rng.below(50)),
        snapshot: if rng.one_in(3) { Nanos(0) } else { Nanos::from_millis(5 + rng.below(60)) },
        logging: !rng.one_in(8),
        ..*fixed
    }
}

/// One of the troubles, each as often as the others.
pub(crate) fn any_trouble(rng: &mut Rng) -> Trouble {
    match rng.below(3) {
        0 => Trouble::Medium,
        1 => Trouble::Any,
        _ => Trouble::Opening,
    }
}
