//! Halves of pairs that sleep, on drives that fail requests while they stand.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, IoError, Nanos, PowerState, Sectors};
use manylogs_filters::Spindle;
use manylogs_gecko::{
    Chain, ChainError, ChainOptions, ChainSettings, Cleaning, SleepSettings, Standing, WakeCause,
};
use manylogs_sim::{CrashDisk, DiskImage};

use crate::common::{PIECE, SEGMENT, World, holds, write};

const PER_DRIVE: u64 = 30;
/// Pieces of the export: more than one link holds, so that the tail must go on to the next.
const PIECES: u64 = 260;
pub(crate) const SPIN_UP: Nanos = Nanos::from_millis(5);
const PAUSE: Nanos = Nanos::from_millis(1);

const fn settings(wakes_a_day: u32) -> SleepSettings {
    SleepSettings { wakes_a_day, spin_up: SPIN_UP, rest: Nanos::from_millis(2) }
}

/// Three pairs of drives that can stand.
pub(crate) struct Pairs {
    pub(crate) user: Handle,
    pub(crate) drives: Vec<Spindle<CrashDisk>>,
    settings: ChainSettings,
}

impl Pairs {
    pub(crate) fn new(world: &World, disks: Vec<CrashDisk>, wakes_a_day: u32) -> Self {
        let spindle = |disk| Spindle::new(world.drive.clone(), disk, SPIN_UP);
        let sleep = Some(settings(wakes_a_day));
        let settings = ChainSettings { sleep, cleaning: Cleaning::MoveToTail, ..world.settings };
        let drives = disks.into_iter().map(spindle).collect();
        Self { user: world.user.clone(), drives, settings }
    }

    pub(crate) fn blank(world: &World, wakes_a_day: u32) -> Self {
        let disks = (0..6).map(|_| world.disk(DiskImage::default())).collect();
        Self::new(world, disks, wakes_a_day)
    }

    fn devices(&self, without: Option<usize>) -> Vec<Rc<dyn BlockDevice>> {
        let all = self.drives.iter().enumerate().filter(|(number, _)| Some(*number) != without);
        all.map(|(_, drive)| Rc::new(drive.clone()) as Rc<dyn BlockDevice>).collect()
    }

    pub(crate) async fn create(&self) -> Chain {
        let export = Some(Sectors(PIECES * PIECE.0));
        let options = ChainOptions { segment: SEGMENT, export, mirror: true, summaries: false };
        let made = Chain::create(self.user.clone(), self.devices(None), options, self.settings);
        made.await.unwrap()
    }

    pub(crate) async fn open(&self, without: Option<usize>) -> Result<Chain, ChainError> {
        let settings = ChainSettings { degraded: without.is_some(), ..self.settings };
        Chain::open(self.user.clone(), self.devices(without), settings).await
    }

    /// A chain of which all links were written before it was closed and opened. So its root does
    /// not name all segments, and is written now and then. Returns it and the next piece.
    pub(crate) async fn create_with_naming(&self) -> (Chain, u64) {
        let (chain, mut at) = (self.create().await, 0);
        self.write_some(&chain, &mut at, 3 * PIECES).await;
        chain.close().await.unwrap();
        (self.open(None).await.unwrap(), at)
    }

    /// Opens the chain though halves may be missing.
    pub(crate) async fn open_degraded(&self) -> Result<Chain, ChainError> {
        let settings = ChainSettings { degraded: true, ..self.settings };
        Chain::open(self.user.clone(), self.devices(None), settings).await
    }

    pub(crate) fn asleep(&self) -> Vec<usize> {
        let stands = |number: &usize| self.drives[*number].state() == PowerState::Standby;
        (0..self.drives.len()).filter(stands).collect()
    }

    /// Writes pieces one after the other with pauses, until the tail is on another link.
    pub(crate) async fn write_until_hop(&self, chain: &Chain, at: &mut u64) {
        let from = chain.tail_drive();
        while chain.tail_drive() == from {
            self.write_next(chain, at).await;
        }
    }

    /// Writes so many pieces.
    pub(crate) async fn write_some(&self, chain: &Chain, at: &mut u64, count: u64) {
        for _ in 0..count {
            self.write_next(chain, at).await;
        }
    }

    /// A new chain that was written until the tail was on the second link, and a little further: a
    /// half of each other link sleeps. Returns it and the next piece.
    pub(crate) async fn create_with_sleepers(&self) -> (Chain, u64) {
        let (chain, mut at) = (self.create().await, 0);
        self.write_until_hop(&chain, &mut at).await;
        self.write_some(&chain, &mut at, 40).await;
        (chain, at)
    }

    pub(crate) async fn write_next(&self, chain: &Chain, at: &mut u64) {
        write(chain, *at % PIECES, *at << 20).await;
        *at += 1;
        self.user.sleep(PAUSE).await;
    }

    /// Whether all pieces hold what was written last.
    pub(crate) async fn holds_all(&self, chain: &Chain, at: u64) -> bool {
        for piece in 0..PIECES {
            let last = (at + PIECES - 1 - piece) / PIECES * PIECES + piece;
            let last = last.checked_sub(PIECES);
            if let Some(last) = last
                && !holds(chain, piece, last << 20).await
            {
                return false;
            }
        }
        true
    }
}

pub(crate) fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    let settings = ChainSettings { buffer: Sectors(8), ..ChainSettings::default() };
    crate::common::in_virtual_time(PER_DRIVE, settings, test)
}

fn waited(chain: &Chain) -> u64 {
    chain.power().iter().map(|half| half.waited).sum()
}

pub(crate) fn current(chain: &Chain) -> usize {
    let is_current = |standing| matches!(standing, Standing::Current(_));
    chain.halves().iter().filter(|half| is_current(half.standing)).count()
}

#[test]
fn two_of_six_drives_sleep_and_no_request_waits_for_them() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let chain = pairs.create().await;
        let mut at = 0;
        for hop in 0..7 {
            pairs.write_until_hop(&chain, &mut at).await;
            // While the tail is far from the end of its drive, a half of each other pair sleeps.
            pairs.write_some(&chain, &mut at, 25).await;
            let asleep = pairs.asleep();
            assert_eq!(asleep.len(), 2, "after hop {hop}: {asleep:?}");
            let tail = chain.tail_drive();
            assert!(asleep.iter().all(|drive| drive / 2 != tail), "{asleep:?}, tail {tail}");
            assert!(pairs.holds_all(&chain, at).await);
            assert_eq!(pairs.asleep(), asleep, "a read woke a half");
        }
        assert_eq!(waited(&chain), 0, "{:?}", chain.wakes());
        assert!(chain.wakes().iter().all(|wake| wake.cause == WakeCause::Tail));
        assert!(chain.wakes().len() >= 5, "{:?}", chain.wakes());
        assert_eq!(current(&chain), 6);
    });
}

#[test]
fn the_twin_of_a_half_that_fails_is_woken_and_no_read_fails() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, mut at) = pairs.create_with_sleepers().await;
        let asleep = pairs.asleep();
        let sleeper = *asleep.iter().find(|drive| **drive / 2 == 0).unwrap();
        let twin = sleeper ^ 1;
        pairs.drives[twin].below().fail_requests(Box::new(|_| Some(IoError::Gone)));
        assert!(pairs.holds_all(&chain, at).await);
        assert_eq!(pairs.drives[sleeper].state(), PowerState::Awake);
        // It stays awake as long as its twin is not sound.
        pairs.user.sleep(Nanos::from_millis(500)).await;
        assert_eq!(pairs.drives[sleeper].state(), PowerState::Awake);
        assert!(chain.wakes().iter().any(|wake| wake.cause == WakeCause::Read));
        pairs.write_some(&chain, &mut at, 200).await;
        assert!(pairs.holds_all(&chain, at).await);
    });
}

/// Whichever drive is lost with the power, the newest root is found.
#[test]
fn nothing_is_lost_with_the_power_while_halves_sleep() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, mut at) = pairs.create_with_naming().await;
        // To the third link: the first two have the root, and sleepers that have an old one.
        pairs.write_until_hop(&chain, &mut at).await;
        pairs.write_until_hop(&chain, &mut at).await;
        pairs.write_some(&chain, &mut at, 100).await;
        assert_eq!(pairs.asleep().len(), 2, "{:?}", chain.wakes());
        assert_eq!(waited(&chain), 0, "{:?}", chain.wakes());
        for without in [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)] {
            let mut rng = manylogs_block::Rng::new(3);
            let cut = |drive: &Spindle<CrashDisk>| {
                let nothing = manylogs_sim::Survival::Nothing;
                world.disk(drive.below().after_power_cut(nothing, &mut rng))
            };
            let disks = pairs.drives.iter().map(cut).collect();
            let after = Pairs::new(&world, disks, 1000);
            let chain = after.open(without).await.unwrap();
            assert!(after.holds_all(&chain, at).await, "without {without:?}");
        }
    });
}

#[test]
fn a_close_leaves_both_halves_alike() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, at) = pairs.create_with_sleepers().await;
        assert_eq!(pairs.asleep().len(), 2);
        chain.close().await.unwrap();
        assert_eq!(pairs.asleep(), [] as [usize; 0]);
        assert!(chain.wakes().iter().any(|wake| wake.cause == WakeCause::Close));
        let chain = pairs.open(None).await.unwrap();
        assert_eq!(chain.figures().settled, Sectors(0));
        assert!(pairs.holds_all(&chain, at).await);
    });
}

/// The most starts that a drive had which may have three a day, with so many hops of the tail.
fn starts_of_three(hops: u32) -> u64 {
    in_virtual_time(move |world| async move {
        let pairs = Pairs::blank(&world, 3);
        let chain = pairs.create().await;
        let mut at = 0;
        for _ in 0..hops {
            pairs.write_until_hop(&chain, &mut at).await;
        }
        assert_eq!(current(&chain), 6);
        pairs.drives.iter().map(Spindle::starts).max().unwrap()
    })
}

#[test]
fn a_drive_without_starts_left_stays_awake() {
    assert_eq!(starts_of_three(30), 3);
}

#[cfg(feature = "plant")]
#[test]
fn an_ignored_budget_is_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::WakeBudgetIgnored));
    let starts = starts_of_three(30);
    plant(None);
    assert!(starts > 3, "{starts} starts of three");
}

#[test]
fn drives_whose_power_nothing_commands_serve_as_ever() {
    in_virtual_time(|world| async move {
        let world = World {
            settings: ChainSettings { sleep: Some(settings(1000)), ..world.settings },
            ..world
        };
        let chain = world.create(4, true, 40).await;
        for piece in 0..40 {
            write(&chain, piece, 1 << 20).await;
            world.user.sleep(PAUSE).await;
        }
        assert!(chain.power().len() == 4 && chain.power().iter().all(|half| half.state.is_none()));
        assert_eq!(chain.wakes(), []);
        assert_eq!(current(&chain), 4);
        chain.close().await.unwrap();
        assert_eq!(current(&chain), 4);
    });
}
