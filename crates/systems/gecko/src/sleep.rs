//! Halves of pairs that sleep (section 3.1 of the paper).
//!
//! Of each pair but the tail's one half sleeps, and the other one is read. All changes of a pair go
//! to both halves before they are answered, as ever: a half that sleeps is started for them. So
//! both halves hold the same, whatever sleeps, and a sleeper is as good a twin as any. Only the
//! root may be older on it: see the module `pair::root`.
//!
//! What keeps halves asleep is that nothing is written to the body but for cleaning, which works in
//! batches, and that the half where the tail comes next is started before it is there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, Nanos, PowerState, PowerTimes, TimeOfDay};

use crate::chain::Chain;
use crate::keeper::Drive;
use crate::ondisk::Superblock;
use crate::state::Inner;

mod budget;
mod renew;
mod rota;
mod sleeper;
pub(crate) use rota::Rota;
pub(crate) use sleeper::Sleeper;

/// Starts that are remembered with their causes.
const WAKES_KEPT: usize = 64;

/// How halves sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepSettings {
    /// Starts of each drive in 24 hours. A drive that has none left stays awake.
    pub wakes_a_day: u32,
    /// How long a drive takes to start, as far as that is known. The longest start that was seen
    /// counts if it is longer.
    pub spin_up: Nanos,
    /// A half goes to sleep when nobody used it for this time.
    pub rest: Nanos,
}

impl Default for SleepSettings {
    fn default() -> Self {
        Self { wakes_a_day: 24, spin_up: Nanos::from_secs(30), rest: Nanos::from_secs(60) }
    }
}

/// Why a half was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// The tail comes to its pair soon.
    Tail,
    /// Something was read from it: its twin failed, or it is compared with its twin.
    Read,
    /// Something was written to its pair: by cleaning, or by a change of members.
    Write,
    /// Its twin failed, or a drive joins.
    Twin,
    /// The chain is closed.
    Close,
    /// The chain is opened, and the drive stood.
    Open,
    /// Another program used it.
    Other,
}

impl WakeCause {
    /// The cause in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tail => "the tail comes to its pair",
            Self::Read => "it was read",
            Self::Write => "its pair was written",
            Self::Twin => "its twin failed, or another drive joins",
            Self::Close => "the chain was closed",
            Self::Open => "the chain was opened",
            Self::Other => "another program used it",
        }
    }
}

impl fmt::Display for WakeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A start of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Counts all starts since the chain was opened, from 1.
    pub number: u64,
    /// When it was.
    pub at: TimeOfDay,
    /// The drive, by its number among those with which the chain was opened.
    pub given: usize,
    /// Why.
    pub cause: WakeCause,
}

/// The power of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfPower {
    /// The drive, by its number among those with which the chain was opened.
    pub given: usize,
    /// What it does. `None` if nothing commands its power: a file, a virtual disk.
    pub state: Option<PowerState>,
    /// How long it was in which state since the chain was opened. At work it is while requests are
    /// under way.
    pub times: PowerTimes,
    /// Starts that are left of those of 24 hours.
    pub starts_left: u64,
    /// Requests that waited for a start, those of cleaning included.
    pub waited: u64,
    /// Reads among them.
    pub reads_waited: u64,
}

/// The last starts. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Wakes {
    runtime: Option<Handle>,
    last: Rc<RefCell<VecDeque<Wake>>>,
}

impl Wakes {
    fn note(&self, given: usize, cause: WakeCause) {
        let Some(runtime) = &self.runtime else { return };
        let mut last = self.last.borrow_mut();
        let number = last.back().map_or(0, |wake| wake.number) + 1;
        last.push_back(Wake { number, at: runtime.time_of_day(), given, cause });
        if last.len() > WAKES_KEPT {
            last.pop_front();
        }
    }
}

/// Drives that are about to be used, and who commands their power.
pub(crate) struct Beds {
    runtime: Handle,
    wakes: Wakes,
}

impl Beds {
    pub(crate) fn new(runtime: &Handle) -> Self {
        let wakes = Wakes { runtime: Some(runtime.clone()), last: Rc::default() };
        Self { runtime: runtime.clone(), wakes }
    }

    /// The drive with its power commanded.
    pub(crate) fn make(&self, device: Rc<dyn BlockDevice>, given: usize) -> Sleeper {
        Sleeper::new(self.runtime.clone(), device, given, self.wakes.clone())
    }

    /// All drives with their power commanded, started; the same drives if `settings` say that none
    /// sleeps.
    pub(crate) async fn make_all(
        &self,
        drives: Vec<Rc<dyn BlockDevice>>,
        settings: Option<SleepSettings>,
    ) -> (Vec<Rc<dyn BlockDevice>>, Vec<Sleeper>) {
        if settings.is_none() {
            return (drives, Vec::new());
        }
        let made = drives.into_iter().enumerate().map(|(given, drive)| self.make(drive, given));
        let sleepers: Vec<Sleeper> = made.collect();
        // One after the other: a drive that starts draws several times the power of one that turns.
        for sleeper in &sleepers {
            sleeper.begin().await;
        }
        let devices = sleepers.iter().map(|it| Rc::new(it.clone()) as Rc<dyn BlockDevice>);
        (devices.collect(), sleepers)
    }
}

impl Chain {
    /// The power of the current halves; empty if none may sleep.
    #[must_use]
    pub fn power(&self) -> Vec<HalfPower> {
        let Some(settings) = self.0.settings.sleep else { return Vec::new() };
        let chain = &self.0;
        let told = |sleeper: Sleeper| HalfPower {
            given: sleeper.given(),
            state: (!sleeper.is_refused()).then(|| sleeper.state()),
            times: sleeper.times(),
            starts_left: chain.rota.left(
                &sleeper,
                settings.wakes_a_day,
                chain.engine.runtime.now(),
            ),
            waited: sleeper.waited(),
            reads_waited: sleeper.reads_waited(),
        };
        chain.sleepers().map(told).collect()
    }

    /// The last starts of halves, the newest last.
    #[must_use]
    pub fn wakes(&self) -> Vec<Wake> {
        self.0.beds.wakes.last.borrow().iter().copied().collect()
    }
}

impl Inner {
    /// The power of all current drives.
    fn sleepers(&self) -> impl Iterator<Item = Sleeper> {
        let keeper = &self.keeper;
        let current = keeper.roster().in_use().flat_map(|link| keeper.current(link));
        current.filter_map(|drive| drive.sleeper)
    }

    /// Whether a half of the link sleeps: then nothing is written there that can wait.
    pub(crate) fn is_resting(&self, link: usize) -> bool {
        self.keeper.current(link).iter().any(Drive::is_asleep)
    }

    /// Starts all halves, for a close.
    pub(crate) async fn wake_all(&self) {
        self.rota.end();
        let all: Vec<Sleeper> = self.sleepers().collect();
        // One that was about to go to sleep stays up.
        all.iter().for_each(|sleeper| sleeper.set_drowsy(false));
        for sleeper in all {
            sleeper.wake(WakeCause::Close).await;
        }
    }

    /// A drive that is about to join the chain, with its power commanded if those of others are.
    pub(crate) fn bedded(
        &self,
        device: Rc<dyn BlockDevice>,
        label: Superblock,
        given: usize,
    ) -> Drive {
        if self.settings.sleep.is_none() {
            return Drive { device, label, given, sleeper: None };
        }
        let sleeper = self.beds.make(device, given);
        Drive { device: Rc::new(sleeper.clone()), label, given, sleeper: Some(sleeper) }
    }
}
