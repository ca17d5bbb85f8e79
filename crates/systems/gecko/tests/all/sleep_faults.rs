//! Drives that do not stop or start when they are told to, or that others start.

use manylogs_block::{BlockDevice, Extent, IoError, PowerCommand, PowerState};
use manylogs_filters::Spindle;
use manylogs_gecko::WakeCause;

use crate::sleep::{Pairs, current, in_virtual_time};

const FAULT: IoError = IoError::Transient { extent: Extent::new(0, 0) };

#[test]
fn a_drive_that_does_not_stop_is_sound_and_tried_again() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        for drive in &pairs.drives {
            let mut left = 3;
            drive.fail_power(move |command| {
                let fails = command == PowerCommand::Standby && left > 0;
                left -= i32::from(fails);
                fails.then_some(FAULT)
            });
        }
        let chain = pairs.create().await;
        let mut at = 0;
        for _ in 0..3 {
            pairs.write_until_hop(&chain, &mut at).await;
        }
        pairs.write_some(&chain, &mut at, 40).await;
        assert_eq!(pairs.asleep().len(), 2, "{:?}", chain.power());
        assert_eq!(current(&chain), 6);
    });
}

/// Whether all is read when a half fails, and its twin starts at the second try.
fn reads_from_a_half_that_starts_late() -> bool {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, at) = pairs.create_with_sleepers().await;
        let sleeper = *pairs.asleep().iter().find(|drive| **drive / 2 == 0).unwrap();
        let mut left = 1;
        pairs.drives[sleeper].fail_power(move |command| {
            let fails = command == PowerCommand::Wake && left > 0;
            left -= i32::from(fails);
            fails.then_some(FAULT)
        });
        let twin = sleeper ^ 1;
        pairs.drives[twin].below().fail_requests(Box::new(|_| Some(IoError::Gone)));
        pairs.holds_all(&chain, at).await
    })
}

#[test]
fn a_drive_that_does_not_start_at_once_is_told_to_again() {
    assert!(reads_from_a_half_that_starts_late());
}

#[cfg(feature = "plant")]
#[test]
fn a_start_that_is_not_tried_again_is_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::WakeTriedOnce));
    let reads = reads_from_a_half_that_starts_late();
    plant(None);
    assert!(!reads);
}

/// Whether a chain whose drives all stand opens, and holds what was written.
fn opens_on_drives_that_stand() -> bool {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let chain = pairs.create().await;
        let mut at = 0;
        pairs.write_some(&chain, &mut at, 40).await;
        chain.close().await.unwrap();
        drop(chain);
        let starts = || pairs.drives.iter().map(Spindle::starts).collect::<Vec<_>>();
        let before = starts();
        for drive in &pairs.drives {
            let _ = drive.clone().standing();
        }
        let Ok(chain) = pairs.open(None).await else { return false };
        assert!(pairs.drives.iter().all(|drive| drive.state() == PowerState::Awake));
        assert!(starts().iter().zip(before).all(|(now, before)| *now == before + 1));
        assert_eq!(chain.wakes().len(), 6, "{:?}", chain.wakes());
        assert!(chain.wakes().iter().all(|wake| wake.cause == WakeCause::Open));
        assert!(chain.power().iter().all(|half| half.starts_left == 999), "{:?}", chain.power());
        pairs.holds_all(&chain, at).await
    })
}

#[test]
fn an_opening_starts_drives_that_stand_and_counts_that() {
    assert!(opens_on_drives_that_stand());
}

#[cfg(feature = "plant")]
#[test]
fn an_opening_that_starts_nobody_is_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::OpeningWakesNobody));
    let opens = opens_on_drives_that_stand();
    plant(None);
    assert!(!opens);
}

#[test]
fn a_start_by_another_program_is_noticed_and_counts() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, mut at) = pairs.create_with_sleepers().await;
        let sleeper = pairs.asleep()[0];
        let counted = || chain.wakes().iter().filter(|it| it.cause == WakeCause::Other).count();
        assert_eq!(counted(), 0);
        pairs.drives[sleeper].power(PowerCommand::Wake).await.unwrap();
        pairs.write_some(&chain, &mut at, 20).await;
        assert_eq!(counted(), 1, "{:?}", chain.wakes());
        let sleeps_again = |drive: &usize| drive / 2 == sleeper / 2;
        assert!(pairs.asleep().iter().any(sleeps_again), "a half of the pair sleeps again");
    });
}
