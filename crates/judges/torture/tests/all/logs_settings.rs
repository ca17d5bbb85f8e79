//! Each setting of the logs, at its bounds and beyond, on a disk in use and on one not in use. The
//! setting works at once, or is refused with the reason, and then nothing is changed.

use std::rc::Rc;

use manylogs::{Health, Settings, Volume, VolumeError};
use manylogs_block::{Nanos, Rng, Sectors};
use manylogs_mlfs::adopt::{Site, Volumes, locate};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::World;

use crate::used::{Logs, MIB, MIB_BLOCKS, User, adopted, mount, site, within};

/// Makes a log of 4 MiB: a run of 6 MiB less the structures at its ends.
const LOGS: Logs = Logs { every: 4, blocks: 6 * MIB_BLOCKS, physical: Sectors(8) };
const LONG: Nanos = Nanos::from_secs(100_000);

/// The expected result of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Works,
    /// Refused with a reason that contains these words.
    Refused(&'static str),
}
use Told::{Refused, Works};

const TABLE: &[(&str, Told)] = &[
    ("record=1M", Works),
    ("record=2M", Works),
    ("record=1028K", Works),
    ("record=2049K", Refused("2M")),
    ("record=10M", Refused("2M")),
    ("record=1020K", Refused("1M at once")),
    ("record=128K", Refused("1M at once")),
    ("record=512", Refused("not between threshold")),
    ("record=0", Refused("not between threshold")),
    ("threshold=512", Works),
    ("threshold=1020K", Works),
    ("threshold=1M", Refused("four of the largest")),
    ("threshold=0", Refused("logging=off")),
    ("logging=off", Works),
    ("logging=on", Works),
    ("adaptive=on", Works),
    ("adaptive=off", Works),
    ("swap=0.0001%", Works),
    ("swap=100%", Works),
    ("swap=0", Refused("swap")),
    ("swap=101%", Refused("swap")),
    ("watermark=0.0001%", Works),
    ("watermark=100%", Works),
    ("watermark=0", Refused("watermark")),
    ("checkpoint=full", Works),
    ("checkpoint=idle", Works),
    ("checkpoint=every:1s", Works),
    ("checkpoint=00:00-24:00", Works),
    ("checkpoint=22:00-06:00", Works),
    ("checkpoint=every:40000d", Refused("checkpoint=every")),
    ("checkpoint-rate=1", Works),
    ("checkpoint-rate=none", Works),
    ("idle=0s", Works),
    ("idle=31years", Refused("idle")),
    ("appends=1", Works),
    ("appends=64", Works),
    ("appends=0", Refused("appends")),
    ("appends=65", Refused("appends")),
    ("buffer=0", Works),
    ("buffer=16G", Works),
    ("buffer=17G", Refused("buffer")),
    ("buffer-age=0s", Works),
    ("buffer-age=1h", Works),
    ("snapshot=1s", Works),
    ("snapshot=none", Works),
    ("latency=100us", Works),
    ("latency=10s", Works),
    ("latency=99us", Refused("latency")),
    ("latency=11s", Refused("latency")),
    ("hold=1s", Works),
    ("hold=2s", Refused("hold")),
    ("hold=none", Works),
    ("band=30M", Refused("volumes of their own")),
    ("band=none", Works),
];

/// `settings` with `pair` applied, or the reason if no disk has such a setting.
fn with(settings: &Settings, pair: &str) -> Result<Settings, String> {
    let mut settings = *settings;
    settings.assign(pair).map(|()| settings).map_err(|error| error.to_string())
}

fn assert_told(pair: &str, told: Told, result: Result<(), String>) {
    match (told, result) {
        (Works, Ok(())) => {}
        (Refused(words), Err(reason)) if reason.contains(words) => {}
        (_, result) => panic!("{pair}: {told:?}, and it was {result:?}"),
    }
}

async fn set_closed(site: &Site, pair: &str) -> Result<(), String> {
    let logs = locate(site, &Volumes).await.unwrap().logs;
    let settings = Settings::of(&Volumes::identity(site, &logs).await.unwrap().config);
    let settings = with(&settings, pair)?;
    let options = Volumes::open_options(&logs).unwrap();
    let done = Volume::set_closed(Rc::clone(&site.device), &settings, &options).await;
    done.map_err(|error: VolumeError| error.to_string())
}

/// Sets `pair` while files change, and again while nothing changes.
fn live(image: &DiskImage, pair: &'static str, told: Told) -> DiskImage {
    let world = World::with_sectors(3, MIB, image.clone(), LOGS.physical);
    let (site, runtime, clock) = (site(&world), world.runtime(), world.runtime());
    let work = async move {
        let near = mount(&site).await;
        let mut user = User { site, near, rng: Rng::new(2) };
        let volume = user.volume().clone();
        let other = volume.clone();
        runtime.spawn(async move {
            // Falls into a transaction, or into the write of its record.
            for wait in [1, 7, 30, 200] {
                clock.sleep(Nanos::from_millis(wait)).await;
                let set = match with(&other.settings(), pair) {
                    Ok(settings) => other.set(&settings).await.map_err(|error| error.to_string()),
                    Err(reason) => Err(reason),
                };
                assert_told(pair, told, set);
            }
        });
        user.rewrite().await;
        user.names().await;
        user.trickle(Nanos::from_secs(1), 30).await;
        assert_eq!(volume.health(), Health::Good, "{pair}");
        user.near.unmount().await.unwrap();
    };
    assert!(within(&world, LONG, work).is_some(), "{pair}: stuck");
    world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1))
}

/// Sets `pair` while the disk is not open, and then uses the disk.
fn closed(image: &DiskImage, pair: &'static str, told: Told) {
    let world = World::with_sectors(4, MIB, image.clone(), LOGS.physical);
    let other = site(&world);
    let set = within(&world, LONG, async move { set_closed(&other, pair).await }).unwrap();
    let refused = set.is_err();
    assert_told(pair, told, set);
    let (mut before, mut after) = (image.clone(), world.settled());
    before.settle();
    after.settle();
    let same = before.fingerprint() == after.fingerprint();
    assert!(same || !refused, "{pair}: refused, and something changed");
    let world = World::with_sectors(5, MIB, after, LOGS.physical);
    let site = site(&world);
    let work = async move {
        let near = mount(&site).await;
        let mut user = User { site, near, rng: Rng::new(2) };
        user.rewrite().await;
        user.trickle(Nanos(0), 30).await;
        assert_eq!(user.volume().health(), Health::Good, "{pair}");
        user.near.unmount().await.unwrap();
    };
    assert!(within(&world, LONG, work).is_some(), "{pair}: stuck");
}

#[test]
fn a_setting_works_at_once_or_is_refused_with_the_reason() {
    let Some(mut image) = adopted(LOGS) else { return };
    for (pair, told) in TABLE {
        closed(&image, pair, *told);
        // Later settings are applied on top of it.
        image = live(&image, pair, *told);
    }
}

/// A program that did not check the bound kept a `record=` that is too short for the file system.
#[test]
fn a_record_that_was_set_too_short_is_lengthened_by_the_next_mount() {
    let Some(image) = adopted(LOGS) else { return };
    let world = World::with_sectors(3, MIB, image, LOGS.physical);
    let site = site(&world);
    let work = async move {
        let logs = locate(&site, &Volumes).await.unwrap().logs;
        let settings = Settings::of(&Volumes::identity(&site, &logs).await.unwrap().config);
        let options = Volumes::open_options(&logs).unwrap();
        let options = manylogs::OpenOptions { record_least: Sectors(0), ..options };
        let short = with(&settings, "record=128K").unwrap();
        Volume::set_closed(Rc::clone(&site.device), &short, &options).await.unwrap();
        let near = mount(&site).await;
        assert_eq!(near.volume().unwrap().config().record, manylogs_near::RECORD_LEAST);
        let mut user = User { site, near, rng: Rng::new(2) };
        user.names().await;
        user.rewrite().await;
        assert_eq!(user.volume().health(), Health::Good);
        user.near.unmount().await.unwrap();
    };
    assert!(within(&world, LONG, work).is_some(), "stuck");
}

/// A transaction grows beyond the set length of records while it waits.
fn a_grown_transaction() {
    let Some(image) = adopted(LOGS) else { return };
    let world = World::with_sectors(3, MIB, image, LOGS.physical);
    let site = site(&world);
    let work = async move {
        let near = mount(&site).await;
        let user = User { site, near, rng: Rng::new(2) };
        let (ino, volume) = (user.file("file").await, user.volume().clone());
        for number in 0..45 {
            let write = user.near.fs().write_through(ino, number * 32_768, vec![7; 32_768]);
            write.await.unwrap();
        }
        let short = with(&volume.settings(), "record=1M").unwrap();
        volume.set(&short).await.unwrap();
        user.near.fs().sync(ino).await.unwrap();
        assert!(volume.stats().record_bytes > 45 * 32_768, "it was one transaction");
        assert_eq!(volume.health(), Health::Good);
        user.near.unmount().await.unwrap();
    };
    assert!(within(&world, LONG, work).is_some(), "stuck");
}

#[test]
fn a_transaction_that_grew_under_another_setting_is_taken() {
    a_grown_transaction();
}

#[cfg(feature = "plant")]
#[test]
fn planted_refusals_of_grown_transactions_are_noticed() {
    use manylogs_plant::{Bug, plant};

    if adopted(LOGS).is_none() {
        return;
    }
    plant(Some(Bug::NearLongerBatchRefused));
    let noticed = std::panic::catch_unwind(a_grown_transaction).is_err();
    plant(None);
    assert!(noticed);
}
