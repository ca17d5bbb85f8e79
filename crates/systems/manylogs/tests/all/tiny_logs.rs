//! Volumes with the shortest logs that are accepted, and settings at their bounds: no request waits
//! for ever, and no volume becomes read-only on a device that does not fail.

use std::rc::Rc;

use crate::common::{bytes, low_byte, read, write};
use manylogs::{
    CheckpointPolicy, Health, LogPlacement, OpenOptions, Settings, Volume, VolumeConfig,
    VolumeError,
};
use manylogs_block::{
    BlockDevice, Completion, Extent, Handle, Nanos, Request, Rng, Sectors, to_usize,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

const DISK: Sectors = Sectors(60_000);
/// Far more time than any of these tests needs unless a request is stuck.
const LONG: Nanos = Nanos::from_secs(200_000);

/// Runs `work` on a disk, then cuts the power: returns what the disk holds.
fn on<F: Future<Output = ()> + 'static>(
    physical: Sectors,
    image: DiskImage,
    what: &str,
    work: impl FnOnce(Handle, Rc<dyn BlockDevice>) -> F,
) -> DiskImage {
    let sim = Sim::new(7, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let config = CrashDiskConfig {
        native_fua: true,
        capacity: DISK,
        physical_sector: physical,
        volatile_cache: true,
        latency_max: Nanos::from_millis(5),
    };
    let disk = CrashDisk::new(sim.handle(drive), config, image);
    let done = Rc::new(std::cell::Cell::new(false));
    let (end, work) = (Rc::clone(&done), work(sim.handle(user), Rc::new(disk.clone())));
    sim.handle(user).spawn(async move {
        work.await;
        end.set(true);
    });
    sim.run_until(|| done.get() || sim.now().0 > LONG.0);
    assert!(done.get(), "{what}: stuck");
    disk.after_power_cut(Survival::Nothing, &mut Rng::new(1))
}

/// Sends small writes to a few places, large ones over them, discards and flushes.
async fn use_it(volume: &Volume, runtime: &Handle, rng: &mut Rng, rounds: u64) {
    for round in 0..rounds {
        let requests: Vec<Request> = (0..1 + rng.below(6))
            .map(|_| {
                let at = rng.below(400);
                match rng.below(12) {
                    0 => Request::Flush,
                    1 => Request::Discard {
                        extent: Extent::new(at, 1 + rng.below(9000)),
                        fua: false,
                    },
                    2 => write(at, &bytes(low_byte(round), 700), rng.below(2) == 0),
                    len => write(at, &bytes(low_byte(round), len), rng.below(2) == 0),
                }
            })
            .collect();
        let sent: Vec<Completion> = requests.into_iter().map(|one| volume.submit(one)).collect();
        for answer in sent {
            answer.await.unwrap();
        }
        if rng.below(40) == 0 {
            runtime.sleep(Nanos::from_millis(rng.below(20_000))).await;
        }
    }
    volume.submit(Request::Flush).await.unwrap();
}

/// Checks small and large writes of known content afterwards.
async fn still_works(volume: &Volume) {
    for number in 0..30 {
        let content = bytes(number, 1 + u64::from(number));
        volume.submit(write(1000, &content, true)).await.unwrap();
        let found = volume.submit(read(1000, content.len().0)).await.unwrap();
        assert_eq!(found.to_bytes(), content.to_bytes());
    }
}

#[test]
fn the_shortest_logs_that_are_accepted_never_stay_full() {
    let (mut accepted, mut refused) = (0, 0);
    let mut rng = Rng::new(3);
    for case in 0..120 {
        let physical = Sectors([1, 1, 8, 8, 32, 128][to_usize(rng.below(6))]);
        let threshold = Sectors(1 + [rng.below(4), rng.below(40), 300][to_usize(rng.below(3))]);
        let log = Sectors(4 * (threshold.0 + 8) + rng.below(3 * physical.0 + 20));
        let record = Sectors((threshold.0 + rng.below(20)).min(log.0 / 2));
        let placement = match rng.below(3) {
            0 => LogPlacement::Single(0.5),
            1 => LogPlacement::EveryGroup(Sectors(30_000)),
            _ => LogPlacement::EveryGroup(Sectors(9_000)),
        };
        let checkpoint = CheckpointPolicy::OnFull;
        let config =
            VolumeConfig { threshold, log, record, placement, checkpoint, ..Default::default() };
        let mut rng_of_user = Rng::new(case);
        let made = Rc::new(std::cell::Cell::new(false));
        let is_made = Rc::clone(&made);
        let what = format!("case {case}: {config:?}, sectors of {physical:?}");
        let name = what.clone();
        on(physical, DiskImage::default(), &what, |runtime, device| async move {
            let volume = match Volume::create(runtime.clone(), device, &config).await {
                Ok(volume) => volume,
                Err(VolumeError::Config(_) | VolumeError::TooSmall { .. }) => return,
                Err(error) => panic!("{name}: {error}"),
            };
            is_made.set(true);
            use_it(&volume, &runtime, &mut rng_of_user, 300).await;
            still_works(&volume).await;
            assert_eq!(volume.health(), Health::Good, "{name}");
            volume.close().await.unwrap();
        });
        if made.get() { accepted += 1 } else { refused += 1 }
    }
    assert!(accepted > 40 && refused > 5, "{accepted} accepted, {refused} refused");
}

/// Each value, and words of the reason for its refusal; empty if it is accepted.
const TABLE: &[(&str, &str)] = &[
    ("record=64K", ""),
    ("record=256K", ""),
    ("record=257K", "half of log"),
    ("record=8K", "not between threshold"),
    ("record=3M", "2M"),
    ("threshold=512", ""),
    ("threshold=124K", ""),
    ("threshold=125K", "four of the largest"),
    ("threshold=0", "logging=off"),
    ("logging=off", ""),
    ("logging=on", ""),
    ("adaptive=on", ""),
    ("swap=0.0001%", ""),
    ("swap=100%", ""),
    ("swap=0", "swap"),
    ("swap=101%", "swap"),
    ("watermark=0.0001%", ""),
    ("watermark=100%", ""),
    ("watermark=0", "watermark"),
    ("checkpoint=idle", ""),
    ("checkpoint=every:1ms", ""),
    ("checkpoint=every:0s", "every:10min"),
    ("checkpoint=00:00-24:00", ""),
    ("checkpoint=full", ""),
    ("checkpoint-rate=1", ""),
    ("checkpoint-rate=none", ""),
    ("idle=0s", ""),
    ("idle=12000d", "idle"),
    ("appends=1", ""),
    ("appends=64", ""),
    ("appends=0", "appends"),
    ("appends=65", "appends"),
    ("buffer=0", ""),
    ("buffer=16G", ""),
    ("buffer=17G", "buffer"),
    ("buffer-age=0s", ""),
    ("snapshot=10ms", ""),
    ("snapshot=none", ""),
    ("latency=100us", ""),
    ("latency=10s", ""),
    ("latency=99us", "latency"),
    ("latency=11s", "latency"),
    ("latency=none", ""),
    ("hold=1s", ""),
    ("hold=2s", "hold"),
    ("hold=none", ""),
    ("band=64K", ""),
    ("band=256M", ""),
    ("band=63K", "band"),
    ("band=257M", "band"),
    ("band=none", ""),
];

fn assert_told(pair: &str, words: &str, done: Result<(), String>) {
    match (words, done) {
        ("", Ok(())) => {}
        ("", Err(reason)) => panic!("{pair}: {reason}"),
        (words, Err(reason)) if reason.contains(words) => {}
        (words, done) => panic!("{pair}: {words} expected, {done:?}"),
    }
}

fn with(settings: Settings, pair: &str) -> Result<Settings, String> {
    let mut settings = settings;
    settings.assign(pair).map(|()| settings).map_err(|error| error.to_string())
}

async fn set(volume: &Volume, pair: &str) -> Result<(), String> {
    let settings = with(volume.settings(), pair)?;
    volume.set(&settings).await.map_err(|error| error.to_string())
}

fn parameters() -> VolumeConfig {
    VolumeConfig {
        placement: LogPlacement::EveryGroup(Sectors(20_000)),
        ..VolumeConfig::default().with_log(Sectors(1024))
    }
}

#[test]
fn each_setting_works_at_once_under_load_or_is_refused_with_the_reason() {
    let mut image = on(Sectors(8), DiskImage::default(), "format", |runtime, device| async move {
        let made = Volume::create(runtime, device, &parameters()).await.unwrap();
        made.close().await.unwrap();
    });
    for (pair, words) in TABLE {
        // First on a closed volume; later pairs are set on top of it.
        image = on(Sectors(8), image, pair, |_, device| async move {
            let identity = manylogs::identify(&device).await.unwrap();
            let done = match with(Settings::of(&identity.config), pair) {
                Ok(settings) => Volume::set_closed(device, &settings, &OpenOptions::default())
                    .await
                    .map_err(|error| error.to_string()),
                Err(reason) => Err(reason),
            };
            assert_told(pair, words, done);
        });
        image = on(Sectors(8), image, pair, |runtime, device| async move {
            let opened = Volume::open(runtime.clone(), device, &OpenOptions::default()).await;
            let (volume, clock) = (opened.unwrap().0, runtime.clone());
            let other = volume.clone();
            let setting = async move {
                for wait in [1, 20, 300] {
                    clock.sleep(Nanos::from_millis(wait)).await;
                    assert_told(pair, words, set(&other, pair).await);
                }
            };
            runtime.spawn(setting);
            use_it(&volume, &runtime, &mut Rng::new(9), 120).await;
            still_works(&volume).await;
            assert_eq!(volume.health(), Health::Good, "{pair}");
            volume.close().await.unwrap();
        });
    }
}

/// A long write waits for room when the threshold falls below its length.
#[test]
fn a_write_that_waits_while_the_threshold_falls_finds_a_log() {
    on(Sectors(8), DiskImage::default(), "threshold", |runtime, device| async move {
        let volume = Volume::create(runtime.clone(), device, &parameters()).await.unwrap();
        let mut answers = Vec::new();
        // Writes to the same places, which cannot go home instead.
        for round in 0..60_u8 {
            for place in [0, 200] {
                answers.push(volume.submit(write(place, &bytes(round, 64), true)));
            }
            if round == 20 {
                set(&volume, "threshold=512").await.unwrap();
            }
        }
        for answer in answers {
            answer.await.unwrap();
        }
        assert_eq!(volume.health(), Health::Good);
        volume.close().await.unwrap();
    });
}
