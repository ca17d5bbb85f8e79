//! Whatever logs an adoption finds room for, days of use go well: no request waits for ever, and
//! nothing turns read-only on a sound disk.

use manylogs::Health;
use manylogs_block::{Extent, IoError, Nanos, Request, Rng, Sectors, to_usize};
use manylogs_mlfs::adopt::{Volumes, release};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{ImageSource, World};

use crate::used::{Logs, MIB, MIB_BLOCKS, PATIENCE, SECOND, User, adopted, mount, site, within};

/// Uses the disk, sometimes restarts or kills the program, and gives the disk back to ext4.
fn use_it(logs: Logs, seed: u64, restarts: u32, spells: u32) {
    let Some(mut image) = adopted(logs) else { return };
    let mut rng = Rng::new(seed);
    for restart in 0..restarts {
        let world = World::with_sectors(rng.below(1000), MIB, image, logs.physical);
        let (site, rng_of_user) = (site(&world), Rng::new(rng.below(1 << 30)));
        let kills = rng.below(2) == 0;
        let work = async move {
            let near = mount(&site).await;
            let mut user = User { site, near, rng: rng_of_user };
            user.work(spells).await;
            if !kills {
                user.near.unmount().await.unwrap();
            }
        };
        let day = Nanos::from_secs(24 * 3600);
        assert!(within(&world, day, work).is_some(), "{logs:?}: stuck after restart {restart}");
        image = world.disk.after_power_cut(Survival::Nothing, &mut rng);
    }
    let world = World::with_sectors(1, MIB, image, logs.physical);
    let site = site(&world);
    let work = async move {
        mount(&site).await.unmount().await.unwrap();
        release(&site, &Volumes).await
    };
    within(&world, PATIENCE, work).expect("a release ends").unwrap();
    let report = manylogs_ext4check::check(&ImageSource::new(&world.settled(), MIB)).unwrap();
    assert!(report.is_clean(), "{logs:?}: {:?}", report.findings);
}

/// Makes one tiny write a second, for two hours, into one log in a run of `mib` MiB.
fn tiny_writes(mib: u32) {
    let logs = Logs { every: 4, blocks: mib * MIB_BLOCKS, physical: Sectors(8) };
    let Some(image) = adopted(logs) else { return };
    let world = World::with_sectors(3, MIB, image, logs.physical);
    let site = site(&world);
    let work = async move {
        let near = mount(&site).await;
        let mut user = User { site, near, rng: Rng::new(1) };
        user.trickle(SECOND, 7200).await;
        assert_eq!(user.volume().health(), Health::Good);
        user.near.unmount().await.unwrap();
    };
    assert!(within(&world, Nanos::from_secs(9000), work).is_some(), "{logs:?}: stuck");
}

#[test]
fn tiny_writes_never_meet_a_log_that_stays_full() {
    [4, 5, 6, 7].into_iter().for_each(tiny_writes);
}

#[cfg(feature = "plant")]
#[test]
fn planted_room_that_leaves_a_record_out_of_the_last_log_is_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::LastLogLeavesRecordOut));
    let noticed = std::panic::catch_unwind(|| tiny_writes(5)).is_err();
    plant(None);
    assert!(noticed || !manylogs_torture::ext4::has_program("mkfs.ext4"));
}

#[test]
fn any_logs_that_an_adoption_accepts_serve_for_days() {
    let mut rng = Rng::new(27);
    for seed in 0..12 {
        let logs = Logs {
            every: [4, 4, 2, 1][to_usize(rng.below(4))],
            blocks: 4 * MIB_BLOCKS + u32::try_from(rng.below(2000)).unwrap(),
            physical: [Sectors(1), Sectors(8)][to_usize(rng.below(2))],
        };
        use_it(logs, seed, 3, 4);
    }
}

/// One of two logs cannot be written from some moment on: the other serves alone.
#[test]
fn the_log_that_is_left_of_two_serves_for_days() {
    for mib in [4, 6, 10] {
        let logs = Logs { every: 2, blocks: mib * MIB_BLOCKS, physical: Sectors(8) };
        let Some(image) = adopted(logs) else { return };
        let world = World::with_sectors(3, MIB, image, logs.physical);
        let (site, disk) = (site(&world), world.disk.clone());
        let work = async move {
            let near = mount(&site).await;
            let mut user = User { site, near, rng: Rng::new(1) };
            user.trickle(SECOND, 100).await;
            let used = user.volume().log_occupancy();
            let bad: Extent = used.iter().max_by_key(|log| log.used).unwrap().region;
            disk.fail_requests(Box::new(move |request| match request {
                Request::Write { extent, .. } if extent.overlaps(bad) => {
                    Some(IoError::Medium { extent: *extent })
                }
                _ => None,
            }));
            user.trickle(SECOND, 3000).await;
            user.names().await;
            user.fill().await;
            user.rewrite().await;
            assert_eq!(user.volume().stats().retired_logs, 1);
            assert_eq!(user.volume().health(), Health::Degraded);
            user.near.unmount().await.unwrap();
            let near = mount(&user.site).await;
            let mut user = User { near, ..user };
            user.rewrite().await;
            assert_eq!(user.volume().health(), Health::Degraded);
            user.near.unmount().await.unwrap();
            release(&user.site, &Volumes).await
        };
        let released = within(&world, Nanos::from_secs(40_000), work);
        released.unwrap_or_else(|| panic!("{logs:?}: stuck")).unwrap();
    }
}
